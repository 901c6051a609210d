"""Questions to the other machines on the wire: pings to peers, who is on a link, who claims an address.

Each waits for about a second, all of them at once, and none leaves a trace on the node or elsewhere.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from select import select
from typing import TypedDict

from .arp import ETHERTYPE, probe, sender
from .facts import Netdev, RdmaDevice
from .machine import Machine, together

# Seconds that one ping may take, and how many are sent: the first one may be lost to address resolution.
PING_SECONDS = 1
PING_COUNT = 3

# Seconds between probes, and how many: a lost one is repeated. RFC 5227 has 1 to 2 s, for machines that start at once.
ARP_GAP = 0.3
ARP_COUNT = 3

# All nodes on a link, RFC 4291 section 2.7.1.
ALL_NODES = "ff02::1"

# The exit status with which ping says that it sent and nobody answered (ping(8)); a higher one is that it could not.
SILENT = 1


class Ping(TypedDict):
    """A ping of `size` bytes of payload from the interface that has the own `address` to `peer`."""

    address: str
    peer: str
    size: int


class Arp(TypedDict):
    """An address to ask for, from the interface that has it or else from `netdev`, or else from all that may be it."""

    netdev: str | None
    address: str


@dataclass(frozen=True)
class Probes:
    """What to ask; by itself nothing. `neighbours` asks on every interface that has a RDMA device."""

    pings: Sequence[Ping] = ()
    neighbours: bool = False
    arp: Sequence[Arp] = ()


class Answers(TypedDict):
    """What came back, in the words of `facts.Fabric`."""

    pings: dict[str, bool]
    neighbours: dict[str, list[str]]
    macs: dict[str, list[str]]


def ask(machine: Machine, probes: Probes, netdevs: Mapping[str, Netdev], devices: Mapping[str, RdmaDevice]) -> Answers:
    """Ask everything at once."""
    wires = sorted({device["netdev"] for device in devices.values() if device["netdev"]}.intersection(netdevs))
    with ThreadPoolExecutor() as pool:
        pings = pool.submit(ping_all, machine, probes.pings, netdevs)
        others = pool.submit(neighbours, machine, wires if probes.neighbours else (), netdevs)
        macs = pool.submit(claims, probes.arp, wires, netdevs)
    return {"pings": pings.result(), "neighbours": others.result(), "macs": macs.result()}


def ping_all(machine: Machine, pings: Sequence[Ping], netdevs: Mapping[str, Netdev]) -> dict[str, bool]:
    """Send every ping, unfragmented and bound to its interface; {`own address, peer's address`: answered}.

    Without an interface that has the address, or without a ping command, nobody answers.
    """
    owners = {ping["address"]: _owner(ping["address"], netdevs) for ping in pings}
    sent = [(ping, owner) for ping in pings if (owner := owners[ping["address"]])]
    done = machine.run_all([_ping_argv(ping, owner) for ping, owner in sent])
    answered = {_key(ping): found.returncode == 0 for (ping, _), found in zip(sent, done, strict=True)}
    return {_key(ping): answered.get(_key(ping), False) for ping in pings}


def neighbours(machine: Machine, wires: Sequence[str], netdevs: Mapping[str, Netdev]) -> dict[str, list[str]]:
    """The fe80 addresses of others that answer on each interface; one on which nobody could be asked is left out."""
    own = {link["link_local"] for link in netdevs.values()}
    done = machine.run_all([_all_nodes_argv(name) for name in wires])
    asked = ((name, ping.stdout) for name, ping in zip(wires, done, strict=True) if ping.returncode <= SILENT)
    return {name: sorted(set(re.findall(r"from (fe80:[0-9a-f:]+)%", text)) - own) for name, text in asked}


def claims(wanted: Sequence[Arp], wires: Sequence[str], netdevs: Mapping[str, Netdev]) -> dict[str, list[str]]:
    """The MAC addresses of others that claim an address, {`netdev address`: MACs}.

    An address that nobody has here yet is asked for on all `wires`. What could not be asked is left out: no interface
    is up for it, or the account may not send frames.
    """
    asked = [(name, wish["address"]) for wish in wanted for name in _ways_out(wish, wires, netdevs)]
    found = together([partial(heard, name, probe(netdevs[name]["mac"], address)) for name, address in asked])
    # Linux answers for any address of its own on any of its interfaces, so a twin on the same switch answers too.
    own = {link["mac"] for link in netdevs.values()}
    return {
        f"{name} {address}": sorted({mac for mac, claimed in senders if claimed == address} - own)
        for (name, address), senders in zip(asked, found, strict=True)
        if senders is not None
    }


def heard(netdev: str, frame: bytes) -> list[tuple[str, str]] | None:
    """Send a probe; MAC and IPv4 address of everyone heard meanwhile, or None when nothing could be sent."""
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as wire:
            wire.bind((netdev, ETHERTYPE))
            return [found for received in exchange(wire, frame) if (found := sender(received))]
    except OSError:
        return None


def exchange(wire: socket.socket, frame: bytes) -> Iterator[bytes]:
    """Send a frame ARP_COUNT times and give whatever comes in, for ARP_COUNT times ARP_GAP seconds and no longer."""
    for _ in range(ARP_COUNT):
        wire.send(frame)
        until = time.monotonic() + ARP_GAP
        while (left := until - time.monotonic()) > 0:
            if select([wire], [], [], left)[0]:
                yield wire.recv(2048)


def _owner(address: str, netdevs: Mapping[str, Netdev]) -> str | None:
    return next((name for name, link in netdevs.items() if address in _plain(link)), None)


def _plain(link: Netdev) -> list[str]:
    return [address.split("/")[0] for address in link["addresses"]]


def _ways_out(wanted: Arp, wires: Sequence[str], netdevs: Mapping[str, Netdev]) -> list[str]:
    name = _owner(wanted["address"], netdevs) or wanted["netdev"]
    return [name for name in ([name] if name else wires) if name in netdevs and netdevs[name]["carrier"]]


def _key(ping: Ping) -> str:
    return f"{ping['address']} {ping['peer']}"


def _ping_argv(ping: Ping, netdev: str) -> list[str]:
    pace = ["-c", str(PING_COUNT), "-i", "0.2", "-W", str(PING_SECONDS)]
    return ["ping", "-n", "-q", "-M", "do", "-s", str(ping["size"]), *pace, "-I", netdev, ping["peer"]]


def _all_nodes_argv(netdev: str) -> list[str]:
    # The node answers itself at once, so the pace is what leaves the others time.
    return ["ping", "-6", "-n", "-c", str(PING_COUNT), "-i", "0.3", "-W", str(PING_SECONDS), "-I", netdev, ALL_NODES]
