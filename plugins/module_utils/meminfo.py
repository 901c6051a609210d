"""/proc/meminfo, the only true gauge of a machine whose CPU and GPU share one memory."""

from __future__ import annotations

from collections.abc import Mapping

KIB = 1024
GIB = 1024**3

# Two sizes of MemTotal are seen on GB10 nodes, 119.7 and 121.69 GiB; a firmware setting decides. Nodes whose totals
# differ by more than this many kB are of different classes (within a class the spread is about 10,000 kB).
CLASS_SPREAD_KB = 500_000
CLASSES_KB = (125_508_000, 127_590_000)

# Our estimate of the least that kernel, drivers and services of an idle, pruned node take; not measured on one.
SYSTEM_BYTES = 3 * GIB


def parse_meminfo(text: str) -> dict[str, int]:
    """The kB figures of /proc/meminfo by name; lines without a number are left out."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and fields and fields[0].isdigit():
            found[name] = int(fields[0])
    return found


def cma_trap(memory: Mapping[str, int]) -> bool:
    """True when CmaFree exceeds CmaTotal: the mark of a kernel with KHO on, where RDMA registration fails."""
    return memory.get("CmaFree", 0) > memory.get("CmaTotal", 0)


def gib(kb: int) -> float:
    """KB of /proc/meminfo as GiB."""
    return kb * KIB / GIB


def shown_parts(parts: Mapping[str, int]) -> tuple[str, dict[str, str]]:
    """The sum of bytes and each of them as GiB with two digits; the sum is that of what is shown."""
    hundredths = {name: round(size * 100 / GIB) for name, size in parts.items()}
    return f"{sum(hundredths.values()) / 100:.2f}", {name: f"{size / 100:.2f}" for name, size in hundredths.items()}
