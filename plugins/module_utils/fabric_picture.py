"""The cluster's fabric as a table for a terminal: nodes, cages, twins, rails, and what is broken.

The shapes below are also what `fabric_svg.py` draws.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from .checks import Status

# Columns of a terminal that a person is likely to have, and those of a node's name, which is cut there.
COLUMNS = 120
NAME_COLUMNS = 24


class PictureNetdev(TypedDict):
    """An interface; `mtu` in bytes, `speed` in Mb/s, None for what is not there. `rail` is None on an unused one."""

    netdev: str
    device: str | None
    rail: str | None
    address: str | None
    mtu: int | None
    speed: int | None
    state: str


class PictureCage(TypedDict):
    """One QSFP cage with its twins."""

    name: str
    netdevs: Sequence[PictureNetdev]


class PictureNode(TypedDict):
    """One node."""

    rank: int
    cages: Sequence[PictureCage]


@dataclass(frozen=True)
class RailStatus:
    """How one node's end of one rail fares, and in a few words why."""

    status: Status
    reason: str = ""


Nodes = Mapping[str, PictureNode]
# By host and rail.
Statuses = Mapping[tuple[str, str], RailStatus]

NOT_CHECKED = RailStatus(Status.UNKNOWN, "it was not checked")


@dataclass(frozen=True)
class End:
    """One line of the picture: an interface in its cage, or a rail of the node without an interface (both None)."""

    cage: str | None
    netdev: PictureNetdev | None
    rail: str | None
    # None on an interface that carries no rail.
    status: RailStatus | None


def by_rank(nodes: Nodes) -> list[str]:
    """The hosts in the order of their ranks."""
    return sorted(nodes, key=lambda host: nodes[host]["rank"])


def ends_of(host: str, node: PictureNode, rails: Sequence[str], statuses: Statuses) -> list[End]:
    """All interfaces of a node in the order of its cages, then the rails that none of them carries."""
    found = [(cage["name"], netdev, netdev["rail"]) for cage in node["cages"] for netdev in cage["netdevs"]]
    carried = {rail for _, _, rail in found}
    lacking = [(None, None, rail) for rail in rails if rail not in carried]
    return [
        End(cage, netdev, rail, None if rail is None else statuses.get((host, rail), NOT_CHECKED))
        for cage, netdev, rail in [*found, *lacking]
    ]


def summary(nodes: Nodes, rails: Sequence[str], statuses: Statuses) -> str:
    """How many ends of rails are right, in one line."""
    found = [end.status for host in nodes for end in ends_of(host, nodes[host], rails, statuses) if end.status]
    right = sum(status.status is Status.OK for status in found)
    return f"{len(nodes)} nodes, {len(rails)} rails: {right} of {len(found)} ends of rails are ok"


def troubles(nodes: Nodes, rails: Sequence[str], statuses: Statuses) -> list[str]:
    """A line for each end of a rail that is not ok: `refuse: spark2 rail1 (enP2p1s0f0np0): reason`."""
    return [
        f"{end.status.status}: {host} {end.rail} ({_name(end)}): {end.status.reason or 'no reason was given'}"
        for host in by_rank(nodes)
        for end in ends_of(host, nodes[host], rails, statuses)
        if end.status and end.status.status is not Status.OK
    ]


def gigabits(speed: int | None) -> str:
    """A speed in Mb/s as a number of Gb/s, such as 200 or 2.5; `-` without a link (the kernel then says -1)."""
    return "-" if speed is None or speed < 0 else f"{speed / 1000:g}"


def text(nodes: Nodes, rails: Sequence[str], statuses: Statuses) -> str:
    """A table in ASCII, a row an interface, with the lines about what is not ok below it.

    An end of a rail that is not ok has its status in capitals. With the names that a Spark's devices have, it fits into
    COLUMNS.
    """
    rows = [["node", "rank", "cage", "interface", "RDMA device", "rail", "address", "MTU", "Gb/s", "link", "status"]]
    starts = []
    for host in by_rank(nodes):
        starts.append(len(rows))
        rows += _rows(host, nodes[host], ends_of(host, nodes[host], rails, statuses))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "-" * max(map(len, lines))
    ruled = [line for number, line in enumerate(lines) for line in ([rule, line] if number in starts else [line])]
    return "\n".join([*ruled, rule, *_notes(nodes, rails, statuses)])


def _rows(host: str, node: PictureNode, ends: Sequence[End]) -> Iterator[list[str]]:
    """The rows of one node, of which only the first names it."""
    name = [host if len(host) <= NAME_COLUMNS else f"{host[: NAME_COLUMNS - 2]}..", str(node["rank"])]
    for end in ends:
        yield [ascii_of(cell) for cell in [*name, *_cells(end)]]
        name = ["", ""]
    if not ends:
        yield [ascii_of(cell) for cell in [*name, "-", "no interface", *["-"] * 7]]


def _cells(end: End) -> list[str]:
    shown = "-" if end.status is None else str(end.status.status)
    status = shown if end.status is None or end.status.status is Status.OK else shown.upper()
    if end.netdev is None:
        return ["-", "no interface", "-", end.rail or "-", "-", "-", "-", "-", status]
    return [
        end.cage or "-",
        end.netdev["netdev"],
        end.netdev["device"] or "-",
        end.rail or "-",
        end.netdev["address"] or "-",
        str(end.netdev["mtu"] or "-"),
        gigabits(end.netdev["speed"]),
        end.netdev["state"].lower(),
        status,
    ]


def _notes(nodes: Nodes, rails: Sequence[str], statuses: Statuses) -> Iterator[str]:
    for line in [summary(nodes, rails, statuses), *troubles(nodes, rails, statuses)]:
        yield from textwrap.wrap(ascii_of(line), COLUMNS, subsequent_indent="    ")


def _name(end: End) -> str:
    return end.netdev["netdev"] if end.netdev else "no interface"


def ascii_of(words: str) -> str:
    """The same words in printable ASCII; what a node says must not steer the terminal that shows it."""
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in words)
