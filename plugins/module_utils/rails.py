"""Which interface of each node carries which rail, found from what the nodes show and not from names.

A QSFP cage of a Spark is two PCIe functions, so one cable lights two network devices with a RDMA device each: twins.
The n-th rail is the n-th twin of the cage that has the cable. Which cage that is may differ from node to node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network

from .facts import Fabric, Netdev, NodeFacts, device_of
from .intent import Intent, RailEnd

# What the kernel calls the physical port of a function (devlink); ports of virtual functions have longer names.
_PORT_NAME = re.compile(r"p\d+")
# udev puts that name at the end of the interface's own, after an n (systemd.net-naming-scheme(7)).
_NAME_PORT = re.compile(r".*n(p\d+)")
# The same scheme writes the PCI domain in decimal after a P, and leaves out domain 0.
_NAME_DOMAIN = re.compile(r"[a-z]{2}P(\d+)p")
# A ConnectX of a Spark has two ports and so two functions on each of its two PCI domains.
_FUNCTIONS = {"0": "p0", "1": "p1"}


class Cable(StrEnum):
    """What can be said about the cable of a cage."""

    CABLED = "cabled"
    DARK = "dark"
    # Its interfaces are administratively down, and the kernel tells nothing about the cable of such a one.
    ASLEEP = "asleep"


@dataclass(frozen=True)
class Cage:
    """One cage: its name such as p0, and its network devices in the order of their PCI domains."""

    name: str
    twins: tuple[str, ...]
    cable: Cable

    def __str__(self) -> str:
        """The cage with its interfaces, for a person."""
        return f"{self.name} ({', '.join(self.twins)})"


@dataclass(frozen=True)
class Doubt:
    """Why the interface of a rail could not be found; `asleep` when it may be as soon as the links are up."""

    rail: str
    fact: str
    limit: str
    remedy: str
    asleep: bool = False


@dataclass(frozen=True)
class Resolution:
    """All intents, with the interfaces that were found, and by host the doubts about those that were not."""

    intents: dict[str, Intent]
    doubts: dict[str, tuple[Doubt, ...]]


def cages(fabric: Fabric) -> list[Cage]:
    """The cages of a node by name; an interface without a RDMA device, or without a port's name, is in none."""
    twins: dict[str, list[str]] = {}
    for netdev in rdma_netdevs(fabric):
        name = _cage_name(netdev, fabric["netdevs"][netdev])
        if name:
            twins.setdefault(name, []).append(netdev)
    return [_cage(fabric, name, twins[name]) for name in sorted(twins)]


def rdma_netdevs(fabric: Fabric) -> list[str]:
    """The network devices that have a RDMA device."""
    return [netdev for netdev in fabric["netdevs"] if device_of(fabric, netdev)]


def addresses_of(fabric: Fabric, netdev: str) -> list[str]:
    """The IPv4 addresses of an interface without their masks; none for one that is not there."""
    link = fabric["netdevs"].get(netdev)
    return [cidr.split("/")[0] for cidr in link["addresses"]] if link else []


def cage_of(fabric: Fabric, netdev: str) -> Cage | None:
    """The cage that an interface belongs to."""
    return next((cage for cage in cages(fabric) if netdev in cage.twins), None)


def used_cages(fabric: Fabric, intent: Intent) -> list[Cage]:
    """The cages that carry a rail of the node."""
    netdevs = {rail.netdev for rail in intent.rails}
    return [cage for cage in cages(fabric) if netdevs.intersection(cage.twins)]


def asleep(fabric: Fabric) -> list[str]:
    """The interfaces with a RDMA device that are administratively down."""
    return [netdev for netdev in rdma_netdevs(fabric) if _cable_of(fabric, netdev) is Cable.ASLEEP]


