"""Every node's address on every rail, computed from the inventory alone.

This is the one place that knows peers' addresses: the roles ask the plan and never the hosts.
It runs on the controller only, reads nothing and knows IPv4 only: NCCL is steered to RoCE v2 over IPv4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

from netaddr import AddrFormatError, IPAddress, IPNetwork

from .mistakes import ALL_NODES, Mistake

# Bytes: Ethernet's default, and the largest frame that common jumbo-frame switches forward.
MTU_LIMITS = (1500, 9216)

# Linux keeps an interface name in IFNAMSIZ = 16 bytes with the closing zero (linux/if.h) and refuses '/' and blanks.
NETDEV_NAME = re.compile(r"[^\s/]{1,15}")

RAIL_KEYS = ("name", "netdev", "subnet")


@dataclass(frozen=True)
class Rail:
    """One rail: its name, the interface that carries it on every node, and its IPv4 subnet such as 192.168.100.0/24."""

    name: str
    netdev: str
    subnet: str


@dataclass(frozen=True)
class RailAddress:
    """One node's end of one rail: `address` is plain (192.168.100.10), `cidr` has the mask, `mtu` is in bytes."""

    rail: str
    netdev: str
    address: str
    cidr: str
    mtu: int


@dataclass(frozen=True)
class NodeAddresses:
    """One node's addresses, in the order of the rails."""

    host: str
    rank: int
    rails: tuple[RailAddress, ...]


@dataclass(frozen=True)
class AddressPlan:
    """The addresses of all nodes, in the order of their ranks."""

    nodes: tuple[NodeAddresses, ...]

    @property
    def head_address(self) -> str:
        """The address at which the other nodes meet the head: rank 0 on the first rail."""
        return self.nodes[0].rails[0].address

    def node(self, host: str) -> NodeAddresses:
        """The addresses of one node. Raises KeyError for a host that is not in the plan."""
        for node in self.nodes:
            if node.host == host:
                return node
        raise KeyError(host)

    def peers(self, host: str) -> tuple[NodeAddresses, ...]:
        """All nodes but this one. Raises KeyError for a host that is not in the plan."""
        own = self.node(host)
        return tuple(node for node in self.nodes if node != own)

    def as_data(self) -> dict[str, object]:
        """The plan as plain data for templates: {head_address, nodes: {host: {host, rank, rails: [...]}}}."""
        nodes = {node.host: asdict(node) | {"rails": [asdict(rail) for rail in node.rails]} for node in self.nodes}
        return {"head_address": self.head_address, "nodes": nodes}


class AddressPlanError(ValueError):
    """The plan cannot be made; `mistakes` says why, and the text has one line for each of them."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        """Keep the mistakes beside their text."""
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)


def parse_rails(data: object) -> tuple[Rail, ...]:
    """Rails from the inventory's `fabric_rails`: a list of {name, netdev, subnet}. Raises AddressPlanError."""
    if not isinstance(data, list) or not data:
        raise AddressPlanError([_mistake("fabric_rails is not a list of rails", "list at least one rail")])
    mistakes = [m for index, rail in enumerate(data) for m in _rail_shape_mistakes(index, rail)]
    if mistakes:
        raise AddressPlanError(mistakes)
    return tuple(Rail(*(rail[key] for key in RAIL_KEYS)) for rail in data)


def make_plan(
    rails: Sequence[Rail],
    mtu: int,
    host_offset: int,
    ranks: Mapping[str, int],
    management: Mapping[str, str] | None = None,
) -> AddressPlan:
    """Compute the plan; a node's address is network address + host_offset + rank.

    `mtu` is in bytes, `ranks` is {host: rank}, `management` is {host: ansible_host}; a management name that is not an
    IPv4 address is not looked up. Raises AddressPlanError with every mistake found.
    """
    mistakes = [*_rail_mistakes(rails), *_mtu_mistakes(mtu)]
    if not mistakes:
        mistakes = [
            *_range_mistakes(rails, host_offset, ranks),
            *_rank_mistakes(ranks),
            *_management_mistakes(rails, management or {}),
        ]
    if mistakes:
        raise AddressPlanError(mistakes)
    return AddressPlan(
        tuple(
            NodeAddresses(host, rank, tuple(_rail_address(rail, mtu, host_offset + rank) for rail in rails))
            for host, rank in sorted(ranks.items(), key=lambda item: item[1])
        )
    )


def _mistake(what: str, remedy: str, host: str = ALL_NODES) -> Mistake:
    return Mistake(host, what, remedy)


def _rail_address(rail: Rail, mtu: int, number: int) -> RailAddress:
    network = IPNetwork(rail.subnet)
    address = str(network[number])
    return RailAddress(rail.name, rail.netdev, address, f"{address}/{network.prefixlen}", mtu)


