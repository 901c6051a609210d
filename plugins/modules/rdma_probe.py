#!/usr/bin/python
"""Do RDMA writes pass between this node and its peers, on every rail?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_probe
short_description: Prove that RDMA writes pass on every rail
description:
  - Makes this node's part of the runs of C(ib_write_bw) (package perftest) between every two nodes on every rail.
  - Call it on all nodes at once. The nodes meet pair by pair, in the order that C(module_utils/rdma_schedule.py) plans.
  - The action plugin of the same name takes O(facts) alone and plans all else. It asks nobody while a node serves.
  - The GID index is looked up in sysfs right before each run, as it moves after link, netplan and firmware events.
  - A node without perftest or without C(/dev/infiniband), such as a container, is not probed, which is no failure.
  - It changes nothing, and ends in bounded time; no process of it is left behind. In check mode nothing is run.
  - It loads the rails. Do not call it while the engine serves.
options:
  facts:
    description:
      - Name of the variable in which a task with C(sparkwright.cluster.node_facts) was registered, which read fabric
        and runtime and tried the paths.
    type: str
    required: true
  runs:
    description: This node's runs, as C(rdma_schedule.make_schedule) plans them. Set by the action plugin, as all below.
    type: list
    elements: dict
    suboptions:
      round:
        description: Runs of one round take place at the same time on different nodes. A node has one in a round.
        type: int
        required: true
      rail:
        description: Name of the rail at this end.
        type: str
        required: true
      role:
        description: The server listens, the client connects and writes.
        type: str
        required: true
        choices: [server, client]
      device:
        description: RDMA device of the rail. Without one the run is a failure.
        type: str
      gid_address:
        description: The node's own IPv4 address on the rail.
        type: str
        required: true
      peer:
        description: Name of the peer in messages.
        type: str
        required: true
      peer_address:
        description: The peer's address on the rail.
        type: str
        required: true
      port:
        description: TCP port by which both ends of this run meet, used by no other run.
        type: int
        required: true
  seconds:
    description: Seconds after which all runs must have ended. What has not had its turn by then is a failure.
    type: int
    default: 300
  wait:
    description: Seconds to wait for the first peer. The nodes must start this module within that time of each other.
    type: int
    default: 20
  each:
    description: Seconds for one run.
    type: int
    default: 15
  bytes:
    description: Size of one write in bytes.
    type: int
    default: 65536
  mode:
    description:
      - V(speed) writes for two seconds and takes the average.
      - V(reach) sends a hundred writes with a patient timeout, which proves that they arrive and gives no figure.
        It is meant for emulated machines and soft-RoCE.
    type: str
    choices: [speed, reach]
    default: speed
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Read the rails and try every path
  sparkwright.cluster.node_facts:
    subsets: [fabric, runtime]
    probe_paths: true
  register: fabric_facts

- name: Write over RDMA between every two nodes on every rail
  sparkwright.cluster.rdma_probe:
    facts: fabric_facts
  register: fabric_rdma
"""

RETURN = r"""
rdma_probe:
  description: What was found; a section of the node's facts.
  returned: always
  type: dict
  contains:
    available:
      description: Whether anything was run.
      type: bool
    reason:
      description: Why nothing was run. Empty when it was.
      type: str
    runs:
      description: One result for each run, with its C(round), C(rail), C(role) and C(peer).
      type: list
      elements: dict
      contains:
        ok:
          description: Whether all writes arrived.
          type: bool
        gbits:
          description: Average in Gb/s. Null in the mode V(reach), and when the run failed.
          type: float
        reason:
          description: Why the run failed. Empty when it did not.
          type: str
"""

import signal
import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.perftest import MODES, SPEED
from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_exchange import Exchange, Limits
from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_schedule import (
    CLIENT,
    RUN_SECONDS,
    SERVER,
    WAIT_SECONDS,
    Run,
)

NOT_IN_CHECK_MODE = "check mode runs nothing"


def end_on_signals() -> None:
    """End through the `with` blocks, which kill what was started, when the connection or its user ends this module."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def main() -> None:
    """Run and return."""
    text: dict[str, Any] = {"type": "str", "required": True}
    number: dict[str, Any] = {"type": "int", "required": True}
    run = {
        "round": number,
        "rail": text,
        "role": {**text, "choices": [SERVER, CLIENT]},
        "device": {"type": "str"},
        "gid_address": text,
        "peer": text,
        "peer_address": text,
        "port": number,
    }
    module = AnsibleModule(
        argument_spec={
            "runs": {"type": "list", "elements": "dict", "required": True, "options": run},
            "seconds": {"type": "int", "default": 300},
            "wait": {"type": "int", "default": WAIT_SECONDS},
            "each": {"type": "int", "default": RUN_SECONDS},
            "bytes": {"type": "int", "default": 65536},
            "mode": {"type": "str", "choices": list(MODES), "default": SPEED},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, rdma_probe={"available": False, "reason": NOT_IN_CHECK_MODE, "runs": []})
    asked = module.params
    end_on_signals()
    exchange = Exchange(Limits(asked["seconds"], asked["wait"], asked["each"]), asked["bytes"], asked["mode"])
    module.exit_json(changed=False, rdma_probe=exchange.probe(Run(**run) for run in asked["runs"]))


if __name__ == "__main__":
    main()