def resolve(intents: Mapping[str, Intent], facts: Mapping[str, NodeFacts]) -> Resolution:
    """Find the interfaces of all nodes whose fabric was read; the intents of the others stay as they are."""
    fabrics = {host: node["fabric"] for host, node in facts.items() if "fabric" in node and host in intents}
    sight = _Sight(fabrics)
    bundles = {host: _bundles(intents[host], fabric) for host, fabric in fabrics.items()}
    for bundle in _all(bundles):
        _settle(bundle, sight)
    for bundle in _all(bundles):
        if bundle.open:
            _place_on_cage(bundle, sight, bundles)
    found = {host: _found(intent, bundles.get(host, [])) for host, intent in intents.items()}
    told = {host: _told(found[host], bundles[host]) for host in bundles}
    return Resolution(found, {host: doubts for host, doubts in told.items() if doubts})


# --- cages ----------------------------------------------------------------------------------------------------------


def _cage(fabric: Fabric, name: str, netdevs: Iterable[str]) -> Cage:
    ordered = sorted(netdevs, key=lambda netdev: _place(netdev, fabric["netdevs"][netdev]))
    states = {_cable_of(fabric, netdev) for netdev in ordered}
    # The two twins share one cable, so one of them that sees it is enough.
    cable = next(state for state in (Cable.CABLED, Cable.ASLEEP, Cable.DARK) if state in states)
    return Cage(name, tuple(ordered), cable)


def _cage_name(netdev: str, link: Netdev) -> str | None:
    port = link["phys_port_name"]
    if port:
        return port if _PORT_NAME.fullmatch(port) else None
    named = _NAME_PORT.fullmatch(netdev)
    if named:
        return named.group(1)
    return _FUNCTIONS.get(link["pci"]["address"].rpartition(".")[2]) if link["pci"] else None


def _place(netdev: str, link: Netdev) -> tuple[int, int, str, str]:
    """What orders twins: the PCI domain, then what the name says of it, for a machine that has only one domain."""
    named = _NAME_DOMAIN.match(netdev)
    by_name = int(named.group(1)) if named else 0
    address = link["pci"]["address"] if link["pci"] else ""
    return int(address.partition(":")[0], 16) if address else by_name, by_name, address, netdev


def _cable_of(fabric: Fabric, netdev: str) -> Cable:
    device = device_of(fabric, netdev)
    if fabric["netdevs"][netdev]["carrier"] or (device and device[1]["port"]["state"] == "ACTIVE"):
        return Cable.CABLED
    return Cable.ASLEEP if fabric["netdevs"][netdev]["carrier"] is None else Cable.DARK


# --- who is at the other end of a cable -----------------------------------------------------------------------------


class _Sight:
    """Which cage of a node leads to which other nodes, from the fe80 addresses that answered there."""

    def __init__(self, fabrics: Mapping[str, Fabric]) -> None:
        self._fabrics = fabrics
        self._owners = {
            address: (host, netdev)
            for host, fabric in fabrics.items()
            for netdev in rdma_netdevs(fabric)
            if (address := fabric["netdevs"][netdev]["link_local"])
        }
        # Both ends of every wire: who was asked saw who answered, and so the other way round.
        seen = [
            ((host, netdev), self._owners[address])
            for host, fabric in fabrics.items()
            for netdev, addresses in fabric["neighbours"].items()
            for address in addresses
            if address in self._owners and self._owners[address][0] != host
        ]
        self._wires = {*seen, *((far, near) for near, far in seen)}

    def peers(self, host: str, cage: Cage) -> list[str]:
        """The other nodes that the cable of a cage leads to."""
        return sorted({far for (near, netdev), (far, _) in self._wires if near == host and netdev in cage.twins})

    def cables(self, host: str) -> dict[str, list[str]]:
        """{cage: nodes} of one node, without the cages behind which nobody answered."""
        found = {cage.name: self.peers(host, cage) for cage in cages(self._fabrics[host])}
        return {name: peers for name, peers in found.items() if peers}

    def circle(self, head: str) -> list[str]:
        """The nodes in the order of their cables from the head on, where these close one circle; empty otherwise."""
        around = {host: sorted({p for peers in self.cables(host).values() for p in peers}) for host in self._fabrics}
        if any(len(peers) != 2 for peers in around.values()):
            return []
        order, last = [head], head
        while (following := next((p for p in around[last] if p not in order), None)) is not None:
            order.append(following)
            last = following
        return order if len(order) == len(around) and head in around[last] else []

    def joined(self, host: str, peer: str) -> list[tuple[str, str]]:
        """The cables between two nodes, as pairs of the cage of each."""
        ends = [(near, far) for near, far in self._wires if near[0] == host and far[0] == peer]
        pairs = {(self._cage(*near), self._cage(*far)) for near, far in ends}
        return sorted((one, other) for one, other in pairs if one and other)

    def _cage(self, host: str, netdev: str) -> str:
        cage = cage_of(self._fabrics[host], netdev)
        return cage.name if cage else ""

    def asleep(self, *hosts: str) -> bool:
        """True when an interface of one of these nodes is down, so that it could not ask or answer."""
        return any(asleep(self._fabrics[host]) for host in hosts if host in self._fabrics)