def _rail_shape_mistakes(index: int, rail: object) -> Iterator[Mistake]:
    label = f"fabric_rails[{index}]"
    if not isinstance(rail, dict):
        yield _mistake(f"{label} is not a mapping", f"give it the keys {', '.join(RAIL_KEYS)}")
        return
    for key in RAIL_KEYS:
        value = rail.get(key)
        if not isinstance(value, str) or not value:
            yield _mistake(f"{label}.{key} is {value!r}", f"write {key} as text")


def _rail_mistakes(rails: Sequence[Rail]) -> Iterator[Mistake]:
    for rail in rails:
        if not NETDEV_NAME.fullmatch(rail.netdev):
            yield _mistake(
                f"{rail.name} has the netdev {rail.netdev!r}; limit: 15 characters without blank or slash",
                "write the name that `ip link` shows",
            )
    subnet_mistakes = [m for rail in rails for m in _subnet_mistakes(rail)]
    yield from subnet_mistakes
    for first, second in combinations(rails, 2):
        yield from _shared_key_mistakes(first, second)
        if not subnet_mistakes:
            yield from _overlap_mistakes(first, second)


def _subnet_mistakes(rail: Rail) -> Iterator[Mistake]:
    label = f"{rail.name} has the subnet {rail.subnet}"
    try:
        network = IPNetwork(rail.subnet)
    except AddrFormatError:
        yield _mistake(f"{label}, which is no IPv4 subnet", "write it like 192.168.100.0/24")
        return
    if network.version != 4:
        yield _mistake(f"{label}, which is IPv{network.version}; limit: IPv4", "write it like 192.168.100.0/24")
    elif network.prefixlen > 30:
        yield _mistake(f"{label} without room for two nodes; limit: /30", "write a mask of /30 or wider")
    elif network.ip != network.network:
        yield _mistake(f"{label}, which is the address of a host", f"write {network.cidr}")


def _shared_key_mistakes(first: Rail, second: Rail) -> Iterator[Mistake]:
    if first.name == second.name:
        yield _mistake(f"two rails are named {first.name}", "name the rails differently")
    if first.netdev == second.netdev:
        yield _mistake(
            f"{first.name} and {second.name} share the netdev {first.netdev}",
            "give each rail its own interface: the twins of one cage",
        )


def _overlap_mistakes(first: Rail, second: Rail) -> Iterator[Mistake]:
    if first.subnet == second.subnet:
        yield _mistake(f"{first.name} and {second.name} share the subnet {first.subnet}", "give each its own subnet")
    elif IPNetwork(first.subnet) in IPNetwork(second.subnet) or IPNetwork(second.subnet) in IPNetwork(first.subnet):
        yield _mistake(
            f"the subnets of {first.name} and {second.name} overlap: {first.subnet} and {second.subnet}",
            "give the rails subnets that lie apart",
        )


def _mtu_mistakes(mtu: int) -> Iterator[Mistake]:
    low, high = MTU_LIMITS
    if not low <= mtu <= high:
        yield _mistake(f"fabric_mtu is {mtu}; limit: {low} to {high} bytes", "write 9000, or what the switch carries")


def _range_mistakes(rails: Sequence[Rail], host_offset: int, ranks: Mapping[str, int]) -> Iterator[Mistake]:
    """A number that fits the narrowest subnet fits them all."""
    rail = min(rails, key=lambda rail: IPNetwork(rail.subnet).size)
    # The first and the last address of a subnet are its own name and its broadcast.
    last = IPNetwork(rail.subnet).size - 2
    remedy = _offset_remedy(rail, last - max(ranks.values(), default=0))
    for host, rank in ranks.items():
        number = host_offset + rank
        if not 1 <= number <= last:
            yield _mistake(
                f"rank {rank} with fabric_host_offset {host_offset} is host number {number} of {rail.name}"
                f" {rail.subnet}; limit: 1 to {last}",
                remedy,
                host,
            )


def _offset_remedy(rail: Rail, top: int) -> str:
    """What to do about the offset, of which `top` is the largest that leaves room for every rank."""
    if top < 1:
        return f"give {rail.name} a wider subnet"
    return "set fabric_host_offset to 1" if top == 1 else f"set fabric_host_offset to 1 to {top}"


def _rank_mistakes(ranks: Mapping[str, int]) -> Iterator[Mistake]:
    """One rank twice is the only way to one address twice, because the rails' subnets lie apart."""
    owners: dict[int, str] = {}
    for host, rank in ranks.items():
        owner = owners.setdefault(rank, host)
        if owner != host:
            yield _mistake(f"has the rank {rank} of {owner} and so its addresses", "give each node its own rank", host)


def _management_mistakes(rails: Sequence[Rail], management: Mapping[str, str]) -> Iterator[Mistake]:
    """A management address inside a rail's subnet would be an address of a node, or be routed into the fabric."""
    for host, text in management.items():
        try:
            address = IPAddress(text)
        except AddrFormatError:
            continue
        for rail in rails:
            if address in IPNetwork(rail.subnet):
                yield _mistake(
                    f"its management address {text} lies in the subnet {rail.subnet} of {rail.name}",
                    f"give {rail.name} a subnet that is used nowhere else",
                    host,
                )
