"""Shows what changed on every node since it last served, and says what putting it back takes."""

from __future__ import annotations

from dataclasses import asdict

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_updates import drifts_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.drift import Severity, drift_table
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import engine_runs
from ansible_collections.sparkwright.cluster.plugins.module_utils.reboots import reboot_reasons
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_cluster, make_plan

display = Display()

# The value of os_update_reboot with which every verb may reboot a node.
ALWAYS = "always"


class ActionModule(ActionBase):
    """Pure functions over registered facts; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Compare every node with the note of when it last served."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(argument_spec={"facts": {"type": "str", "required": True}})
        plan = make_plan(self._templar, task_vars)
        cluster = make_cluster(plan, task_vars, asked["facts"])
        found = drifts_of(cluster)
        worst = {drift.severity for drifts in found.values() for drift in drifts}
        display.display(drift_table(found), color="red" if Severity.REFUSE in worst else None)
        reboots = {host: due(cluster, host) for host, _, _ in cluster.having("software")}
        allowed = {host: reasons for host, reasons in reboots.items() if plan.value(host, "os_update_reboot") == ALWAYS}
        serves = any(engine_runs(facts) for facts in cluster.facts.values())
        return result | {
            "changed": False,
            "drifts": {host: [asdict(drift) for drift in drifts] for host, drifts in found.items()},
            "stop": serves and disturbs(found, allowed),
            "reboots": {host: reasons for host, reasons in allowed.items() if reasons},
        }


def disturbs(found, allowed) -> bool:
    """Whether an engine is disturbed; by what takes a boot only where that boot is allowed."""
    return any(drift.stops and not drift.reboots for drifts in found.values() for drift in drifts) or any(
        allowed.values()
    )


def due(cluster, host) -> list[str]:
    """Why the node should be booted again."""
    return reboot_reasons(cluster.facts[host], cluster.intents[host].tuning.kernel_arguments)
