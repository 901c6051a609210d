"""What one node is meant to be, rendered from inventory, profile and its own facts, without touching it."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.module_utils.daemon_config import (
    INSECURE,
    DaemonConfigError,
    dump,
    merge,
    parse,
    restarts,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import engine_runs
from ansible_collections.sparkwright.cluster.plugins.module_utils.fanout import (
    GB,
    daemon_config,
    links_of,
    plan_copy,
    pulls_of,
    readers_of,
    room_needed,
    said,
    surplus,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_plan import image_current
from ansible_collections.sparkwright.cluster.plugins.module_utils.launch import deployment
from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import state_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import (
    APT_GUARD,
    APT_GUARD_FILE,
    CONTAINER_MAIN,
    CONTAINER_PROGRAM,
    ENGINE_ENV_FILE,
    LAUNCH_FILE,
    LIBRARY,
    MANIFEST_FILES,
    MANIFEST_LIBRARY,
    MANIFEST_UNIT,
    MANIFESTS,
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
from ansible_collections.sparkwright.cluster.plugins.module_utils.reboots import reboot_reasons
from ansible_collections.sparkwright.cluster.plugins.module_utils.registry import registry_files
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import complete, fingerprint
from ansible_collections.sparkwright.cluster.plugins.module_utils.share import (
    COPY,
    client_files,
    is_mounted,
    lacks_rsync,
    must_remount,
    packages,
    server_fault,
    server_files,
    undo_record,
    unexported,
    unit_name,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning_plan import make_tuning_plan
from ansible_collections.sparkwright.cluster.plugins.module_utils.weights_source import source_plan
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import (
    launch_of,
    make_cluster,
    make_plan,
    smoke_of,
)
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import REPO

# A load of 410 GB takes about ten minutes, the graphs as long again.
READY_MINUTES = 30

GUARD_HEAD = "#!/bin/sh\n# Written by Sparkwright (role os_update): asks whether the engine serves.\n"


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
            "updates": updates_data(plan, intent, facts),
            "share": share_data(cluster, host),
            "weights_current": weights_current(facts, cluster.source),
            "daemon_restart": daemon_restart(intent, facts),
            "daemon_reload": daemon_reload(intent, facts),
            "image": image_data(plan, cluster, host),
            "weights_source": source_data(plan, intent),
            "launch": launch_data(launch_of(plan, intent, facts), plan, intent),
            "state": str(state_of(cluster)),
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


def daemon_restart(intent, facts) -> bool:
    """Whether Docker must be restarted for what its configuration lacks."""
    text = daemon_text(intent, facts)
    return text is not None and restarts(parse(facts["runtime"]["daemon_json"]), parse(text))


def daemon_reload(intent, facts) -> bool:
    """Whether the running Docker has yet to read that the head's registry speaks plain HTTP; also after a lost run."""
    if "runtime" not in facts or daemon_restart(intent, facts):
        return False
    return not set(intent.daemon_config.get(INSECURE, ())) <= set(facts["runtime"]["insecure_registries"])


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


def updates_data(plan, intent, facts) -> dict[str, object]:
    """The guard of apt, why the node should be booted again, and the command that tries its container runtime."""
    reasons = reboot_reasons(facts, intent.tuning.kernel_arguments) if "software" in facts else None
    return {
        "files": guard_files(plan.value(intent.host, "os_update_guard")),
        "reboot": reasons,
        "smoke": list(smoke_of(plan, intent, facts)),
    }


def guard_files(on: bool) -> list[dict[str, str]]:
    """The guard with the part of the library that it needs; switched off, apt is told nothing."""
    told = f'DPkg::Pre-Install-Pkgs {{"{APT_GUARD}";}};\nDPkg::Tools::Options::{APT_GUARD}::Version "2";\n'
    # Python looks for modules in the working directory first, which is where somebody called apt.
    run = f"cd / && PYTHONPATH={LIBRARY} PYTHONDONTWRITEBYTECODE=1 exec python3 -s -m sparkwright.apt_guard"
    program = f"{GUARD_HEAD}{run}\n"
    return [
        *library_files(LIBRARY, ("apt_guard", "names", "watched")),
        {"path": APT_GUARD, "content": program, "mode": "0755"},
        {"path": APT_GUARD_FILE, "content": f"// Written by Sparkwright (role os_update).\n{told if on else ''}"},
    ]


def share_data(cluster, host) -> dict[str, object] | None:
    """What makes the weights reach this node; None when its facts were not read."""
    facts, wish = cluster.facts[host], cluster.intents[host].share
    if "share" not in facts:
        return None
    share = facts["share"]
    pushed = wish.holds and cluster.source is not None and not weights_current(facts, cluster.source)
    files = {**server_files(wish, share), **client_files(wish)}
    return {
        "mode": wish.mode,
        "holds": wish.holds,
        "files": [{"path": path, "content": content} for path, content in files.items()],
        "record": undo_record(wish, share),
        "busy": any(engine_runs(one) for one in cluster.facts.values()),
        "packages": packages(wish, share),
        "rsync_due": lacks_rsync(wish, share, pushed),
        "serves": bool(wish.clients),
        "server_current": not server_fault(wish, share),
        "exports_current": not unexported(wish, share),
        "mounts": bool(wish.server),
        "mounted": is_mounted(wish, share),
        "remount": must_remount(wish, share),
        "unit": unit_name(wish.path),
        # Not "copy": in a template that is the method of every dictionary.
        "fanout": copy_data(cluster, host) if wish.mode == COPY else None,
    }


