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

from .intent import RailEnd
from .mistakes import ALL_NODES, Mistake

# Bytes: Ethernet's default, and the largest frame that common jumbo-frame switches forward.
MTU_LIMITS = (1500, 9216)

# Linux keeps an interface name in IFNAMSIZ = 16 bytes with the closing zero (linux/if.h) and refuses '/' and blanks.
NETDEV_NAME = re.compile(r"[^\s/]{1,15}")

# How the nodes are joined: all by a switch, two by a cable, or each with the next by cables in a circle.
SWITCH, DIRECT, RING = "switch", "direct", "ring"

# How many nodes each of them joins. In a ring of two, both cables would lead to the same node.
NODES = {SWITCH: (2, 8), DIRECT: (2, 2), RING: (3, 8)}

# The narrowest subnet of a rail: a cable has no need of the two addresses that a /31 lacks (RFC 3021).
NARROWEST = {SWITCH: 30, DIRECT: 31, RING: 32}


@dataclass(frozen=True)
class Rail:
    """One rail: its name and its IPv4 subnet such as 192.168.100.0/24.

    `netdev` is empty where the interface is to be found on each node, or the one that carries the rail on all of them.
    In a ring the subnet is a pool, of which each link takes its own small subnet.
    """

    name: str
    subnet: str
    netdev: str = ""


@dataclass(frozen=True)
class Cabling:
    """How the nodes are joined; `link_prefix`, 30 or 31, is the mask of one link of a ring."""

    topology: str = SWITCH
    link_prefix: int = 31


@dataclass(frozen=True)
class NodeAddresses:
    """One node's ends of the rails, in the order of the rails and in a ring of the links."""

    host: str
    rank: int
    rails: tuple[RailEnd, ...]


@dataclass(frozen=True)
class AddressPlan:
    """The addresses of all nodes, in the order of their ranks.

    `head_address` is where the other nodes meet the head: rank 0 on the first rail. In a ring not every node has a
    cable to the head, so there it is the name or address by which the head is managed.
    """

    nodes: tuple[NodeAddresses, ...]
    head_address: str

    def node(self, host: str) -> NodeAddresses:
        """The addresses of one node. Raises KeyError for a host that is not in the plan."""
        for node in self.nodes:
            if node.host == host:
                return node
        raise KeyError(host)

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
    """Rails from the inventory's `fabric_rails`: a list of {name, subnet, netdev}. Raises AddressPlanError."""
    if not isinstance(data, list) or not data:
        raise AddressPlanError([_mistake("fabric_rails is not a list of rails", "list at least one rail")])
    mistakes = [m for index, rail in enumerate(data) for m in _rail_shape_mistakes(index, rail)]
    if mistakes:
        raise AddressPlanError(mistakes)
    return tuple(Rail(rail["name"], rail["subnet"], rail.get("netdev") or "") for rail in data)


def make_plan(
    rails: Sequence[Rail],
    mtu: int,
    host_offset: int,
    ranks: Mapping[str, int],
    management: Mapping[str, str] | None = None,
    cabling: Cabling | None = None,
) -> AddressPlan:
    """Compute the plan.

    With a switch or one cable a node's address is network address + host_offset + rank. In a ring, link i joins rank i
    with the next and takes the i-th subnet of each rail's pool; `host_offset` has no meaning there.

    `mtu` is in bytes, `ranks` is {host: rank}, `management` is {host: ansible_host}; a management name that is not an
    IPv4 address is not looked up. Raises AddressPlanError with every mistake found.
    """
    how, managed = cabling or Cabling(), management or {}
    mistakes = [*_rail_mistakes(rails, how), *_mtu_mistakes(mtu)]
    if not mistakes:
        mistakes = [
            *_room_mistakes(rails, how, host_offset, ranks),
            *_rank_mistakes(ranks),
            *_management_mistakes(rails, managed),
        ]
    if mistakes:
        raise AddressPlanError(mistakes)
    hosts = sorted(ranks, key=lambda host: ranks[host])
    if how.topology == RING:
        return AddressPlan(tuple(_in_ring(rails, mtu, how, hosts)), managed.get(hosts[0], hosts[0]))
    nodes = tuple(_on_subnets(rails, mtu, host_offset, ranks, hosts))
    return AddressPlan(nodes, nodes[0].rails[0].address)


