"""Shows what each node used before and uses now, and writes both down."""

from __future__ import annotations

import json

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.action.verdict import report_path
from ansible_collections.sparkwright.cluster.plugins.module_utils.footprint import footprint_table
from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import GROUP
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import registered_facts

display = Display()


class ActionModule(ActionBase):
    """Pure functions over registered facts; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """The figures of every node that was read twice."""
        result = super().run(tmp, task_vars)
        names = {name: {"type": "str", "required": True} for name in ("before", "after")}
        _, asked = self.validate_argument_spec(argument_spec=names)
        hosts = task_vars["groups"].get(GROUP, [])
        now = {host: registered_facts(task_vars, host, asked["after"]) for host in hosts}
        after = {host: facts["footprint"] for host, facts in now.items() if "footprint" in facts}
        before = {host: earlier(now[host], registered_facts(task_vars, host, asked["before"])) for host in after}
        before = {host: found for host, found in before.items() if found}
        display.display(footprint_table(before, after))
        path = report_path("footprint", task_vars)
        path.write_text(json.dumps({"before": before, "after": after}, indent=1) + "\n", encoding="utf-8")
        return result | {"changed": False, "report": str(path), "before": before, "after": after}


def earlier(now, then):
    """The footprint that the node recorded before our first change, or the one of the earlier reading, or None."""
    return now.get("tuning", {}).get("first_footprint") or then.get("footprint")