def copy_data(cluster, host) -> dict[str, object]:
    """The node's part in a copy from node to node; no round as long as the head's own checkpoint is not whole.

    Raises AnsibleActionFail where the copy does not fit on the node's disk.
    """
    intents, facts = cluster.intents, cluster.facts
    head = intents[host].head
    whole = all({"share", "weights"} <= facts[one].keys() for one in intents) and complete(facts[head]["weights"])
    rounds = plan_copy(intents, facts) if whole else []
    links = links_of(intents)
    readers = readers_of(rounds, links, host, head)
    own, path = facts[host]["share"], intents[host].share.path
    free, needed = own["disk_free"], room_needed(host, head, intents, facts) if rounds else 0
    if needed > free:
        raise AnsibleActionFail(
            f"{host}: {free / GB:.2f} GB are free at {path}; limit: {needed / GB:.2f} GB, which are to be copied; "
            "remedy: free some space, or set model_store_path to a larger disk"
        )
    return {
        "rounds": pulls_of(rounds, host),
        "told": said(rounds),
        "surplus": [f"{path}/{name}" for name in surplus(own["files"], facts[head]["share"]["files"])] if whole else [],
        "listen": [link.source for link in readers],
        "config": daemon_config(path, [link.own for link in readers]),
    }


def weights_current(facts, source) -> bool | None:
    """Whether the node's checkpoint is whole and, where the controller has one, the same."""
    if "weights" not in facts:
        return None
    return complete(facts["weights"]) and (source is None or fingerprint(facts["weights"]) == fingerprint(source))


def image_data(plan, cluster, host) -> dict[str, object] | None:
    """Whether the node, and every node, has the image, and how it comes; None when its facts were not read."""
    current = {name: image_current(cluster, name) for name in cluster.intents}
    if current[host] is None:
        return None
    intent = cluster.intents[host]
    storage = plan.value(intent.head, "engine_image_registry_path")
    return {
        "current": current[host],
        "settled": all(current.values()),
        "distribution": intent.image_need.distribution,
        "registry": intent.image_need.registry,
        "registry_files": registry_files(intent.image_need.registry, storage) if intent.image_need.registry else [],
        "source": "build" if plan.context else "load" if plan.value(intent.head, "engine_image_archive") else "pull",
    }


def source_data(plan, intent) -> dict[str, object]:
    """What brings the checkpoint onto this node, for the role model_store."""
    source = source_plan(partial(plan.value, intent.host), plan.profile["weights"]["directory"])
    return asdict(source) | {
        "prefixes": dict(intent.checkpoint.prefixes),
        "manifest": f"{MANIFESTS}/{plan.profile['weights']['directory']}.json",
        "unit": MANIFEST_UNIT,
        "library": MANIFEST_LIBRARY,
        "files": library_files(MANIFEST_LIBRARY, MANIFEST_FILES),
    }


def launch_data(rendered, plan, intent) -> dict[str, object] | None:
    """The launch with its files, or None while the fabric leaves it undecided."""
    if rendered is None:
        return None
    content = {
        "hardware_root": plan.value(intent.host, "sparkwright_hardware_root"),
        "intent": intent.as_data(),
        "argv": list(rendered.argv),
        "hosts": list(plan.intents),
        "deployment": deployment(plan.profile, list(plan.intents), intent.image_id or intent.image),
        "model": plan.profile["serve"]["name"],
        "ready_minutes": plan.profile["serve"].get("ready_minutes", READY_MINUTES),
        "stage_minutes": dict(plan.profile["serve"].get("stage_minutes", {})),
        "watchdog": bool(plan.value(intent.head, "serving_watchdog")),
        "waits": [list(place) for place in rendered.waits],
    }
    return {
        "argv": list(rendered.argv),
        "config_hash": rendered.config_hash,
        "files": [
            {"path": LAUNCH_FILE, "content": json.dumps(content, indent=1) + "\n"},
            {"path": ENGINE_ENV_FILE, "content": env_file(rendered.environment), "mode": "0600"},
            *engine_library(),
        ],
    }


def engine_library() -> list[dict[str, str]]:
    """The pure core as the engine's unit imports it, and as the container of a Ray runs it."""
    main = {"path": f"{LIBRARY}/__main__.py", "content": CONTAINER_MAIN, "diff": "digest"}
    return [*library_files(LIBRARY, (*NODE_LIBRARY, CONTAINER_PROGRAM)), main]


def library_files(library, names) -> list[dict[str, str]]:
    """Files of the pure core as the node imports them."""
    sources = REPO / "plugins" / "module_utils"
    package = f"{library}/sparkwright"
    texts = {f"{package}/{name}.py": (sources / f"{name}.py").read_text(encoding="utf-8") for name in names}
    marker = {f"{package}/__init__.py": '"""The part of Sparkwright that runs on a node."""\n'}
    return [{"path": path, "content": content, "diff": "digest"} for path, content in {**marker, **texts}.items()]
