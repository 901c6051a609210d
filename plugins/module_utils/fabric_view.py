"""From the facts, intents and checks of all nodes to the picture of their fabric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .checks import Check, Cluster, Status
from .fabric_layout import SEVERITY
from .fabric_picture import Nodes, PictureCage, PictureNetdev, RailStatus, Statuses
from .facts import Fabric, device_of
from .intent import Intent
from .rails import Cage, cages, used_cages


def nodes_of(cluster: Cluster) -> Nodes:
    """Every node with its cages and their interfaces; a node whose fabric was not read has none."""
    fabrics: Mapping[str, Fabric] = {host: fabric for host, fabric, _ in cluster.having("fabric")}
    return {
        host: {"rank": intent.rank, "cages": _cages(fabrics[host], intent) if host in fabrics else []}
        for host, intent in cluster.intents.items()
    }


def rails_of(cluster: Cluster) -> list[str]:
    """The names of the rails, in their order; in a ring a rail is made of links that share its name."""
    return list(dict.fromkeys(rail_of(end.name) for intent in cluster.intents.values() for end in intent.rails))


def rail_of(name: str) -> str:
    """The rail that an end, or a check about it, belongs to: `rail0` of `rail0.link2`."""
    return name.partition(".")[0]


def statuses_of(checks: Iterable[Check]) -> Statuses:
    """How each node's end of each rail fares: the worst that a check of the fabric says of it, and the first reason."""
    found: dict[tuple[str, str], RailStatus] = {}
    for check in checks:
        if not check.id.startswith("fabric.") or not check.subject:
            continue
        key = (check.host, rail_of(check.subject))
        if key not in found or SEVERITY.index(check.status) < SEVERITY.index(found[key].status):
            found[key] = RailStatus(check.status, "" if check.status is Status.OK else check.fact)
    return found


def _cages(fabric: Fabric, intent: Intent) -> list[PictureCage]:
    """All cages of the node; the interfaces of a rail that lie in none of them are shown as one without a name."""
    known = cages(fabric)
    inside = {twin for cage in known for twin in cage.twins}
    others = [rail.netdev for rail in intent.rails if rail.netdev in fabric["netdevs"] and rail.netdev not in inside]
    shown = [_cage(cage, fabric, intent, cage in used_cages(fabric, intent)) for cage in known]
    if others:
        shown.append({"name": "-", "netdevs": [_netdev(name, fabric, intent) for name in others]})
    return shown


def _cage(cage: Cage, fabric: Fabric, intent: Intent, used: bool) -> PictureCage:
    name = cage.name if used else f"{cage.name} {cage.cable}"
    return {"name": name, "netdevs": [_netdev(twin, fabric, intent) for twin in cage.twins]}


def _netdev(name: str, fabric: Fabric, intent: Intent) -> PictureNetdev:
    link, device = fabric["netdevs"][name], device_of(fabric, name)
    return {
        "netdev": name,
        "device": device[0] if device else None,
        "rail": next((rail_of(rail.name) for rail in intent.rails if rail.netdev == name), None),
        "address": ", ".join(link["addresses"]) or None,
        "mtu": link["mtu"],
        "speed": link["speed"],
        "state": device[1]["port"]["state"] if device else link["operstate"],
    }
