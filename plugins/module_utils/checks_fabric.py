"""Checks of the rails: the devices, the addresses, the GIDs, and the path between every two nodes."""

from __future__ import annotations

from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, rule
from .facts import default_routes, device_of, engine_runs, gid_rows
from .gids import find_ipv4, summary
from .names import NETPLAN_FILE
from .netplan import rails_as_planned, render_netplan
from .rails import addresses_of

APPLY = "run playbooks/stop.yml if it serves, then site.yml, which applies netplan"


@rule(
    "fabric.rdma", "A RDMA device sits on the interface of every rail.", Stage.PREFLIGHT, Stage.LAUNCH, needs="fabric"
)
def rdma(cluster: Cluster) -> Iterator[Check]:
    """Without one NCCL has nothing to use on that rail."""
    for host, fabric, _, rail in cluster.rail_ends():
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
    for host, fabric, intent, rail in cluster.rail_ends():
        addresses = addresses_of(fabric, rail.netdev)
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
    for host, fabric, _, rail in cluster.rail_ends():
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
    for host, fabric, _, rail in cluster.rail_ends():
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
    for host, _, intent, rail in cluster.rail_ends():
        # Between the node's own rails netplan moves an address.
        own = {(host, end.netdev) for end in intent.rails}
        takers = [f"{name} of {h}" for a, h, name in used if a == rail.address and (h, name) not in own]
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
    for host, fabric, _, rail in cluster.rail_ends():
        found = fabric["netdevs"].get(rail.netdev, {"addresses": []})["addresses"]
        yield Check(
            "fabric.address",
            host,
            Status.OK if found == [rail.cidr] else Status.REFUSE,
            f"{rail.netdev} has {', '.join(found) or 'no address'}",
            f"{rail.cidr} alone",
            APPLY,
            subject=rail.name,
        )


@rule("fabric.mtu", "Every rail has the planned MTU.", Stage.FABRIC, Stage.LAUNCH, needs="fabric")
def mtu(cluster: Cluster) -> Iterator[Check]:
    """Firmware updates reset a twin to 1500; unequal ends lose the large frames only."""
    for host, fabric, _, rail in cluster.rail_ends():
        found = fabric["netdevs"].get(rail.netdev, {"mtu": 0})["mtu"]
        yield Check(
            "fabric.mtu",
            host,
            Status.OK if found == rail.mtu else Status.REFUSE,
            f"the MTU of {rail.netdev} is {found}",
            str(rail.mtu),
            APPLY,
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
    for host, fabric, _, rail in cluster.rail_ends():
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
    for host, fabric, _, rail in cluster.rail_ends():
        silent = [peer for peer, far in rail.peers.items() if not fabric["pings"].get(f"{rail.address} {far}")]
        count = len(rail.peers)
        yield Check(
            "fabric.path",
            host,
            Status.REFUSE if silent else Status.OK,
            f"{count - len(silent)} of {count} peers answer on {rail.netdev} with {rail.mtu} bytes"
            + (f", not {', '.join(silent)}" if silent else ""),
            "all peers",
            "set the same MTU on both ends and on the switch",
            subject=rail.name,
        )
