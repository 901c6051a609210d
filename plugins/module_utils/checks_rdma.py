"""RDMA writes between every two nodes: which are worth a try, and what was found for each rail of each node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .checks import Check, Cluster, Stage, Status, rule
from .facts import Fabric
from .rdma_schedule import ProbeEnd, RdmaProbe, RunResult

ID = "fabric.rdma-write"

# A twin is a PCIe Gen5 x4 function: about 100 Gb/s of a link that ethtool shows as 200000 Mb/s. Stale firmware and a
# link at the wrong width leave about 24 Gb/s (3 GB/s), so the bar lies well between the two.
BAR_GBITS = 60.0
BARRED_SPEED = 200_000

Probes = Mapping[str, RdmaProbe]

INSTALL = "install perftest on every Spark; a machine without RDMA devices has nothing to try"
UNTRIED = "not tried, or not reported"


@rule(ID, "RDMA writes pass between every two nodes on every rail, as fast as a twin can.", Stage.FABRIC)
def rdma_write(cluster: Cluster) -> Iterator[Check]:
    """It has nothing to say where nobody was asked to write, as while the engine serves."""
    speeds = {
        host: {name: netdev["speed"] for name, netdev in fabric["netdevs"].items()}
        for host, fabric, _ in cluster.having("fabric")
    }
    yield from judge(probe_ends(cluster), cluster.rdma, speeds)


def probe_ends(cluster: Cluster) -> dict[str, list[ProbeEnd]]:
    """The ends of all rails whose interface was found, by host in the order of the ranks."""
    ends: dict[str, list[ProbeEnd]] = {host: [] for host in cluster.intents}
    for host, _, _, rail in cluster.rail_ends():
        ends[host].append({"rail": rail.name, "netdev": rail.netdev, "address": rail.address, "peers": rail.peers})
    return ends


def promising_ends(cluster: Cluster) -> dict[str, list[ProbeEnd]]:
    """The same with those peers alone that answer to a ping, both ways: without that a run only waits for its limit."""
    fabrics: dict[str, Fabric] = {host: fabric for host, fabric, _ in cluster.having("fabric")}

    def answers(host: str, end: ProbeEnd, peer: str) -> bool:
        here, there = end["address"], end["peers"][peer]
        back = fabrics[peer]["pings"].get(f"{there} {here}") if peer in fabrics else None
        return bool(fabrics[host]["pings"].get(f"{here} {there}") and back)

    def kept(host: str, end: ProbeEnd) -> ProbeEnd:
        return {**end, "peers": {name: there for name, there in end["peers"].items() if answers(host, end, name)}}

    return {host: [kept(host, end) for end in ends] for host, ends in probe_ends(cluster).items()}


@dataclass(frozen=True)
class _Rail:
    """One end of a rail with what its node found: results by peer, and the peers that were not probed."""

    host: str
    end: ProbeEnd
    results: Mapping[str, RunResult]
    unprobed: Sequence[str]
    speed: int | None

    def check(self, status: Status, fact: str, limit: str, remedy: str = "") -> Check:
        return Check(ID, self.host, status, fact, limit, remedy, subject=self.end["rail"])


def judge(
    ends: Mapping[str, Sequence[ProbeEnd]],
    probes: Probes,
    speeds: Mapping[str, Mapping[str, int | None]],
) -> Iterator[Check]:
    """One result for each rail of each node that was asked, or one for a node that cannot probe at all.

    `ends` is what the schedule was made from, `probes` the nodes' sections `rdma_probe`, `speeds` is
    {host: {netdev: Mb/s as in /sys/class/net/<netdev>/speed, or None}}. A run that nobody reports is a failure, a run
    with a node that cannot probe is none.
    """
    for host, own in ends.items():
        if host not in probes:
            continue
        if not probes[host]["available"]:
            yield _not_probing(host, probes[host]["reason"])
            continue
        for end in own:
            yield _judge_rail(_rail(host, end, probes, speeds.get(host, {}).get(end["netdev"])))


def _rail(host: str, end: ProbeEnd, probes: Probes, speed: int | None) -> _Rail:
    results = {run["peer"]: run for run in probes[host]["runs"] if run["rail"] == end["rail"]}
    unprobed = [peer for peer in end["peers"] if peer in probes and not probes[peer]["available"]]
    return _Rail(host, end, results, unprobed, speed)


def _judge_rail(rail: _Rail) -> Check:
    due = [peer for peer in rail.end["peers"] if peer not in rail.unprobed]
    failed = [peer for peer in due if peer not in rail.results or not rail.results[peer]["ok"]]
    if failed:
        return _failed(rail, due, failed)
    return _not_probed(rail) if rail.unprobed else _passed(rail, due)


def _not_probing(host: str, reason: str) -> Check:
    return Check(ID, host, Status.WARN, f"RDMA writes were not tried: {reason}", "all peers on all rails", INSTALL)


def _not_probed(rail: _Rail) -> Check:
    peers = ", ".join(rail.unprobed)
    return rail.check(Status.WARN, f"writes on {rail.end['netdev']} were not tried with {peers}", "all peers", INSTALL)


def _failed(rail: _Rail, due: Sequence[str], failed: Sequence[str]) -> Check:
    netdev = rail.end["netdev"]
    reasons = "; ".join(
        f"with {peer}: {rail.results[peer]['reason'] if peer in rail.results else UNTRIED}" for peer in failed
    )
    fact = f"writes on {netdev} passed with {len(due) - len(failed)} of {len(due)} peers; {reasons}"
    remedy = f"check cable, MTU and GIDs of {netdev} on both nodes with playbooks/doctor.yml"
    return rail.check(Status.REFUSE, fact, "all peers", remedy)


def _passed(rail: _Rail, due: Sequence[str]) -> Check:
    netdev = rail.end["netdev"]
    figures = {peer: gbits for peer in due if (gbits := rail.results[peer]["gbits"]) is not None}
    fact = f"writes on {netdev} passed with {len(due)} of {len(due)} peers"
    if not figures:
        return rail.check(Status.OK, fact, "all peers")
    slowest = min(figures, key=lambda peer: figures[peer])
    fact = f"{fact}, the slowest at {figures[slowest]:g} Gb/s with {slowest}"
    if rail.speed != BARRED_SPEED:
        return rail.check(Status.OK, fact, "all peers")
    return rail.check(
        Status.OK if figures[slowest] >= BAR_GBITS else Status.WARN,
        fact,
        f"all peers, and {BAR_GBITS:.0f} Gb/s on a link of {BARRED_SPEED} Mb/s",
        f"bring the firmware of the card up to date, and compare the PCIe width of {netdev} with x4 in `lspci -vv`",
    )
