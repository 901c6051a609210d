"""Fills in what the engine image is built from."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_plan


class ActionModule(ActionBase):
    """One module call with the build context."""

    def run(self, tmp=None, task_vars=None):
        """Build the image on this node."""
        result = super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        plan = make_plan(self._templar, task_vars)
        if plan.context is None:
            raise AnsibleActionFail(f"{host}: engine_image_build is empty; remedy: say what the image is built from")
        planned = {
            "image": plan.intents[host].image,
            "files": dict(plan.context.files),
            "options": list(plan.context.options),
            "build": plan.context.hash,
            "base": plan.context.base,
            "base_id": plan.context.base_id,
        }
        arguments = {**planned, **self._task.args}
        return result | self._execute_module("sparkwright.cluster.image_built", arguments, task_vars=task_vars)
