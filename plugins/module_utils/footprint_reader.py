"""Measures what a node uses by itself: processes, memory by unit, swap, journal, open ports."""

from __future__ import annotations

from collections import Counter

from .bounded import TimedOut, bounded
from .facts import Footprint
from .listeners import parse_listeners
from .machine import Machine
from .meminfo import parse_meminfo

# Seconds for the memory of all processes. The kernel walks through the pages of each, a millisecond or two.
MEMORY_SECONDS = 20

# Processes in containers are not the host's own; that of an engine would also take seconds to walk through.
CONTAINER = "docker-"
OTHER = "other"


class FootprintReader:
    """Reads one machine."""

    def __init__(self, machine: Machine) -> None:
        """Remember where to read."""
        self._machine = machine

    def read(self) -> Footprint:
        """Everything; within MEMORY_SECONDS and the bounds of `ss`."""
        pids = [name for name in self._machine.names("proc") if name.isdigit()]
        # The kernel's own threads have no command line.
        pids = [pid for pid in pids if self._machine.text(f"proc/{pid}/cmdline")]
        memory = parse_meminfo(self._machine.text("proc/meminfo"))
        units, unread = self.memory(pids)
        return {
            "processes": len(pids),
            "unread": unread,
            "units": units,
            "memory_available": memory.get("MemAvailable", 0),
            "swap_used": memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
            "journal": sum(self._machine.bytes_on_disk(f"{place}/log/journal") for place in ("var", "run")),
            "listeners": self.listeners(),
        }

    def memory(self, pids: list[str]) -> tuple[dict[str, int], int]:
        """PSS in kB by unit, the largest first, and how many processes could not be read."""
        try:
            found, unread = bounded(lambda: self._memory(pids), MEMORY_SECONDS)
        except (TimedOut, RuntimeError):
            return {}, len(pids)
        return dict(Counter(found).most_common()), unread

    def listeners(self) -> list[str]:
        """Every open port of TCP and UDP, once for each address."""
        found = set()
        for protocol, option in (("tcp", "-t"), ("udp", "-u")):
            text = self._machine.run(["ss", "-H", "-l", option, "-n", "-p"]).stdout
            for row in parse_listeners(text):
                found.add(f"{protocol} {row['address']}:{row['port']} {row['process']}".rstrip())
        return sorted(found)

    def _memory(self, pids: list[str]) -> tuple[dict[str, int], int]:
        units: Counter[str] = Counter()
        unread = 0
        for pid in pids:
            unit = unit_of(self._machine.text(f"proc/{pid}/cgroup"))
            if unit.startswith(CONTAINER):
                continue
            size = parse_meminfo(self._machine.text(f"proc/{pid}/smaps_rollup")).get("Pss")
            units[unit] += size or 0
            unread += size is None
        return dict(units), unread


def unit_of(cgroup: str) -> str:
    """The unit of a process from its /proc/<pid>/cgroup: the innermost service or scope, as a user's own marked so."""
    path = cgroup.strip().splitlines()[-1].partition("::")[2] if cgroup.strip() else ""
    parts = path.split("/")
    names = [part for part in parts if part.endswith((".service", ".scope"))]
    if not names:
        return OTHER
    inside = any(part.startswith("user@") for part in parts) and not names[-1].startswith("user@")
    return f"{names[-1]} (user)" if inside else names[-1]
