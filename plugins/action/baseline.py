"""Makes the items of a node's note from the facts that were read while it served."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.module_utils.baseline import items_of
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_cluster, make_plan


class ActionModule(ActionBase):
    """One module call with the items."""

    def run(self, tmp=None, task_vars=None):
        """Note what this node is."""
        result = super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        cluster = make_cluster(make_plan(self._templar, task_vars), task_vars, self._task.args["facts"])
        items = items_of(cluster.facts[host], cluster.intents[host])
        arguments = {**self._task.args, "items": items}
        return result | self._execute_module("sparkwright.cluster.baseline", arguments, task_vars=task_vars)
