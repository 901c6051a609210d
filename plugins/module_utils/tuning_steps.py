"""What tunes a host, as plain data: decided on the controller, done by the module on the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Record = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Step:
    """`argv` is run, or `value` is written into the file `path`; `does` says it in words.

    One that `drains` swap looks at the memory once more before. One that `restarts` a daemon, or moves memory, is left
    out while the engine serves, and is made up for by a later run.
    """

    does: str
    argv: tuple[str, ...] = ()
    path: str = ""
    value: str = ""
    drains: bool = False
    restarts: bool = False

    def as_data(self) -> dict[str, Any]:
        """Plain data for the module."""
        return {**asdict(self), "argv": list(self.argv)}


@dataclass(frozen=True)
class Part:
    """What one part of the tuning needs: files that differ (None: to be removed), steps, and what to record before.

    `record` is {section: {name: entry}}. `reloads` is whether systemd must read its units again. `disturbs` says why it
    cannot be done while the engine serves; empty when it can.
    """

    files: Mapping[str, str | None] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    record: Record = field(default_factory=dict)
    reloads: bool = False
    disturbs: str = ""
