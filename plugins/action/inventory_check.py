"""Checks the whole inventory on the controller, before any host is contacted."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import find_mistakes, plan_of
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import (
    profile_contradictions,
    profile_mistakes,
    read_inventory,
)


class ActionModule(ActionBase):
    """Gathers the inventory as plain data, asks the rules, and fails with one line a mistake."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Check; the result has the address plan and the profile's file."""
        result = super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        source = read_inventory(self._templar, task_vars)
        mistakes = [*find_mistakes(source.inventory), *profile_mistakes(source.inventory.profile)]
        # A contradiction is looked for in what is right by itself.
        mistakes = mistakes or profile_contradictions(source.inventory)
        if mistakes:
            return result | {"failed": True, "msg": "\n".join(map(str, mistakes))}
        return result | {
            "changed": False,
            "address_plan": plan_of(source.inventory).as_data(),
            "profile_file": str(source.profile_file),
        }
