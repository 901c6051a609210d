"""Plans this node's RDMA runs from the facts of all nodes, and lets the module make them."""

from __future__ import annotations

import math

from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_rdma import promising_ends
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import device_of, engine_runs
from ansible_collections.sparkwright.cluster.plugins.module_utils.perftest import REACH, SPEED
from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_schedule import (
    RUN_SECONDS,
    WAIT_SECONDS,
    longest,
    make_schedule,
)
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_cluster, make_plan

PROMPT = {"mode": SPEED, "wait": WAIT_SECONDS, "each": RUN_SECONDS}
# Verbs in software on slow processors: that they pass, some time, is all that can be asked.
PATIENT = {"mode": REACH, "wait": 120, "each": 90}

# The key of a verdict's `rdma`; a node that was not asked lacks it.
NOT_ASKED = {"changed": False, "skipped": True}


class ActionModule(ActionBase):
    """One module call on each node, all at once."""

    def run(self, tmp=None, task_vars=None):
        """Write to every peer that answers to a ping; to nobody while any node serves."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(argument_spec={"facts": {"type": "str", "required": True}})
        host = task_vars["inventory_hostname"]
        plan = make_plan(self._templar, task_vars)
        cluster = make_cluster(plan, task_vars, asked["facts"])
        if any(engine_runs(facts) for facts in cluster.facts.values()):
            return result | NOT_ASKED | {"skip_reason": "the engine serves"}
        if not cluster.facts[host]["reachable"]:
            return result | NOT_ASKED | {"skip_reason": "the node does not answer"}
        schedule = make_schedule(promising_ends(cluster), devices_of(cluster))
        pace = PATIENT if plan.profile["accelerator"] == "cpu" else PROMPT
        arguments = {
            **pace,
            "runs": [run.as_data() for run in schedule[host]],
            "seconds": math.ceil(longest(schedule, pace["wait"], pace["each"])),
        }
        return result | self._execute_module("sparkwright.cluster.rdma_probe", arguments, task_vars=task_vars)


def devices_of(cluster) -> dict[str, dict[str, str | None]]:
    """The RDMA device of each rail's interface, by host and interface."""
    found = {host: {} for host in cluster.intents}
    for host, fabric, _, rail in cluster.rail_ends():
        device = device_of(fabric, rail.netdev)
        found[host][rail.netdev] = device[0] if device else None
    return found
