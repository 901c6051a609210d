"""Checks of where the rails are: the interface of each, its cage, and the twin beside it."""

from __future__ import annotations

from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, rule
from .rails import Cable, Cage, cages, used_cages


@rule(
    "fabric.rail",
    "The interface of every rail was found.",
    Stage.PREFLIGHT,
    Stage.FABRIC,
    Stage.LAUNCH,
    needs="fabric",
)
def rail_found(cluster: Cluster) -> Iterator[Check]:
    """An interface that is missing, renamed or without a cable is found before netplan is told about it.

    What hides behind a link that is down is looked at again by `fabric.awake`, when the role has brought the links up.
    """
    for host, fabric, _, rail in cluster.rail_ends():
        there = rail.netdev in fabric["netdevs"]
        others = ", ".join(name for name in sorted(fabric["netdevs"]) if name != "lo")
        yield Check(
            "fabric.rail",
            host,
            Status.OK if there else Status.REFUSE,
            f"{rail.netdev} is there" if there else f"there is no interface {rail.netdev}, only {others}",
            f"the interface of {rail.name}",
            "correct fabric_rails, or leave out netdev there to have it found; then run site.yml",
            subject=rail.name,
        )
    yield from _doubts("fabric.rail", cluster, asleep=False)


@rule("fabric.awake", "No link is down that hides where a rail is.", Stage.FABRIC, Stage.LAUNCH, needs="fabric")
def awake(cluster: Cluster) -> Iterator[Check]:
    """The kernel says nothing about the cable of an interface that is down, and such a one answers nobody."""
    hidden = list(_doubts("fabric.awake", cluster, asleep=True))
    yield from hidden
    for host, _, _ in cluster.having("fabric"):
        if host not in {check.host for check in hidden}:
            yield Check("fabric.awake", host, Status.OK, "every rail was found")


def _doubts(id_: str, cluster: Cluster, *, asleep: bool) -> Iterator[Check]:
    for host, doubts in cluster.doubts.items():
        for doubt in doubts:
            if doubt.asleep is asleep:
                yield Check(id_, host, Status.REFUSE, doubt.fact, doubt.limit, doubt.remedy, subject=doubt.rail)


@rule(
    "fabric.cage",
    "The cable that carries the rails can be seen, and no other lies idle.",
    Stage.PREFLIGHT,
    Stage.FABRIC,
    needs="fabric",
)
def cage(cluster: Cluster) -> Iterator[Check]:
    """A second cable is bandwidth that somebody believes to have."""
    for host, fabric, intent in cluster.having("fabric"):
        used = used_cages(fabric, intent)
        unused = [cage for cage in cages(fabric) if cage not in used]
        unseen = [cage for cage in used or unused if cage.cable is Cable.ASLEEP]
        idle = [cage for cage in unused if used and cage.cable is Cable.CABLED]
        if used or unseen:
            fact, remedy = _cable_state(used, unseen, idle)
            status = Status.WARN if remedy else Status.OK
            yield Check("fabric.cage", host, status, fact, "a cable where a rail is, and no other", remedy)


def _cable_state(used: list[Cage], unseen: list[Cage], idle: list[Cage]) -> tuple[str, str]:
    """What is to be said about the cables of a node, and what to do."""
    if unseen:
        fact = f"nobody can see whether {_listed(unseen)} has a cable, as its links are down"
        return fact, "nothing: site.yml brings the links up and looks again"
    if idle:
        fact = f"{_listed(idle)} has a cable too, and only {_listed(used)} carries rails"
        return fact, "pull that cable, or choose its cage with fabric_cage"
    return f"{_listed(used)} carries the rails", ""


def _listed(found: list[Cage]) -> str:
    return " and ".join(map(str, found))


@rule("fabric.twins", "Both twins of a cable carry a rail.", Stage.PREFLIGHT, Stage.FABRIC, needs="fabric")
def twins(cluster: Cluster) -> Iterator[Check]:
    """One twin alone is one PCIe link of four lanes, half of what the cable carries."""
    for host, fabric, intent in cluster.having("fabric"):
        netdevs = {rail.netdev for rail in intent.rails}
        for cage in used_cages(fabric, intent):
            idle = [twin for twin in cage.twins if twin not in netdevs]
            yield Check(
                "fabric.twins",
                host,
                Status.WARN if idle else Status.OK,
                f"{len(cage.twins) - len(idle)} of {len(cage.twins)} twins of {cage.name} carry a rail"
                + (f", not {', '.join(idle)}" if idle else ""),
                # Published for a 744B mixture of experts, TP4.
                "all: with one rail decode halves, 9.4 against about 20 tok/s",
                "add a second rail with a subnet of its own to fabric_rails",
                subject=cage.name,
            )
