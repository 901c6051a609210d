"""What one node is meant to be, rendered from inventory, profile and its own facts, without touching it."""

from __future__ import annotations

import json

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.module_utils.daemon_config import (
    DaemonConfigError,
    dump,
    merge,
    parse,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import has_image
from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import state_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import (
    CONTAINER_MAIN,
    CONTAINER_PROGRAM,
    ENGINE_ENV_FILE,
    LAUNCH_FILE,
    LIBRARY,
    NCCL_ENV_FILE,
    NETPLAN_FILE,
    NODE_LIBRARY,
    SYSCTL_FILE,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import NcclEnvError, env_file, nccl_env
from ansible_collections.sparkwright.cluster.plugins.module_utils.netplan import (
    rails_as_planned,
    render_netplan,
    render_sysctl,
    strict_rails,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import Cable, rdma_netdevs, used_cages
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import complete, fingerprint
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning_plan import make_tuning_plan
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import (
    launch_of,
    make_cluster,
    make_plan,
)
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import REPO

# A load of 410 GB takes about ten minutes, the graphs as long again.
READY_MINUTES = 30


class ActionModule(ActionBase):
    """Renders; the roles write what it returns."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """The plan of this host; a part whose facts were not read is None."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(argument_spec={"facts": {"type": "str", "required": True}})
        host = task_vars["inventory_hostname"]
        plan = make_plan(self._templar, task_vars)
        cluster = make_cluster(plan, task_vars, asked["facts"])
        facts, intent = cluster.facts[host], cluster.intents[host]
        return result | {
            "changed": False,
            "intent": intent.as_data(),
            "fabric": fabric_data(intent, facts, cluster.doubts.get(host, ())),
            "daemon_json": daemon_text(intent, facts),
            "tuning": tuning_data(intent, facts),
            "weights_current": weights_current(facts, cluster.source),
            "image_current": image_current(intent, facts),
            "launch": launch_data(launch_of(plan, intent, facts), plan, intent),
            "state": str(state_of(cluster)),
            "model": plan.profile["serve"]["name"],
            "api_url": f"http://{intent.api_host}:{intent.api_port}",
            "ready_minutes": plan.profile["serve"].get("ready_minutes", READY_MINUTES),
        }


def fabric_data(intent, facts, doubts) -> dict[str, object] | None:
    """The files of the rails, what must be done to make them true, and the links that hide where the rails are.

    None when the fabric was not read. As long as links are down, and nothing else tells where the rails are, there are
    no files. Raises AnsibleActionFail when the rails cannot be found for another reason.
    """
    if "fabric" not in facts:
        return None
    fabric = facts["fabric"]
    unsure = bool(doubts) or any(cage.cable is Cable.ASLEEP for cage in used_cages(fabric, intent))
    data = {"wake": rdma_netdevs(fabric) if unsure else [], "files": [], "rails_current": False, "strict": []}
    if doubts and all(doubt.asleep for doubt in doubts):
        return data
    if doubts:
        lines = [f"{intent.host}: {d.fact}; limit: {d.limit}; remedy: {d.remedy}" for d in doubts if not d.asleep]
        raise AnsibleActionFail("\n".join(dict.fromkeys(lines)))
    return data | {
        "files": [
            {"path": NETPLAN_FILE, "content": render_netplan(intent.rails), "mode": "0600"},
            {"path": SYSCTL_FILE, "content": render_sysctl(intent.rails)},
            {"path": NCCL_ENV_FILE, "content": nccl_text(intent, fabric)},
        ],
        "rails_current": rails_as_planned(fabric, intent.rails),
        "strict": strict_rails(fabric, intent.rails),
    }


def nccl_text(intent, fabric) -> str:
    """The NCCL environment file. Raises AnsibleActionFail when the rails cannot give one."""
    try:
        return env_file(nccl_env(intent, fabric))
    except NcclEnvError as error:
        raise AnsibleActionFail(f"{intent.host}: {error}") from None


def daemon_text(intent, facts) -> str | None:
    """The merged daemon.json, or None when there is nothing to add."""
    if "runtime" not in facts:
        return None
    try:
        current = parse(facts["runtime"]["daemon_json"])
        merged = merge(current, intent.daemon_config)
    except DaemonConfigError as error:
        raise AnsibleActionFail(f"{intent.host}: {error}; remedy: correct the file") from None
    return None if merged == current else dump(merged)


def tuning_data(intent, facts) -> dict[str, object] | None:
    """What tunes the host, for the module host_tuning; None when its facts were not read."""
    if "tuning" not in facts:
        return None
    due = make_tuning_plan(intent.tuning, facts)
    return {
        "files": [{"path": path, "content": content} for path, content in due.files.items()],
        "steps": [step.as_data() for step in due.steps],
        "record": {section: dict(entries) for section, entries in due.record.items()},
        "margin": intent.tuning.margin,
        "refused": [f"{intent.host}: {fact}; limit: {limit}; remedy: {remedy}" for fact, limit, remedy in due.refused],
    }


def weights_current(facts, source) -> bool | None:
    """Whether the node's checkpoint is whole and, where the controller has one, the same."""
    if "weights" not in facts:
        return None
    return complete(facts["weights"]) and (source is None or fingerprint(facts["weights"]) == fingerprint(source))


def image_current(intent, facts) -> bool | None:
    """Whether the node has the image, and the pinned one."""
    if "runtime" not in facts:
        return None
    return has_image(facts["runtime"], intent.image, intent.image_id)


def launch_data(rendered, plan, intent) -> dict[str, object] | None:
    """The launch with its files, or None while the fabric leaves it undecided."""
    if rendered is None:
        return None
    content = {
        "hardware_root": plan.value(intent.host, "sparkwright_hardware_root"),
        "intent": intent.as_data(),
        "argv": list(rendered.argv),
        "waits": [list(place) for place in rendered.waits],
    }
    return {
        "argv": list(rendered.argv),
        "config_hash": rendered.config_hash,
        "files": [
            {"path": LAUNCH_FILE, "content": json.dumps(content, indent=1) + "\n"},
            {"path": ENGINE_ENV_FILE, "content": env_file(rendered.environment), "mode": "0600"},
            *library_files(),
        ],
    }


def library_files() -> list[dict[str, str]]:
    """The pure core as the node imports it, and as the container of a Ray runs it."""
    sources = REPO / "plugins" / "module_utils"
    package = f"{LIBRARY}/sparkwright"
    modules = [*NODE_LIBRARY, CONTAINER_PROGRAM]
    names = {f"{package}/{name}.py": (sources / f"{name}.py").read_text(encoding="utf-8") for name in modules}
    marker = {
        f"{package}/__init__.py": '"""The part of Sparkwright that runs on a node."""\n',
        f"{LIBRARY}/__main__.py": CONTAINER_MAIN,
    }
    return [{"path": path, "content": content, "diff": "digest"} for path, content in {**marker, **names}.items()]
