#!/usr/bin/python
"""Stop this node's rank so that nothing of it is left: no process, no container, no memory."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_stopped
short_description: Stop the engine on a node, and wait until it is gone
description:
  - Stops the unit, which ends its container. A rank that ignores the request is killed after a grace of ten seconds.
  - Takes away every container of this project that is left, dead or alive. Containers of others are named in
    RV(others) and never touched.
  - Waits until the node has the memory back that it had before the launch, no longer than O(memory_seconds), and warns
    of what still holds it. Warns of anybody who listens on one of O(ports).
  - Returns how the rank ended before it was stopped, so that the ranks can be compared.
options:
  host:
    description: Name of the node in messages. Filled in from the inventory.
    type: str
    required: true
  ports:
    description: TCP ports that the engine needs. Filled in from the profile.
    type: list
    elements: int
    default: []
  memory_seconds:
    description: How long to wait for the memory.
    type: int
    default: 75
  hardware_root:
    description: Root below which the figures are read first. Filled in from C(sparkwright_hardware_root).
    type: path
    default: /
attributes:
  check_mode:
    description: Says what it would stop and take away.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Stop this node's rank
  sparkwright.cluster.engine_stopped:
"""

RETURN = r"""
rank:
  description: What the rank did last, as C(module_utils/facts.py) describes it under Rank; null when it has not run.
  returned: success
  type: dict
removed:
  description: Names of the containers of this project that outlived their unit.
  returned: success
  type: list
  elements: str
others:
  description: Names of the containers of others that run on the node.
  returned: success
  type: list
  elements: str
listeners:
  description: Who still listens on a port of the engine, a line each.
  returned: success
  type: list
  elements: str
memory:
  description: What still holds memory that the engine took, empty when nothing does.
  returned: success
  type: str
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import NodeFacts
from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import ours, still_held
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import KIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_UNIT
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import NodeReader

# States of the unit in which nothing of it runs.
AT_REST = ("inactive", "failed", "unknown")
# Seconds between two looks at the memory, which comes back up to a minute after a container has ended.
PAUSE = 3
LATELY = 120


class Stopper:
    """The engine of this node, and how it is ended."""

    def __init__(self, module: AnsibleModule, reader: NodeReader) -> None:
        """Look at what is there; the module runs the commands."""
        self.module, self.reader = module, reader
        self.found: NodeFacts = reader.read(["serving", "runtime"])
        # A unit that systemd waits to start again is active to it, but its rank does not run.
        self.runs = self.found["serving"]["unit"] not in AT_REST
        self.left = [one["name"] for one in ours(self.found["runtime"]["containers"])]

    @property
    def ended_lately(self) -> bool:
        """Whether the rank ended by itself so short a time ago that its memory may still be on its way."""
        rank = self.found["serving"]["rank"]
        return bool(rank and rank["end"] and time.time() - rank["end"]["at"] < LATELY)

    def stop(self) -> None:
        """Stop the unit, then whatever outlived it."""
        if self.runs:
            self.run(["systemctl", "stop", ENGINE_UNIT])
        names = [one["name"] for one in ours(self.reader.read(["runtime"])["runtime"]["containers"])]
        if names:
            self.run(["docker", "rm", "--force", *names])
        still = [one["name"] for one in ours(self.reader.read(["runtime"])["runtime"]["containers"])]
        if still:
            host = self.module.params["host"]
            self.module.fail_json(
                msg=f"{host}: the container {', '.join(still)} is still there after docker rm --force; limit: none of "
                "ours; remedy: look at `journalctl -u docker`, restart Docker, or reboot the node"
            )

    def memory(self, seconds: float) -> str:
        """Wait for the memory; what still holds it."""
        rank, until = self.found["serving"]["rank"], time.monotonic() + seconds
        while True:
            facts = self.reader.read(["memory", "processes"])
            available = facts["memory"]["MemAvailable"] * KIB
            held = still_held(available, rank["available"] if rank else 0, facts["processes"])
            if not held or time.monotonic() + PAUSE > until:
                return held
            time.sleep(PAUSE)

    def takers(self, ports: list[int]) -> list[str]:
        """Who still listens on a port of the engine."""
        rows = self.reader.read(["serving"])["serving"]["listeners"]
        held = [row for row in rows if row["port"] in ports]
        return sorted({f"port {row['port']} is held by {row['process'] or 'an unknown process'}" for row in held})

    def run(self, argv: list[str]) -> None:
        """A command that may fail: what remains is looked at afterwards."""
        code, _, errors = self.module.run_command(argv)
        if code:
            self.module.warn(f"{self.module.params['host']}: {' '.join(argv)}: {errors.strip()}")


def main() -> None:
    """Look, stop, wait."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "ports": {"type": "list", "elements": "int", "default": []},
            "memory_seconds": {"type": "int", "default": 75},
            "hardware_root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    stopper = Stopper(module, NodeReader(asked["hardware_root"]))
    changed = bool(stopper.runs or stopper.left)
    containers = stopper.found["runtime"]["containers"]
    others = [one["name"] for one in containers if one not in ours(containers) and one["state"] == "running"]
    held, takers = "", list[str]()
    if (changed or stopper.ended_lately) and not module.check_mode:
        stopper.stop()
        held, takers = stopper.memory(asked["memory_seconds"]), stopper.takers(asked["ports"])
        for line in [*([held] if held else []), *takers]:
            module.warn(f"{asked['host']}: {line}")
    rank = stopper.reader.read(["serving"])["serving"]["rank"]
    module.exit_json(changed=changed, rank=rank, removed=stopper.left, others=others, memory=held, listeners=takers)


if __name__ == "__main__":
    main()