# --- one node -------------------------------------------------------------------------------------------------------


@dataclass
class _Bundle:
    """The ends of one node that share a cable, and what is known about their interfaces."""

    intent: Intent
    fabric: Fabric
    ends: Sequence[RailEnd]
    netdevs: dict[str, str] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    @property
    def peer(self) -> str:
        """The node at the other end, where the cable has only one."""
        return next(iter(self.ends[0].peers), "")

    @property
    def open(self) -> list[RailEnd]:
        """The ends about which nothing was found or said yet."""
        told = {doubt.rail for doubt in self.doubts}
        return [end for end in self.ends if end.name not in self.netdevs and end.name not in told]

    def doubt(self, fact: str, limit: str, remedy: str, *, asleep: bool = False) -> None:
        """Say the same about all open ends."""
        self.doubts += [Doubt(end.name, fact, limit, remedy, asleep) for end in self.open]

    def assign(self, cage: Cage) -> None:
        """Give the free twins of a cage to the open ends, in the order of both."""
        free = [twin for twin in cage.twins if twin not in self.netdevs.values()]
        for end, twin in zip(self.open, free, strict=False):
            self.netdevs[end.name] = twin
        self.doubt(
            f"{cage} has {len(cage.twins)} interface{'s' * (len(cage.twins) != 1)} with a RDMA device",
            f"{len(self.ends)}, one for each rail",
            "check `rdma link show` and `lspci` for the missing twin, or take the rail out of fabric_rails",
        )


def _bundles(intent: Intent, fabric: Fabric) -> list[_Bundle]:
    """A switch or one cable carries all rails; in a ring each neighbour has a cable of its own."""
    ends: dict[tuple[str, ...], list[RailEnd]] = {}
    for rail in intent.rails:
        ends.setdefault(tuple(rail.peers) if intent.topology == "ring" else (), []).append(rail)
    return [_Bundle(intent, fabric, rails) for rails in ends.values()]


def _all(bundles: Mapping[str, Sequence[_Bundle]]) -> Iterator[_Bundle]:
    for of_one_node in bundles.values():
        yield from of_one_node


def _found(intent: Intent, bundles: Sequence[_Bundle]) -> Intent:
    if not bundles:
        return intent
    netdevs = {name: netdev for bundle in bundles for name, netdev in bundle.netdevs.items()}
    rails = tuple(replace(rail, netdev=netdevs.get(rail.name, "")) for rail in intent.rails)
    return replace(intent, rails=rails, socket_netdev=_socket_netdev(intent, bundles[0].fabric, rails))


def _told(found: Intent, bundles: Sequence[_Bundle]) -> tuple[Doubt, ...]:
    doubts = [doubt for bundle in bundles for doubt in bundle.doubts]
    if found.topology == "ring" and not found.socket_netdev:
        doubts.append(_no_socket(found))
    return tuple(doubts)


def _socket_netdev(intent: Intent, fabric: Fabric, rails: Sequence[RailEnd]) -> str:
    if intent.topology != "ring":
        return rails[0].netdev
    return next((name for name in fabric["netdevs"] if intent.socket_address in addresses_of(fabric, name)), "")


def _no_socket(intent: Intent) -> Doubt:
    return Doubt(
        "sockets",
        f"no interface has the management address {intent.socket_address}",
        "one that all nodes reach: in a ring the rendezvous and NCCL's bootstrap use it",
        "write the node's own IPv4 address as ansible_host",
    )


