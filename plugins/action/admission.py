"""Says for every node whether the launch fits, from fresh facts of all of them, and refuses what does not."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.admission import as_data, decide, table
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_cluster, make_plan

display = Display()


class ActionModule(ActionBase):
    """Pure functions over registered facts; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Decide; the result has every node's figures in bytes."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(
            argument_spec={"facts": {"type": "str", "required": True}, "refuse": {"type": "bool", "default": True}}
        )
        plan = make_plan(self._templar, task_vars)
        admission = decide(make_cluster(plan, task_vars, asked["facts"]))
        # The table is for the person in front of the terminal; machines read the result.
        display.display(table(admission), color=None if admission.admitted else "red")
        result |= {"changed": False, **as_data(admission)}
        if asked["refuse"] and not admission.admitted:
            failures = [check.as_data() for check in admission.refused]
            result |= {"failed": True, "msg": "\n".join(map(str, admission.refused)), "checks": failures}
        return result
