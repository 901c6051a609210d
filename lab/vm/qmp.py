"""Talks to QEMU over its monitor socket, in the QEMU Machine Protocol: one JSON object a line, both ways."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

# Seconds. The longest command waits for a processor that four emulated machines share.
ANSWER_SECONDS = 120


class MonitorError(Exception):
    """QEMU refused a command, or is gone."""


class Monitor:
    """A connection to one machine's monitor; use it in a `with`."""

    def __init__(self, path: Path) -> None:
        """Connect, and agree on the protocol."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._lines.readline()
        self("qmp_capabilities")

    def __enter__(self) -> Monitor:
        """Nothing to do: the connection is open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Run a command and return its answer; underscores in names stand for dashes."""
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        self._socket.sendall(json.dumps({"execute": command, "arguments": named}).encode() + b"\n")
        for line in self._lines:
            answer = json.loads(line)
            if "error" in answer:
                raise MonitorError(f"{command}: {answer['error']['desc']}")
            # Everything else that arrives is an event.
            if "return" in answer:
                return answer["return"]
        raise MonitorError(f"{command}: QEMU closed the connection")