def _on_subnets(
    rails: Sequence[Rail], mtu: int, host_offset: int, ranks: Mapping[str, int], hosts: Sequence[str]
) -> Iterator[NodeAddresses]:
    """Every node has one end of each rail, and meets all others there."""
    for host in hosts:
        ends = []
        for rail in rails:
            network = IPNetwork(rail.subnet)
            addresses = {name: str(network[host_offset + rank]) for name, rank in ranks.items()}
            ends.append(_end(rail.name, rail.netdev, addresses.pop(host), network.prefixlen, mtu, addresses))
        yield NodeAddresses(host, ranks[host], tuple(ends))


def _in_ring(rails: Sequence[Rail], mtu: int, how: Cabling, hosts: Sequence[str]) -> Iterator[NodeAddresses]:
    """Every node has two ends of each rail: of the link to the next node, and of the one that comes from the last."""
    count = len(hosts)
    for rank, host in enumerate(hosts):
        links = sorted((rank, (rank - 1) % count))
        ends = [_link_end(rail, link, rank, mtu, how, hosts) for rail in rails for link in links]
        yield NodeAddresses(host, rank, tuple(ends))


def _link_end(rail: Rail, link: int, rank: int, mtu: int, how: Cabling, hosts: Sequence[str]) -> RailEnd:
    """The end that `rank` has of a link; the lower address is that of the rank which the link is named after."""
    size = 2 ** (32 - how.link_prefix)
    first = IPNetwork(rail.subnet).first + link * size + (1 if size > 2 else 0)
    near, far = str(IPAddress(first)), str(IPAddress(first + 1))
    name, follower = f"{rail.name}.link{link}", hosts[(link + 1) % len(hosts)]
    if rank == link:
        return _end(name, "", near, how.link_prefix, mtu, {follower: far})
    return _end(name, "", far, how.link_prefix, mtu, {hosts[link]: near})


def _end(name: str, netdev: str, address: str, prefix: int, mtu: int, peers: Mapping[str, str]) -> RailEnd:
    return RailEnd(name, netdev, address, f"{address}/{prefix}", mtu, dict(peers))


def _mistake(what: str, remedy: str, host: str = ALL_NODES) -> Mistake:
    return Mistake(host, what, remedy)


def _rail_shape_mistakes(index: int, rail: object) -> Iterator[Mistake]:
    label = f"fabric_rails[{index}]"
    if not isinstance(rail, dict):
        yield _mistake(f"{label} is not a mapping", "give it a name and a subnet")
        return
    for key in ("name", "subnet"):
        value = rail.get(key)
        if not isinstance(value, str) or not value:
            yield _mistake(f"{label}.{key} is {value!r}", f"write {key} as text")
    if not isinstance(rail.get("netdev", ""), str | None):
        yield _mistake(f"{label}.netdev is {rail['netdev']!r}", "write netdev as text, or leave it out")


def _rail_mistakes(rails: Sequence[Rail], how: Cabling) -> Iterator[Mistake]:
    for rail in rails:
        yield from _pin_mistakes(rail, how)
    subnet_mistakes = [m for rail in rails for m in _subnet_mistakes(rail, NARROWEST[how.topology])]
    yield from subnet_mistakes
    for first, second in combinations(rails, 2):
        yield from _shared_key_mistakes(first, second)
        if not subnet_mistakes:
            yield from _overlap_mistakes(first, second)


def _pin_mistakes(rail: Rail, how: Cabling) -> Iterator[Mistake]:
    if rail.netdev and how.topology == RING:
        yield _mistake(
            f"{rail.name} has the netdev {rail.netdev}; limit: none in a ring, where a rail has two ends on each node",
            "remove netdev: the interface of each link is found by who answers on it",
        )
    elif rail.netdev and not NETDEV_NAME.fullmatch(rail.netdev):
        yield _mistake(
            f"{rail.name} has the netdev {rail.netdev!r}; limit: 15 characters without blank or slash",
            "write the name that `ip link` shows",
        )


