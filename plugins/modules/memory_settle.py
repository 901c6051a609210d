#!/usr/bin/python
"""Have the memory that a launch needs: free what may be freed, and wait for what comes back late."""

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_settle
short_description: Free memory on request and wait for memory that comes back
description:
  - Waits until MemAvailable holds what the rank needs, or the time is up. Memory comes back up to a minute after a
    container has stopped.
  - With O(act) it first drops the page cache, once and only when memory is short, and drains the swap where all that
    lies in it fits into memory with a margin of 1 GiB. Every swap device is switched on again with its priority.
  - Does nothing on a node whose engine runs or starts, and never fails for a lack of memory. The checks that follow
    name it with its remedy.
  - An action plugin of the same name fills in what the inventory and the profile know.
options:
  need:
    description: What the rank takes, in bytes by what takes it. Filled in from the profile.
    type: dict
    required: true
  act:
    description: Whether the page cache may be dropped and the swap be drained. Filled in from C(serving_free_memory).
    type: bool
    default: false
  seconds:
    description: How long to wait.
    type: int
    default: 75
  hardware_root:
    description: Root below which the figures are read first. Filled in from C(sparkwright_hardware_root).
    type: path
    default: /
attributes:
  check_mode:
    description: Says what it would do, and does not wait.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Have the memory that the launch needs
  sparkwright.cluster.memory_settle:
"""

RETURN = r"""
acted:
  description: What was done, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["dropped the page cache", "drained 1.50 GiB of swap"]
short:
  description: Bytes that are still missing, 0 when there are enough.
  returned: always
  type: int
waited:
  description: Seconds that passed until then.
  returned: always
  type: float
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_memory import SWAP_LIMIT
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.memory_need import from_data
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import NodeReader
from ansible_collections.sparkwright.cluster.plugins.module_utils.shortage import Node

# Seconds between two looks.
PAUSE = 5
# States of the engine's unit in which its memory is taken already.
LOADED = ("active", "activating", "reloading")
# Clean pages, and the directory entries and inodes that hold on to them (kernel, sysctl/vm.rst).
DROP = "3"
DROP_FILE = Path("/proc/sys/vm/drop_caches")
SWAPS = Path("/proc/swaps")

Read = Callable[[], Node]


class Memory:
    """The node's memory and what may be done about it."""

    def __init__(self, module: AnsibleModule, read: Read) -> None:
        """Remember how to read it."""
        self.module, self.read = module, read
        self.acted: list[str] = []

    def act(self) -> None:
        """Drop the page cache when memory is short, and drain the swap when that is safe."""
        node = self.read()
        if node.lacking > 0:
            self._do("dropped the page cache", drop_caches)
            node = self.read()
        if node.swap_used > SWAP_LIMIT and node.can_drain:
            self._do(f"drained {node.swap_used / GIB:.2f} GiB of swap", self.drain)

    def drain(self) -> None:
        """Switch every swap device off and on again. Raises OSError."""
        for path, priority in swap_devices(SWAPS.read_text(encoding="utf-8")):
            self._run(["swapoff", path])
            self._run(["swapon", *(["--priority", priority] if int(priority) >= 0 else []), path])

    def settle(self, seconds: float) -> float:
        """Wait until there is enough; the result is the seconds that it took."""
        start = time.monotonic()
        while self.read().lacking > 0 and time.monotonic() + PAUSE - start < seconds:
            time.sleep(PAUSE)
        return time.monotonic() - start

    def _do(self, what: str, work: Callable[[], None]) -> None:
        """A node on which it cannot be done is refused afterwards, with its reason in the warning."""
        try:
            if not self.module.check_mode:
                work()
            self.acted.append(what)
        except OSError as error:
            self.module.warn(f"not {what}: {error}")

    def _run(self, argv: list[str]) -> None:
        code, _, err = self.module.run_command(argv)
        if code:
            raise OSError(f"{' '.join(argv)}: {err.strip()}")


def drop_caches() -> None:
    """Drop clean pages; what is dirty is written out first, so that it is clean. Raises OSError."""
    os.sync()
    DROP_FILE.write_text(DROP, encoding="ascii")


def swap_devices(text: str) -> list[tuple[str, str]]:
    """Path and priority of every swap device in the text of /proc/swaps."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return [(row[0], row[4]) for row in rows if len(row) == 5]


def main() -> None:
    """Act where that is asked for, wait, and report."""
    module = AnsibleModule(
        argument_spec={
            "need": {"type": "dict", "required": True},
            "act": {"type": "bool", "default": False},
            "seconds": {"type": "int", "default": 75},
            "hardware_root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    asked, reader = module.params, NodeReader(module.params["hardware_root"])
    need = from_data(asked["need"])
    if reader.read(["serving"])["serving"]["unit"] in LOADED:
        module.exit_json(changed=False, acted=[], short=0, waited=0.0)

    def read() -> Node:
        facts = reader.read(["memory", "processes"])
        return Node(facts["memory"], facts["processes"], need)

    memory = Memory(module, read)
    if asked["act"]:
        memory.act()
    waited = 0.0 if module.check_mode else memory.settle(asked["seconds"])
    short = max(0, read().lacking)
    module.exit_json(changed=bool(memory.acted), acted=memory.acted, short=short, waited=round(waited, 1))


if __name__ == "__main__":
    main()
