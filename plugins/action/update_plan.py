"""Shows what an update would do to every node, and refuses one that would break the cluster."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_simulation import AptPlan
from ansible_collections.sparkwright.cluster.plugins.module_utils.reboots import reboot_reasons
from ansible_collections.sparkwright.cluster.plugins.module_utils.update_rules import (
    Node,
    objections,
    uneven_after,
    update_table,
)
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_cluster, make_plan
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import plain

display = Display()

# The value of os_update_reboot with which no verb reboots a node.
REBOOT_NEVER = "never"


class ActionModule(ActionBase):
    """Pure functions over registered results; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Decide; the result has the order of the update."""
        result = super().run(tmp, task_vars)
        names = {name: {"type": "str", "required": True} for name in ("plans", "facts")}
        _, asked = self.validate_argument_spec(argument_spec=names)
        plan = make_plan(self._templar, task_vars)
        cluster = make_cluster(plan, task_vars, asked["facts"])
        results = {host: plain(task_vars["hostvars"][host].get(asked["plans"]) or {}) for host in plan.intents}
        nodes = {host: node_of(cluster, host, results[host]) for host in plan.intents}
        display.display(update_table(nodes))
        refused, told = judged(nodes)
        told += [f"{host}: {words}" for host, one in results.items() for words in one.get("waited", [])]
        told += [
            f"{host}: newer firmware, which playbooks/firmware.yml applies: {words}"
            for host, one in results.items()
            for words in one.get("firmware", [])
        ]
        for line in told:
            display.display(line)
        if refused:
            return result | {"failed": True, "changed": False, "msg": "\n".join(refused)}
        return result | {"changed": False, **order(plan, cluster, nodes), "told": told}


def node_of(cluster, host, planned) -> Node:
    """What the rules look at. Raises AnsibleActionFail for a node that was not read."""
    facts, intent = cluster.facts[host], cluster.intents[host]
    if "plan" not in planned or "software" not in facts:
        raise AnsibleActionFail(f"{host}: its update was not simulated; remedy: run this for all nodes")
    tuning, software = facts["tuning"], facts["software"]
    return Node(
        kernel=facts["platform"]["kernel"],
        installed=software["packages"],
        held=list(software["held"]),
        plan=AptPlan.from_data(planned["plan"]),
        wish=intent.updates,
        # Those that are wanted are written before the boot.
        kernel_arguments=[*tuning["boot_arguments"], *intent.tuning.kernel_arguments]
        if tuning["grub"]
        else tuning["kernel_arguments"],
        served=software["baseline"] is not None,
    )


def judged(nodes) -> tuple[list[str], list[str]]:
    """What refuses the update, and what is only told, a line each."""
    uneven = uneven_after(nodes)
    found = [(host, one) for host, node in nodes.items() for one in (*objections(node), *uneven[host])]
    refused = [line(host, one) for host, one in found if one.refuse]
    return refused, [line(host, one) for host, one in found if not one.refuse]


def line(host, objection) -> str:
    """One objection as a line of plain English."""
    parts = [f"{host}: {objection.fact}"]
    parts += [f"limit: {objection.limit}"] if objection.limit else []
    parts += [f"remedy: {objection.remedy}"] if objection.remedy else []
    return " ".join("; ".join(parts).split())


def order(plan, cluster, nodes) -> dict[str, object]:
    """The canary, then the others in batches, and who has anything to do. Raises AnsibleActionFail."""
    hosts = list(nodes)
    canary = plan.value(hosts[0], "os_update_canary") or hosts[-1]
    if canary not in hosts:
        limit = f"one of {', '.join(hosts)}"
        raise AnsibleActionFail(f"all nodes: os_update_canary is {canary}; limit: {limit}; remedy: correct it")
    others = [host for host in hosts if host != canary]
    size = plan.value(hosts[0], "os_update_batch") or len(hosts)
    if size < 0:
        raise AnsibleActionFail(f"all nodes: os_update_batch is {size}; limit: 0 or more; remedy: correct it")
    due = [host for host, node in nodes.items() if not node.plan.empty or boots(plan, cluster, host)]
    return {
        "due": due,
        "canary": canary,
        "batches": [others[start : start + size] for start in range(0, len(others), size)],
    }


def boots(plan, cluster, host) -> bool:
    """Whether the node is to be booted although its packages are all there, as after an interrupted run."""
    if plan.value(host, "os_update_reboot") == REBOOT_NEVER:
        return False
    return bool(reboot_reasons(cluster.facts[host], cluster.intents[host].tuning.kernel_arguments))
