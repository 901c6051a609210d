"""Checks of what NCCL will make of its environment on each node: the devices, the interfaces, a pinned GID index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .checks import Check, Cluster, Stage, Status, rule
from .facts import Fabric, device_of, gid_rows
from .gids import Gid, GidKind, classify, ipv4_of, summary
from .intent import Intent
from .names import NCCL_ENV_FILE
from .nccl_env import (
    NcclEnvError,
    env_file,
    nccl_env,
    nccl_select,
    nccl_select_sockets,
    parse_env_file,
    pinned_gid,
    rail_devices,
)
from .rails import addresses_of


@rule(
    "fabric.gid-index",
    "A GID index that the profile pins is the right row of every rail, on every node, now.",
    Stage.PREFLIGHT,
    Stage.FABRIC,
    Stage.LAUNCH,
    needs="fabric",
)
def gid_index(cluster: Cluster) -> Iterator[Check]:
    """A pinned index that points elsewhere, or to a hole, hangs after the load; without one NCCL finds the row."""
    for host, fabric, intent, rail in cluster.rail_ends():
        index, found = pinned_gid(intent.nccl_env), device_of(fabric, rail.netdev)
        # A rail that has no address yet has no row yet either.
        if index is None or found is None or rail.address not in addresses_of(fabric, rail.netdev):
            continue
        name, device = found
        row = next((row for row in gid_rows(device["port"]) if row.index == index), None)
        right = row is not None and classify(row) is GidKind.ROCE_V2_IPV4 and ipv4_of(row.gid) == rail.address
        yield Check(
            "fabric.gid-index",
            host,
            Status.WARN if right else Status.REFUSE,
            f"NCCL_IB_GID_INDEX={index} is {f'RoCE v2 {rail.address}' if right else _shown(row)} of {name} now",
            f"RoCE v2 {rail.address} of every rail on every node; the row moves after link and netplan events",
            "remove NCCL_IB_GID_INDEX from the profile's nccl_env: NCCL then finds the row itself",
            subject=rail.name,
        )


def _shown(row: Gid | None) -> str:
    """What a row that is the wrong one is."""
    return summary([row]) if row else "a hole"


@rule(
    "fabric.nccl-env",
    "The NCCL environment on the node is the one for its rails as they are now.",
    Stage.FABRIC,
    Stage.LAUNCH,
    needs="fabric",
)
def nccl_environment(cluster: Cluster) -> Iterator[Check]:
    """A device that was renamed, moved or went down since the file was written makes NCCL hang or drop to TCP."""
    for host, fabric, intent in cluster.having("fabric"):
        try:
            wanted, intended = rail_devices(intent, fabric), nccl_env(intent, fabric)
        except NcclEnvError:
            # The checks of the rail and of its RDMA device say what is missing.
            continue
        faults = (
            _written_fault(fabric["nccl_env"], intended),
            _devices_fault(fabric, intent, intended, wanted),
            _sockets_fault(fabric, intent, intended),
        )
        fact, remedy = next((fault for fault in faults if fault), (f"{NCCL_ENV_FILE} selects {', '.join(wanted)}", ""))
        yield Check(
            "fabric.nccl-env",
            host,
            Status.REFUSE if remedy else Status.OK,
            fact,
            f"what the inventory asks for, with {', '.join(wanted)}, the devices of the rails",
            remedy,
        )


# What is wrong and its remedy.
Fault = tuple[str, str]


def _written_fault(text: str | None, intended: Mapping[str, str]) -> Fault | None:
    """What the file on the node says otherwise."""
    if text == env_file(intended):
        return None
    if text is None:
        return f"{NCCL_ENV_FILE} is not there", "run site.yml, which writes it"
    found = parse_env_file(text)
    other = sorted(name for name in found.keys() | intended.keys() if found.get(name) != intended.get(name))
    devices = found.get("NCCL_IB_HCA", "").lstrip("^=") or "every device"
    fact = f"{NCCL_ENV_FILE} names {devices} and differs in {', '.join(other) or 'its form'}"
    return fact, "run playbooks/stop.yml if it serves, then site.yml, which writes it"


def _devices_fault(fabric: Fabric, intent: Intent, intended: Mapping[str, str], wanted: list[str]) -> Fault | None:
    """What NCCL would use instead of the rails' devices."""
    value = intended["NCCL_IB_HCA"]
    try:
        chosen = nccl_select(value, fabric)
    except NcclEnvError as error:
        return f"NCCL_IB_HCA={value}: {error}", "correct NCCL_IB_HCA in the profile's nccl_env, or remove it"
    if set(chosen) == set(wanted):
        return None
    fact = f"NCCL_IB_HCA={value} selects {', '.join(chosen) or 'no ACTIVE device'}"
    if "NCCL_IB_HCA" in intent.nccl_env:
        return fact, "remove NCCL_IB_HCA from the profile's nccl_env: each node then names its own devices"
    return fact, "check the cables and `rdma link show`"


def _sockets_fault(fabric: Fabric, intent: Intent, intended: Mapping[str, str]) -> Fault | None:
    """What NCCL's bootstrap would use instead of the interfaces by which all nodes reach each other."""
    value = intended["NCCL_SOCKET_IFNAME"]
    remedy = "correct NCCL_SOCKET_IFNAME in the profile's nccl_env, or remove it"
    try:
        chosen = set(nccl_select_sockets(value, fabric))
    except NcclEnvError as error:
        return f"NCCL_SOCKET_IFNAME={value}: {error}", remedy
    managed = {name for name in fabric["netdevs"] if intent.management in addresses_of(fabric, name)}
    shared = [managed] if intent.topology == "ring" else [managed, {rail.netdev for rail in intent.rails}]
    if chosen and any(chosen <= netdevs for netdevs in shared):
        return None
    reach = " or ".join(", ".join(sorted(netdevs)) or intent.management for netdevs in shared)
    return f"NCCL_SOCKET_IFNAME={value} selects {', '.join(sorted(chosen)) or 'no interface'}, not {reach}", remedy
