"""Who writes to whom over RDMA, and in which order, so that every rail between every two nodes is proven.

All nodes work at the same time and nobody tells them when to go on: they meet pair by pair. So the order is that of a
round-robin tournament, in which a node has at most one partner in a round, and every run has a port of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

# Below the ports that Linux hands out by itself (from 32768), and away from perftest's default of 18515.
PORT_BASE = 18700

SERVER, CLIENT = "server", "client"

# Seconds that an end waits for its peer at first: the modules of the nodes do not start in the same moment.
WAIT_SECONDS = 20
# Seconds for one run once both ends have met. A healthy one takes about four: perftest sleeps for one and measures for
# two.
RUN_SECONDS = 15

Pair = tuple[str, str]


class ProbeEnd(TypedDict):
    """One node's end of one rail; `peers` maps the nodes that it can reach over this end to their addresses."""

    rail: str
    netdev: str
    address: str
    peers: Mapping[str, str]


class RunResult(TypedDict):
    """What one end of one run found; `gbits` in Gb/s (None: no figure), `reason` is empty when `ok`."""

    round: int
    rail: str
    role: str
    peer: str
    ok: bool
    gbits: float | None
    reason: str


class RdmaProbe(TypedDict):
    """The section of a node's facts: when it is not `available`, `reason` says why and nothing was run."""

    available: bool
    reason: str
    runs: list[RunResult]


@dataclass(frozen=True)
class Run:
    """One end of one run; `gid_address` is the node's own address, `device` its RDMA device (None: it has none)."""

    round: int
    rail: str
    role: str
    device: str | None
    gid_address: str
    peer: str
    peer_address: str
    port: int

    def as_data(self) -> dict[str, Any]:
        """The run as an argument of the module."""
        return asdict(self)

    def result(self, reason: str = "", gbits: float | None = None) -> RunResult:
        """What became of it; without a reason it went well."""
        return {
            "round": self.round,
            "rail": self.rail,
            "role": self.role,
            "peer": self.peer,
            "ok": not reason,
            "gbits": gbits,
            "reason": reason,
        }


def make_schedule(
    ends: Mapping[str, Sequence[ProbeEnd]],
    devices: Mapping[str, Mapping[str, str | None]],
    port_base: int = PORT_BASE,
) -> dict[str, list[Run]]:
    """Every node's runs in their order. The nodes come in the order of their ranks: the lower one of a pair listens.

    `devices` is {host: {netdev: RDMA device}}. A round has one run of each of its pairs, so that a pair with two rails
    takes two rounds, and the figure of one rail is not shared with another. Raises ValueError when two ends do not
    name each other.
    """
    runs: dict[str, list[Run]] = {host: [] for host in ends}
    start, port = 0, port_base
    for pairs in tournament(list(ends)):
        links = {pair: list(_links(ends, pair)) for pair in pairs}
        for pair, found in links.items():
            for round_, (low, high) in enumerate(found, start):
                for (host, own), (peer, other), role in _both(pair, low, high):
                    device = devices.get(host, {}).get(own["netdev"])
                    meeting = (device, own["address"], peer, other["address"], port)
                    runs[host].append(Run(round_, own["rail"], role, *meeting))
                port += 1
        start += max(map(len, links.values()), default=0)
    return runs


def tournament(hosts: Sequence[str]) -> Iterator[list[Pair]]:
    """The rounds of a round-robin tournament by the circle method: n - 1 of them, or n when n is odd.

    Every two hosts meet once; in a pair the one that comes first in `hosts` is first.
    """
    circle: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    for _ in range(len(circle) - 1):
        met = [(circle[place], circle[-1 - place]) for place in range(len(circle) // 2)]
        yield [_by_rank(hosts, a, b) for a, b in met if a is not None and b is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def latest_start(round_: int, wait: float = WAIT_SECONDS, each: float = RUN_SECONDS) -> float:
    """Seconds after the start of the module until which an end waits for its peer in a round.

    A peer that met nobody in all rounds before, and then hung, is free at that time: one broken rail must not make
    the runs of others fail, only wait.
    """
    return wait + round_ * each


def longest(schedule: Mapping[str, Sequence[Run]], wait: float = WAIT_SECONDS, each: float = RUN_SECONDS) -> float:
    """Seconds after which every run has ended, whatever happens."""
    rounds = [run.round for runs in schedule.values() for run in runs]
    return latest_start(max(rounds) + 1, wait, each) if rounds else 0.0


def _by_rank(hosts: Sequence[str], one: str, other: str) -> Pair:
    return (one, other) if hosts.index(one) < hosts.index(other) else (other, one)


def _both(
    pair: Pair, low: ProbeEnd, high: ProbeEnd
) -> Iterator[tuple[tuple[str, ProbeEnd], tuple[str, ProbeEnd], str]]:
    """Both views of one link: the own host and end, the peer's, and the own role."""
    first, second = (pair[0], low), (pair[1], high)
    yield first, second, SERVER
    yield second, first, CLIENT


def _links(ends: Mapping[str, Sequence[ProbeEnd]], pair: Pair) -> Iterator[tuple[ProbeEnd, ProbeEnd]]:
    """The rails that a pair shares, as both ends; a rail may have another name at its other end, as in a ring."""
    low, high = pair
    for end in ends[low]:
        if high not in end["peers"]:
            continue
        there = {other["address"]: other for other in ends[high]}.get(end["peers"][high])
        if there is None or there["peers"].get(low) != end["address"]:
            raise ValueError(
                f"{end['rail']} of {low} leads to {end['peers'][high]} of {high}, whose end there does not lead back"
            )
        yield end, there
