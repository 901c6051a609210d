"""The NCCL environment of one node at this moment, from its own RDMA devices, and the file that carries it.

No GID index is ever written: it moves. NCCL (2.21 and later) picks the row itself for each device when the version and
address family are named and the index is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .facts import Fabric, device_of
from .intent import RailEnd

# A user's value for one of these is known to hang or to slow down every launch on a Spark: name and reason.
FORBIDDEN = {
    "NCCL_IB_DISABLE": "RoCE runs through NCCL's IB code, and without it the fabric drops to TCP",
    "NCCL_IB_GID_INDEX": "the index moves after link and netplan events, and a pinned one hangs after the load",
}


class NcclEnvError(ValueError):
    """The environment cannot be right; the text is one plain line without the host."""


def forbidden(tunables: Mapping[str, object]) -> list[tuple[str, str]]:
    """What must not be set, as pairs of mistake and remedy."""
    return [
        (f"{name}={tunables[name]} is set; limit: unset, {reason}", f"remove {name}")
        for name, reason in FORBIDDEN.items()
        if name in tunables
    ]


def nccl_env(rails: Sequence[RailEnd], fabric: Fabric, tunables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node whose rails are `rails`, in the order of the rails; `tunables` come from the profile.

    Raises NcclEnvError when a rail has no RDMA device, or a tunable is one that breaks every launch.
    """
    for what, remedy in forbidden(tunables):
        raise NcclEnvError(f"{what}; remedy: {remedy}")
    devices = [_device(rail, fabric) for rail in rails]
    netdevs = [rail.netdev for rail in rails]
    listed = ",".join(netdevs)
    return {
        "NCCL_NET": "IB",
        # `=` asks for exact names; without it NCCL matches by prefix. In the file this line shows two equal signs.
        "NCCL_IB_HCA": "=" + ",".join(devices),
        "NCCL_IB_ROCE_VERSION_NUM": "2",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
        "NCCL_SOCKET_IFNAME": listed,
        # Gloo takes one interface, and without a name follows the host name to the LAN.
        "GLOO_SOCKET_IFNAME": netdevs[0],
        "TP_SOCKET_IFNAME": netdevs[0],
        "UCX_NET_DEVICES": ",".join(f"{device}:1" for device in devices),
        "OMPI_MCA_btl_tcp_if_include": listed,
        "VLLM_HOST_IP": rails[0].address,
        **tunables,
    }


def env_file(environment: Mapping[str, str]) -> str:
    """A file for `docker run --env-file`: NAME=value, taken literally, without quotes.

    Raises ValueError for what such a file cannot carry.
    """
    for name, value in environment.items():
        if "\n" in value or "=" in name:
            raise ValueError(f"{name} cannot be written to an environment file")
    return "".join(f"{name}={value}\n" for name, value in environment.items())


def _device(rail: RailEnd, fabric: Fabric) -> str:
    found = device_of(fabric, rail.netdev)
    if found is None:
        raise NcclEnvError(
            f"{rail.netdev} has no RDMA device; limit: one for each rail; remedy: check `rdma link show`"
        )
    return found[0]
