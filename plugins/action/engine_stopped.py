"""Fills in what the inventory and the profile know about the engine that is stopped."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_launch import listening
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_plan


class ActionModule(ActionBase):
    """One module call with the planned arguments."""

    def run(self, tmp=None, task_vars=None):
        """Stop the engine of this node."""
        result = super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        plan = make_plan(self._templar, task_vars)
        intent = plan.intents[host]
        planned = {
            "host": host,
            "ports": [port for _, _, ports in listening(intent) for port in ports],
            "hardware_root": plan.value(host, "sparkwright_hardware_root"),
        }
        arguments = {**planned, **self._task.args}
        return result | self._execute_module("sparkwright.cluster.engine_stopped", arguments, task_vars=task_vars)
