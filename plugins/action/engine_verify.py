"""Fills in what the profile knows about the engine that is proven, and shows a line for each proof."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.profiles import context
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import Plan, make_plan

display = Display()


class ActionModule(ActionBase):
    """One module call with the planned arguments."""

    def run(self, tmp=None, task_vars=None):
        """Prove."""
        result = super().run(tmp, task_vars)
        plan = make_plan(self._templar, task_vars)
        host = task_vars["inventory_hostname"]
        known = {"executor": plan.profile["executor"], "expect": dict(plan.profile.get("expect", {}))}
        arguments = {**api_arguments(plan, host), **known, **self._task.args}
        found = self._execute_module("sparkwright.cluster.engine_verify", arguments, task_vars=task_vars)
        for one in found.get("proofs", []):
            limit = f"; limit: {one['limit']}" if one["limit"] else ""
            display.display(f"{one['outcome']:8}{one['proof']}: {one['fact']}{limit}")
        return result | found


def api_arguments(plan: Plan, host: str) -> dict[str, object]:
    """Where the engine of a node's cluster answers, and what a request can be."""
    intent = plan.intents[host]
    return {
        "url": f"http://{intent.api_host}:{intent.api_port}",
        "model": plan.profile["serve"]["name"],
        "context": context(plan.profile),
    }
