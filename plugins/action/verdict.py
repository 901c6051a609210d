"""Runs the checks of one stage over all nodes, shows them as a table, and fails when one of them refuses."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import (
    Stage,
    Status,
    refusals,
    table,
)
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_cluster, make_plan

display = Display()

ALL = "all"


class ActionModule(ActionBase):
    """Pure functions over registered facts; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Decide; the result has every check."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(
            argument_spec={
                "facts": {"type": "str", "required": True},
                "stage": {"type": "str", "required": True, "choices": [*Stage, ALL]},
            }
        )
        plan = make_plan(self._templar, task_vars)
        cluster = make_cluster(plan, task_vars, asked["facts"])
        stage = None if asked["stage"] == ALL else Stage(asked["stage"])
        checks = run_checks(cluster, stage)
        refused = refusals(checks)
        # The table is for the person in front of the terminal; machines read `checks`.
        display.display(table(checks, plan.intents), color="red" if refused else None)
        result |= {
            "changed": False,
            "checks": [check.as_data() for check in checks],
            "counts": {str(status): sum(check.status is status for check in checks) for status in Status},
        }
        if refused:
            result |= {"failed": True, "msg": "\n".join(map(str, refused))}
        return result