def _settle(bundle: _Bundle, sight: _Sight) -> None:
    """An interface that has an address in a rail's subnet is that rail, whatever its name; then what is pinned."""
    for end in bundle.ends:
        holders = [name for name in _holders(bundle.fabric, end) if not _moved(bundle, name, sight)]
        allowed = _allowed(bundle, end)
        if len(holders) > 1:
            bundle.doubts.append(_two_holders(end, holders))
        elif holders and allowed is not None and holders[0] not in allowed:
            bundle.doubts.append(_misplaced(bundle, end, holders[0]))
        elif holders or end.netdev:
            bundle.netdevs[end.name] = holders[0] if holders else end.netdev


def _holders(fabric: Fabric, end: RailEnd) -> list[str]:
    """Who has the rail: the planned address counts for more than another one of its subnet, a RDMA device for most."""
    devices = rdma_netdevs(fabric)
    exact = [name for name in fabric["netdevs"] if end.address in addresses_of(fabric, name)]
    inside = [name for name in devices if _inside(fabric, name, end.subnet)]
    return [name for name in exact if name in devices] or inside or exact


def _moved(bundle: _Bundle, holder: str, sight: _Sight) -> bool:
    """True in a ring when the cable of an interface leads to another node than its address is for."""
    cage = cage_of(bundle.fabric, holder)
    if bundle.intent.topology != "ring" or cage is None:
        return False
    peers = sight.peers(bundle.intent.host, cage)
    return bool(peers) and bundle.peer not in peers


def _inside(fabric: Fabric, netdev: str, subnet: IPv4Network) -> bool:
    return any(IPv4Address(address) in subnet for address in addresses_of(fabric, netdev))


def _allowed(bundle: _Bundle, end: RailEnd) -> tuple[str, ...] | None:
    """The interfaces that the inventory leaves to a rail, None where it leaves all."""
    if end.netdev:
        return (end.netdev,)
    if bundle.intent.cage:
        return next((cage.twins for cage in cages(bundle.fabric) if cage.name == bundle.intent.cage), ())
    return None


def _two_holders(end: RailEnd, holders: Sequence[str]) -> Doubt:
    return Doubt(
        end.name,
        f"{' and '.join(holders)} have addresses in {end.subnet}",
        f"one interface in the subnet of {end.name}: twins belong in different subnets",
        "remove the address of the wrong one from netplan or NetworkManager",
    )


def _misplaced(bundle: _Bundle, end: RailEnd, holder: str) -> Doubt:
    pin = f"netdev {end.netdev}" if end.netdev else f"fabric_cage {bundle.intent.cage}"
    return Doubt(
        end.name,
        f"{holder} has an address in {end.subnet}",
        f"{pin} of the inventory",
        f"remove that address from {holder}, or the pin from the inventory",
    )


def _place_on_cage(bundle: _Bundle, sight: _Sight, bundles: Mapping[str, Sequence[_Bundle]]) -> None:
    """Choose the cage of a bundle and give its twins to the open ends, or say why there is none."""
    known = cages(bundle.fabric)
    if not known:
        _say_no_cage(bundle)
        return
    cage = _cage_in_use(bundle, known) or _cage_by_topology(bundle, known, sight, bundles)
    if cage is not None:
        bundle.assign(cage)


def _say_no_cage(bundle: _Bundle) -> None:
    if rdma_netdevs(bundle.fabric):
        bundle.doubt(
            f"no port can be told of {', '.join(rdma_netdevs(bundle.fabric))}",
            "a phys_port_name such as p0",
            "name the interface of each rail as netdev in fabric_rails",
        )
        return
    bundle.doubt(
        "there is no RDMA device at all",
        "two for each cable",
        "plug in the cable, without which some Sparks show none; then check `lspci` and `rdma link show`",
    )


def _cage_in_use(bundle: _Bundle, known: Sequence[Cage]) -> Cage | None:
    """The cage on which an end of the same cable was found already."""
    return next((cage for cage in known if set(cage.twins) & set(bundle.netdevs.values())), None)


