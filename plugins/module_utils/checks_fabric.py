"""Checks of the rails: the devices, the addresses, the GIDs, and the path between every two nodes."""

from __future__ import annotations

from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, rule
from .facts import Fabric, default_routes, device_of, engine_runs, gid_rows
from .gids import find_ipv4, summary
from .intent import Intent, RailEnd
from .names import NETPLAN_FILE
from .netplan import rails_as_planned, render_netplan


def _ends(cluster: Cluster) -> Iterator[tuple[str, Fabric, Intent, RailEnd]]:
    for host, fabric, intent in cluster.having("fabric"):
        for rail in intent.rails:
            yield host, fabric, intent, rail


def _plain_addresses(fabric: Fabric, netdev: str) -> list[str]:
    device = fabric["netdevs"].get(netdev)
    return [address.split("/")[0] for address in device["addresses"]] if device else []


@rule("fabric.netdev", "The interface of every rail is there.", Stage.PREFLIGHT, needs="fabric")
def netdev(cluster: Cluster) -> Iterator[Check]:
    """A renamed or missing interface is found before netplan is told about it."""
    for host, fabric, _, rail in _ends(cluster):
        there = rail.netdev in fabric["netdevs"]
        others = ", ".join(name for name in sorted(fabric["netdevs"]) if name != "lo")
        yield Check(
            "fabric.netdev",
            host,
            Status.OK if there else Status.REFUSE,
            f"{rail.netdev} is there" if there else f"there is no interface {rail.netdev}, only {others}",
            f"the interface of {rail.name}",
            "correct fabric_rails",
            subject=rail.name,
        )


@rule(
    "fabric.rdma", "A RDMA device sits on the interface of every rail.", Stage.PREFLIGHT, Stage.LAUNCH, needs="fabric"
)
def rdma(cluster: Cluster) -> Iterator[Check]:
    """Without one NCCL has nothing to use on that rail."""
    for host, fabric, _, rail in _ends(cluster):
        found = device_of(fabric, rail.netdev)
        known = ", ".join(f"{name} on {d['netdev']}" for name, d in sorted(fabric["rdma"].items())) or "none"
        yield Check(
            "fabric.rdma",
            host,
            Status.OK if found else Status.REFUSE,
            f"{found[0]} is on {rail.netdev}" if found else f"{rail.netdev} has no RDMA device; devices: {known}",
            "one for each rail",
            "check the cable and `rdma link show`",
            subject=rail.name,
        )


@rule("fabric.management", "No rail carries the connection that Ansible uses.", Stage.PREFLIGHT, needs="fabric")
def management(cluster: Cluster) -> Iterator[Check]:
    """Configuring that interface would cut the branch that the play sits on."""
    for host, fabric, intent, rail in _ends(cluster):
        addresses = _plain_addresses(fabric, rail.netdev)
        carries = intent.management in addresses
        yield Check(
            "fabric.management",
            host,
            Status.REFUSE if carries else Status.OK,
            f"{rail.netdev} has {', '.join(addresses) or 'no address'}",
            f"not {intent.management}, by which the node is managed",
            "manage the node over another interface, or choose another rail",
            subject=rail.name,
        )


@rule("fabric.default-route", "No default route leaves through a rail.", Stage.PREFLIGHT, Stage.FABRIC, needs="fabric")
def default_route(cluster: Cluster) -> Iterator[Check]:
    """A default route on a rail sends the node's other traffic into the fabric."""
    for host, fabric, _, rail in _ends(cluster):
        routes = default_routes(fabric)
        routed = rail.netdev in routes
        yield Check(
            "fabric.default-route",
            host,
            Status.REFUSE if routed else Status.OK,
            f"the default route leaves through {', '.join(routes) or 'no interface'}",
            f"not {rail.netdev}",
            f"remove the gateway of {rail.netdev} from netplan or NetworkManager",
            subject=rail.name,
        )


@rule(
    "fabric.netplan",
    "No other netplan file names the interface of a rail.",
    Stage.PREFLIGHT,
    Stage.FABRIC,
    needs="fabric",
)
def netplan(cluster: Cluster) -> Iterator[Check]:
    """Netplan merges lists across files, so a second file adds its addresses to ours."""
    for host, fabric, _, rail in _ends(cluster):
        others = [file for file, names in fabric["netplan"].items() if rail.netdev in names and file != NETPLAN_FILE]
        yield Check(
            "fabric.netplan",
            host,
            Status.REFUSE if others else Status.OK,
            f"{rail.netdev} is named by {', '.join(others) or 'no other file'}",
            f"{NETPLAN_FILE} alone",
            f"remove {rail.netdev} from {', '.join(others)}",
            subject=rail.name,
        )


