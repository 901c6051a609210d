"""Shows where every rank is, a line a node, and says whether to wait on; or, once all are stopped, why they failed."""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.first_failure import first_failure, message
from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import Step, outcome
from ansible_collections.sparkwright.cluster.plugins.module_utils.rank import new_end
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_plan
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import plain

display = Display()


class ActionModule(ActionBase):
    """Pure functions over what tasks registered; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """The outcome so far, or the failure once `stopped` names the task that stopped all ranks."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(
            argument_spec={"waited": {"type": "str", "required": True}, "stopped": {"type": "str"}}
        )
        intents = make_plan(self._templar, task_vars).intents
        steps = {host: step_of_result(task_vars, host, asked["waited"]) for host in intents}
        if asked["stopped"]:
            return result | failure(task_vars, asked["stopped"], steps, intents)
        width = max(map(len, intents))
        display.display("\n".join(f"{host:{width}}  {step.line}" for host, step in steps.items()))
        head = next(iter(intents))
        return result | {"changed": False, "outcome": outcome(steps, head)}


def registered(task_vars, host: str, name: str) -> dict:
    """What a task left under that name on a host."""
    return plain(task_vars["hostvars"][host].get(name)) or {}


def step_of_result(task_vars, host: str, name: str) -> Step:
    """One host's step; a host without one could not be asked."""
    found = registered(task_vars, host, name)
    if "line" not in found:
        return Step("no answer", fault="its node does not answer any more")
    return Step(found["line"], bool(found["ready"]), found["fault"])


def failure(task_vars, name: str, steps, intents) -> dict[str, object]:
    """The failed result: which rank failed first, and why, with its last lines."""
    ranks = {host: registered(task_vars, host, name).get("rank") for host in intents}
    ends = {host: rank["end"] for host, rank in ranks.items() if rank and rank["end"]}
    for host, step in steps.items():
        if step.fault and (host not in ends or ends[host]["ordered"]) and not first_failure(ends):
            ends[host] = new_end(step.fault, time.time())
    text = message(ends, {host: intent.rank for host, intent in intents.items()})
    first = first_failure(ends)
    return {"failed": True, "changed": False, "msg": text, "log": ends[first]["log"] if first else []}