def _cage_by_topology(
    bundle: _Bundle, known: Sequence[Cage], sight: _Sight, bundles: Mapping[str, Sequence[_Bundle]]
) -> Cage | None:
    if bundle.intent.topology == "ring":
        return _cage_towards(bundle, known, sight)
    if bundle.intent.cage:
        return _pinned_cage(bundle, known)
    if bundle.intent.topology == "direct":
        return _joined_cage(bundle, known, sight, bundles) or _cabled_cage(bundle, known)
    return _cabled_cage(bundle, known)


def _pinned_cage(bundle: _Bundle, known: Sequence[Cage]) -> Cage | None:
    cage = next((cage for cage in known if cage.name == bundle.intent.cage), None)
    if cage is not None and cage.cable is not Cable.DARK:
        return cage
    fact = f"{cage} has no carrier" if cage else f"there is no cage {bundle.intent.cage}, only {_listed(known)}"
    bundle.doubt(
        fact,
        f"a cable in {bundle.intent.cage}, which fabric_cage names",
        f"plug the cable into {bundle.intent.cage}, or correct fabric_cage",
    )
    return None


def _cabled_cage(bundle: _Bundle, known: Sequence[Cage]) -> Cage | None:
    """The first cage with a cable, or else the first one of which nobody can say whether it has one."""
    for cable in (Cable.CABLED, Cable.ASLEEP):
        candidates = [cage for cage in known if cage.cable is cable]
        if candidates:
            return candidates[0]
    bundle.doubt(
        f"no cage has a carrier: {_listed(known)}",
        "a cable in one of them",
        "plug in the cable at both ends, and switch on what is at the other end",
    )
    return None


def _joined_cage(
    bundle: _Bundle, known: Sequence[Cage], sight: _Sight, bundles: Mapping[str, Sequence[_Bundle]]
) -> Cage | None:
    """Of two cables between two nodes the one that the other has chosen already, or else the first."""
    far = _chosen(bundles.get(bundle.peer, []))
    pairs = [pair for pair in sight.joined(bundle.intent.host, bundle.peer) if not far or pair[1] == far]
    return next((cage for cage in known if pairs and cage.name == pairs[0][0]), None)


def _chosen(bundles: Sequence[_Bundle]) -> str:
    """The cage that the inventory or an address has chosen on a node, empty where nothing has."""
    for bundle in bundles:
        used = _cage_in_use(bundle, cages(bundle.fabric))
        return bundle.intent.cage or (used.name if used else "")
    return ""


def _cage_towards(bundle: _Bundle, known: Sequence[Cage], sight: _Sight) -> Cage | None:
    """The cage whose cable leads to the neighbour of this link."""
    host, peer = bundle.intent.host, bundle.peer
    leading = [cage for cage in known if peer in sight.peers(host, cage)]
    if len(leading) == 1:
        return leading[0]
    if leading:
        bundle.doubt(
            f"{' and '.join(map(str, leading))} both lead to {peer}",
            "one cable to each neighbour",
            "move one of the two cables, so that each neighbour has one",
        )
        return None
    seen = [f"{name} leads to {', '.join(peers)}" for name, peers in sight.cables(host).items()]
    hidden = sight.asleep(host, peer)
    bundle.doubt(
        f"nobody of {peer} answers behind {_listed(known)}" + (f": {'; '.join(seen)}" if seen else ""),
        f"a cable to {peer}, which has the next or the last rank",
        "run site.yml, which brings the links up and looks again" if hidden else _ring_remedy(bundle, sight),
        asleep=hidden,
    )
    return None


def _ring_remedy(bundle: _Bundle, sight: _Sight) -> str:
    """Ranks that follow the cables where these close a circle, else what to look at."""
    order = sight.circle(bundle.intent.head)
    if order:
        ranks = ", ".join(f"{host} {rank}" for rank, host in enumerate(order))
        return f"give the ranks in the order of the cables: sparkwright_rank of {ranks}; or move the cables"
    return f"join {bundle.intent.host} and {bundle.peer} by a cable; both ends need link-local IPv6 addresses"


def _listed(known: Sequence[Cage]) -> str:
    return ", ".join(f"{cage} {cage.cable}" for cage in known)