def _subnet_mistakes(rail: Rail, narrowest: int) -> Iterator[Mistake]:
    label = f"{rail.name} has the subnet {rail.subnet}"
    try:
        network = IPNetwork(rail.subnet)
    except AddrFormatError:
        yield _mistake(f"{label}, which is no IPv4 subnet", "write it like 192.168.100.0/24")
        return
    if network.version != 4:
        yield _mistake(f"{label}, which is IPv{network.version}; limit: IPv4", "write it like 192.168.100.0/24")
    elif network.prefixlen > narrowest:
        yield _mistake(
            f"{label} without room for two nodes; limit: /{narrowest}", f"write a mask of /{narrowest} or wider"
        )
    elif network.ip != network.network:
        yield _mistake(f"{label}, which is the address of a host", f"write {network.cidr}")


def _shared_key_mistakes(first: Rail, second: Rail) -> Iterator[Mistake]:
    if first.name == second.name:
        yield _mistake(f"two rails are named {first.name}", "name the rails differently")
    if first.netdev and first.netdev == second.netdev:
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


def _room_mistakes(
    rails: Sequence[Rail], how: Cabling, host_offset: int, ranks: Mapping[str, int]
) -> Iterator[Mistake]:
    count = len(ranks)
    # That no topology joins so many nodes is said of the group, not of the topology.
    if _joins(SWITCH, count) and not _joins(how.topology, count):
        yield _mistake(
            f"fabric_topology is {how.topology} with {count} nodes; limit: {_span(*NODES[how.topology])}",
            f"set fabric_topology to {DIRECT if _joins(DIRECT, count) else RING} or {SWITCH}",
        )
    elif how.topology == RING:
        yield from _pool_mistakes(rails, how.link_prefix, count)
    else:
        yield from _range_mistakes(rails, host_offset, ranks)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _joins(topology: str, count: int) -> bool:
    low, high = NODES[topology]
    return low <= count <= high


def _pool_mistakes(rails: Sequence[Rail], link_prefix: int, count: int) -> Iterator[Mistake]:
    """A ring has as many links as nodes, and each link takes one subnet of the pool."""
    needed = link_prefix - (count - 1).bit_length()
    for rail in rails:
        room = IPNetwork(rail.subnet).size >> (32 - link_prefix)
        if room < count:
            yield _mistake(
                f"{rail.name} has the subnet {rail.subnet} with room for {room} links of /{link_prefix};"
                f" limit: {count} links for {count} nodes",
                f"write a mask of /{needed} or wider",
            )


def _range_mistakes(rails: Sequence[Rail], host_offset: int, ranks: Mapping[str, int]) -> Iterator[Mistake]:
    remedy = _offset_remedy(rails, max(ranks.values(), default=0))
    for host, rank in ranks.items():
        number = host_offset + rank
        for rail in rails:
            low, high = _host_numbers(rail)
            if not low <= number <= high:
                yield _mistake(
                    f"rank {rank} with fabric_host_offset {host_offset} is host number {number} of {rail.name}"
                    f" {rail.subnet}; limit: {low} to {high}",
                    remedy,
                    host,
                )
                break


def _host_numbers(rail: Rail) -> tuple[int, int]:
    """The first and the last number of a host: without the subnet's own name and its broadcast, which a /31 lacks."""
    network = IPNetwork(rail.subnet)
    return (0, 1) if network.prefixlen == 31 else (1, network.size - 2)


def _offset_remedy(rails: Sequence[Rail], last_rank: int) -> str:
    """What to do about the offset, which must leave room for every rank on every rail."""
    narrow = min(rails, key=lambda rail: IPNetwork(rail.subnet).size)
    low = max(_host_numbers(rail)[0] for rail in rails)
    high = _host_numbers(narrow)[1] - last_rank
    if high < low:
        return f"give {narrow.name} a wider subnet"
    return f"set fabric_host_offset to {_span(low, high)}"


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
