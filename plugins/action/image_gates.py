"""Fills in what the inventory and the profile know about the engine image, and the program that looks into it."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_plan
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import REPO


class ActionModule(ActionBase):
    """One module call with the planned arguments."""

    def run(self, tmp=None, task_vars=None):
        """Look into the image of this node."""
        result = super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        plan = make_plan(self._templar, task_vars)
        intent = plan.intents[host]
        planned = {
            "image": intent.image,
            "request": intent.image_need.request(),
            "key": intent.image_need.key,
            "program": (REPO / "plugins" / "module_utils" / "image_probe.py").read_text(encoding="utf-8"),
            "mounts": list(intent.image_need.mounts),
            "home": plan.value(host, "serving_cache_path"),
        }
        arguments = {**planned, **self._task.args}
        return result | self._execute_module("sparkwright.cluster.image_gates", arguments, task_vars=task_vars)
