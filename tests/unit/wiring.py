"""Sparks with both cages, joined by any cables: the facts that they show, and what each is meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from builders import intent, netdev, node_facts, rdma_device

from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import Cabling, Rail, make_plan
from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import Intent, RailEnd

# Cage to the names of its twins, as udev and the kernel give them: PCI domain 0 before PCI domain 2.
NETDEVS = {"p0": ("enp1s0f0np0", "enP2p1s0f0np0"), "p1": ("enp1s0f1np1", "enP2p1s0f1np1")}
DEVICES = {"p0": ("rocep1s0f0", "roceP2p1s0f0"), "p1": ("rocep1s0f1", "roceP2p1s0f1")}
DOMAINS = ("0000", "0002")
POOLS = [Rail("rail0", "192.168.100.0/24"), Rail("rail1", "192.168.101.0/24")]

# One end of a cable: a node's number from 1, and its cage.
End = tuple[int, str]


def planned(count: int = 2, topology: str = "switch", rails: Iterable[Rail] = POOLS, **changes) -> dict[str, Intent]:
    """The intents of spark1 to spark<count>, before anyone has looked for interfaces."""
    ranks = {f"spark{n + 1}": n for n in range(count)}
    managed = {host: f"10.0.0.{11 + rank}" for host, rank in ranks.items()}
    plan = make_plan(list(rails), 9000, 10, ranks, managed, Cabling(topology))
    return {node.host: _intent(node.host, node.rank, count, topology, node.rails, changes) for node in plan.nodes}


def _intent(host: str, rank: int, count: int, topology: str, ends: tuple[RailEnd, ...], changes: dict) -> Intent:
    sockets = ("", f"10.0.0.{11 + rank}") if topology == "ring" else (ends[0].netdev, ends[0].address)
    whole = intent(rank, count, rails=ends, topology=topology, socket_netdev=sockets[0], socket_address=sockets[1])
    return replace(whole, **changes.get(host, {}))


def link_local(number: int, cage: str, twin: int) -> str:
    """The fe80 address of one interface of spark<number>."""
    return f"fe80::{number}:{cage[1]}{twin}"


def spark(number: int, **cages: str | None) -> dict:
    """The facts of spark<number>: its cages are cabled, dark or asleep; one that is None shows no device.

    `p0="cabled"` and the like; a cage that is not named is dark.
    """
    facts = node_facts(number - 1)
    fabric = facts["fabric"]
    fabric["netdevs"] = {name: fabric["netdevs"][name] for name in ("lo", "enP7s7")}
    fabric["rdma"] = {}
    for cage, state in {"p0": "dark", "p1": "dark", **cages}.items():
        for twin in range(2) if state else ():
            add_twin(fabric, number, cage, twin, str(state))
    return facts


def add_twin(fabric: dict, number: int, cage: str, twin: int, state: str) -> None:
    """One interface with its RDMA device, without an address."""
    name = NETDEVS[cage][twin]
    pci = {"address": f"{DOMAINS[twin]}:01:00.{cage[1]}", "speed": 32.0, "max_speed": 32.0, "width": 4, "max_width": 4}
    carrier = {"cabled": True, "dark": False, "asleep": None}[state]
    local = link_local(number, cage, twin) if carrier else None
    fabric["netdevs"][name] = netdev(mtu=9000, carrier=carrier, phys_port_name=cage, pci=pci, link_local=local)
    device = rdma_device(RailEnd("", name, "192.168.1.1", "", 9000))
    device["port"] |= {"state": "ACTIVE" if state == "cabled" else "DOWN", "gids": []}
    fabric["rdma"][DEVICES[cage][twin]] = device


def joined(count: int, *cables: tuple[End, End]) -> dict[str, dict]:
    """The facts of nodes whose cables were asked for who is at the other end; all other cages are dark."""
    ends = {end for cable in cables for end in cable}
    facts = {
        f"spark{n}": spark(n, **{cage: "cabled" for cage in NETDEVS if (n, cage) in ends}) for n in range(1, count + 1)
    }
    for one, other in cables:
        for (number, cage), (far, far_cage) in ((one, other), (other, one)):
            seen = facts[f"spark{number}"]["fabric"]["neighbours"]
            for name in NETDEVS[cage]:
                seen[name] = [link_local(far, far_cage, twin) for twin in range(2)]
    return facts


def address(facts: dict, name: str, *cidrs: str) -> dict:
    """Give addresses to an interface of a node."""
    facts["fabric"]["netdevs"][name]["addresses"] += cidrs
    return facts


def rename(facts: dict, **names: str) -> dict:
    """Rename interfaces: `enp1s0f0np0="eth2"`."""
    fabric = facts["fabric"]
    fabric["netdevs"] = {names.get(name, name): link for name, link in fabric["netdevs"].items()}
    for device in fabric["rdma"].values():
        device["netdev"] = names.get(device["netdev"], device["netdev"])
    return facts
