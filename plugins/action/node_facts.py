"""Fills in what the inventory knows, and turns an unreachable node into data that a verdict can name."""

from __future__ import annotations

from dataclasses import asdict

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import SWITCH
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import SCHEMA
from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import GROUP
from ansible_collections.sparkwright.cluster.plugins.module_utils.share_reader import asked_of
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_plan
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import one_line

# IPv4 and ICMP headers, in bytes: a ping of MTU less these fills one frame.
PING_HEADERS = 28


class ActionModule(ActionBase):
    """One module call; a failing connection or sudo is a result and no end of the play."""

    def run(self, tmp=None, task_vars=None):
        """Read the node; the result always has `node`."""
        result = super().run(tmp, task_vars)
        arguments = {**self.planned_arguments(task_vars), **self._task.args}
        try:
            read = self._execute_module("sparkwright.cluster.node_facts", arguments, task_vars=task_vars)
        except (AnsibleConnectionFailure, AnsibleError) as error:
            return result | {"changed": False, "node": unusable(one_line(error))}
        # Without an answer of the module, sudo or Python failed. An answer without facts is an error in the module.
        if "node" not in read and not read.get("_ansible_parsed"):
            return result | {"changed": False, "node": unusable(reason_of(read))}
        return result | read

    def planned_arguments(self, task_vars) -> dict[str, object]:
        """The arguments that the inventory and the profile decide; a host outside of the group is read as it is."""
        host = task_vars["inventory_hostname"]
        if host not in task_vars["groups"].get(GROUP, []):
            return {}
        plan = make_plan(self._templar, task_vars)
        intent = plan.intents[host]
        asked = self._task.args
        return {
            "hardware_root": plan.value(host, "sparkwright_hardware_root"),
            "weights_path": intent.weights_path,
            "weights_parts": list(intent.checkpoint.parts),
            "images": [intent.image],
            "image_key": intent.image_need.key,
            "sysctls": list(intent.tuning.sysctl),
            "share": {**asdict(asked_of(intent.share)), "folders": list(asked_of(intent.share).folders)},
            **(path_probes(intent) if asked.get("probe_paths") else {}),
            **(wire_probes(intent) if asked.get("probe_wires") else {}),
        }


def path_probes(intent) -> dict[str, object]:
    """One ping of full MTU to each far end of each rail."""
    pings = [
        {"address": rail.address, "peer": address, "size": rail.mtu - PING_HEADERS}
        for rail in intent.rails
        for address in rail.peers.values()
    ]
    return {"pings": pings}


def wire_probes(intent) -> dict[str, object]:
    """Who else claims a rail's address; and who is at the other end, but on a switch, where everyone answers."""
    arp = [{"netdev": rail.netdev or None, "address": rail.address} for rail in intent.rails]
    return {"arp": arp, "neighbours": intent.topology != SWITCH}


def reason_of(read: dict) -> str:
    """Why a module call brought nothing, in the shortest words that it left."""
    texts = (read.get("module_stderr"), read.get("msg"), read.get("module_stdout"))
    return one_line(next((text for text in texts if text), "no reason was given"))


def unusable(reason: str) -> dict[str, object]:
    """The facts of a node that could not be read."""
    return {"schema": SCHEMA, "reachable": False, "privileged": False, "reason": reason}
