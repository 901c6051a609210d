"""A healthy fabric of 2 to 8 Sparks in the shape that the pictures are made from."""

from __future__ import annotations

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Status
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_picture import RailStatus

# The longest names that a Spark has.
TWINS = {
    "p0": (("enp1s0f0np0", "rocep1s0f0"), ("enP2p1s0f0np0", "roceP2p1s0f0")),
    "p1": (("enp1s0f1np1", "rocep1s0f1"), ("enP2p1s0f1np1", "roceP2p1s0f1")),
}
RAILS = ["rail0", "rail1"]
RING_RAILS = ["rail0", "rail1", "rail2", "rail3"]


def example(count, rails=RAILS):
    """Nodes and statuses; two rails use the twins of cage p0, four those of both cages."""
    nodes = {f"spark{rank + 1}": {"rank": rank, "cages": _cages(rank, rails)} for rank in range(count)}
    return nodes, {(host, rail): RailStatus(Status.OK) for host in nodes for rail in rails}


def refuse(reason):
    return RailStatus(Status.REFUSE, reason)


def netdev_of(nodes, host, name):
    """One interface of a node, to be changed."""
    (found,) = [n for cage in nodes[host]["cages"] for n in cage["netdevs"] if n["netdev"] == name]
    return found


def _cages(rank, rails):
    free = iter(rails)
    return [
        {"name": cage, "netdevs": [_netdev(*twin, rank, next(free, None)) for twin in twins]}
        for cage, twins in TWINS.items()
    ]


def _netdev(name, device, rank, rail):
    names = {"netdev": name, "device": device, "rail": rail}
    if rail is None:
        return {**names, "address": None, "mtu": 1500, "speed": -1, "state": "DOWN"}
    address = f"192.168.{100 + int(rail[-1])}.{100 + rank}/24"
    return {**names, "address": address, "mtu": 9000, "speed": 200_000, "state": "UP"}
