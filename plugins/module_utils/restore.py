"""What must be done to one node so that it is as the record of before.json says that it was.

The record is {schema, files, units, user_units, default_target, ...}. Files, units and the default target are put back
by the module `restored` itself. Every other section belongs to the role that wrote it, through `recorded.remember`, and
is undone by one pure function here in UNDO: from the section's entries, {name: entry}, to the list of `undo.Step`.

- A function does no I/O and needs nothing but the entries: the inventory may have changed since, or be gone.
- The node's own command line tools are all that a step may use. A step runs twice without harm.
- Steps with `early` run before the files are put back, the others afterwards and after `systemctl daemon-reload`. A
  daemon that must read a file of its own again is restarted by a step; nothing else restarts it.
- A step that fails is named, the other steps run all the same, and the record is kept for another try.
- A section without a function is refused before anything is put back.

The section `sysctl`, {"vm/swappiness": {"value": "60"}}, has the live values before our first change. The module
`managed_files` writes it for every file below /etc/sysctl.d, so a role that writes its drop-in with it need do no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .undo import Step

Entries = Mapping[str, Mapping[str, Any]]


def undo_sysctl(entries: Entries) -> list[Step]:
    """The live values of kernel settings."""
    return [
        Step(name, entry["value"], ("sysctl", "-w", f"{name}={entry['value']}"), ("sysctl", "-n", name))
        for name, entry in sorted(entries.items())
    ]


# One line a section; the order here is the order of the steps.
UNDO: Mapping[str, Callable[[Entries], list[Step]]] = {"sysctl": undo_sysctl}