@rule(
    "fabric.address-taken",
    "No planned rail address is in use on another interface.",
    Stage.PREFLIGHT,
    Stage.FABRIC,
    needs="fabric",
)
def address_taken(cluster: Cluster) -> Iterator[Check]:
    """One address twice makes a fabric that works for some pairs of nodes only."""
    used = [
        (address.split("/")[0], host, name)
        for host, fabric, _ in cluster.having("fabric")
        for name, device in fabric["netdevs"].items()
        for address in device["addresses"]
    ]
    for host, _, _, rail in _ends(cluster):
        takers = [f"{name} of {h}" for a, h, name in used if a == rail.address and (h, name) != (host, rail.netdev)]
        yield Check(
            "fabric.address-taken",
            host,
            Status.REFUSE if takers else Status.OK,
            f"{rail.address} is used by {', '.join(takers) or 'no one else'}",
            f"only {rail.netdev} of {host}",
            "remove the address there, or choose another subnet for the rail",
            subject=rail.name,
        )


@rule("fabric.address", "Every rail has its planned address.", Stage.FABRIC, Stage.LAUNCH, needs="fabric")
def address(cluster: Cluster) -> Iterator[Check]:
    """The address must be there, and be the only one."""
    for host, fabric, _, rail in _ends(cluster):
        found = fabric["netdevs"].get(rail.netdev, {"addresses": []})["addresses"]
        yield Check(
            "fabric.address",
            host,
            Status.OK if found == [rail.cidr] else Status.REFUSE,
            f"{rail.netdev} has {', '.join(found) or 'no address'}",
            f"{rail.cidr} alone",
            "run playbooks/stop.yml if it serves, then site.yml, which applies netplan",
            subject=rail.name,
        )


@rule("fabric.mtu", "Every rail has the planned MTU.", Stage.FABRIC, Stage.LAUNCH, needs="fabric")
def mtu(cluster: Cluster) -> Iterator[Check]:
    """Firmware updates reset a twin to 1500; unequal ends lose the large frames only."""
    for host, fabric, _, rail in _ends(cluster):
        found = fabric["netdevs"].get(rail.netdev, {"mtu": 0})["mtu"]
        yield Check(
            "fabric.mtu",
            host,
            Status.OK if found == rail.mtu else Status.REFUSE,
            f"the MTU of {rail.netdev} is {found}",
            str(rail.mtu),
            "run playbooks/stop.yml if it serves, then site.yml, which applies netplan",
            subject=rail.name,
        )


@rule(
    "fabric.gid",
    "Every rail's device is ACTIVE and has a RoCE v2 GID of its address.",
    Stage.FABRIC,
    Stage.LAUNCH,
    needs="fabric",
)
def gid(cluster: Cluster) -> Iterator[Check]:
    """A missing row hangs the launch after the load, with `remote GID ::` in the log."""
    for host, fabric, _, rail in _ends(cluster):
        found = device_of(fabric, rail.netdev)
        if found is None:
            continue
        name, device = found
        rows, state = gid_rows(device["port"]), device["port"]["state"]
        row = find_ipv4(rows, rail.address)
        good = row is not None and state == "ACTIVE"
        yield Check(
            "fabric.gid",
            host,
            Status.OK if good else Status.REFUSE,
            f"{name} is {state} with {summary(rows)}",
            f"ACTIVE with RoCE v2 {rail.address}",
            f"check the cable of {rail.netdev}, then `netplan apply`",
            subject=rail.name,
        )


@rule("fabric.serving", "Netplan stays as it is while the engine serves.", Stage.PREFLIGHT, needs="fabric")
def serving(cluster: Cluster) -> Iterator[Check]:
    """Applying netplan takes the rails down for a moment, which ends the launch of every rank."""
    for host, fabric, intent in cluster.having("fabric"):
        right = fabric["own_netplan"] == render_netplan(intent.rails) and rails_as_planned(fabric, intent.rails)
        blocked = not right and engine_runs(cluster.facts[host])
        yield Check(
            "fabric.serving",
            host,
            Status.REFUSE if blocked else Status.OK,
            f"the rails or {NETPLAN_FILE} are not as planned" if blocked else "no netplan apply is due",
            "no netplan apply while the engine serves",
            "run playbooks/stop.yml, then site.yml",
        )


@rule("fabric.path", "Frames of full MTU pass unfragmented to every peer on every rail.", Stage.FABRIC, needs="fabric")
def path(cluster: Cluster) -> Iterator[Check]:
    """A switch or a peer with a smaller MTU is found by a ping that must not be split."""
    for host, fabric, intent in cluster.having("fabric"):
        for index, rail in enumerate(intent.rails):
            pings = {peer: fabric["pings"].get(f"{rail.address} {a[index]}") for peer, a in intent.peers.items()}
            silent = [peer for peer, answered in pings.items() if not answered]
            yield Check(
                "fabric.path",
                host,
                Status.REFUSE if silent else Status.OK,
                f"{len(pings) - len(silent)} of {len(pings)} peers answer on {rail.netdev} with {rail.mtu} bytes"
                + (f", not {', '.join(silent)}" if silent else ""),
                "all peers",
                "set the same MTU on both ends and on the switch",
                subject=rail.name,
            )
