"""What a node used before and uses now, as one table."""

from __future__ import annotations

from collections.abc import Mapping

from .facts import Footprint
from .meminfo import KIB
from .tuning import MIB

# Units whose memory changed by less (kB) say nothing about what was done.
NOTABLE_KB = 1024
# Lines of units in the table; the report has all of them.
SHOWN = 10

Row = tuple[str, float, float]


def rows(before: Footprint, after: Footprint) -> list[Row]:
    """The figures of one node: name with its unit of measure, before, after."""
    totals = [sum(side["units"].values()) / KIB for side in (before, after)]
    pairs = [
        ("processes", before["processes"], after["processes"]),
        ("resident memory of units, MiB", totals[0], totals[1]),
        ("MemAvailable, MiB", before["memory_available"] / KIB, after["memory_available"] / KIB),
        ("swap used, MiB", before["swap_used"] / KIB, after["swap_used"] / KIB),
        ("journal on disk, MiB", before["journal"] / MIB, after["journal"] / MIB),
        ("open ports", len(before["listeners"]), len(after["listeners"])),
    ]
    return [*pairs, *unit_rows(before["units"], after["units"])]


def unit_rows(before: Mapping[str, int], after: Mapping[str, int]) -> list[Row]:
    """The units whose memory changed, those that changed most first; sizes in MiB."""
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    notable = [name for name, change in changes.items() if abs(change) >= NOTABLE_KB]
    most = sorted(notable, key=lambda name: (-abs(changes[name]), name))[:SHOWN]
    return [(f"  {name}, MiB", before.get(name, 0) / KIB, after.get(name, 0) / KIB) for name in most]


def footprint_table(before: Mapping[str, Footprint], after: Mapping[str, Footprint]) -> str:
    """One table for each node that was measured twice."""
    return "\n\n".join(node_table(host, before[host], after[host]) for host in after if host in before)


def node_table(host: str, before: Footprint, after: Footprint) -> str:
    """A line a figure: before, after, difference. Memory that could not be read is said below it."""
    lines = [[host, "before", "after", "difference"]]
    lines += [[name, f"{old:.0f}", f"{new:.0f}", f"{new - old:+.0f}"] for name, old, new in rows(before, after)]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    shown = [
        "  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))])
        for name, *cells in lines
    ]
    unread = before["unread"] + after["unread"]
    notes = [f"the memory of {unread} processes could not be read"] if unread else []
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:], *notes])
