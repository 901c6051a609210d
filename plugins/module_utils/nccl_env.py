"""The NCCL environment of one node at this moment, from its own RDMA devices, and the file that carries it.

No GID index is ever written by us: it moves. NCCL (2.21 and later) picks the row itself for each device when the
version and address family are named and the index is not.

What NCCL reads is read here as NCCL does (parseStringList and matchIfList of its src/misc/utils.cc, their callers in
src/transport/net_ib and src/misc/socket.cc), so that a value can be judged before a launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .facts import Fabric, Netdev, device_of
from .intent import Intent

# MAX_IB_DEVS and MAX_IFS of NCCL: further entries of a list, and further devices, are left out without a word.
MOST_DEVICES = 32
MOST_NETDEVS = 16

# Bytes. Docker reads its file with Go's bufio.Scanner, whose longest line with its end is 64 KiB.
LONGEST_LINE = 65_535


class NcclEnvError(ValueError):
    """The environment cannot be right; the text is one plain line without the host."""


# --- what is written ------------------------------------------------------------------------------------------------


def nccl_env(intent: Intent, fabric: Fabric) -> dict[str, str]:
    """The environment of a node whose rails were found, in the order of the rails; the profile's variables come last.

    Raises NcclEnvError when a rail was not found or has no RDMA device.
    """
    devices = rail_devices(intent, fabric)
    if not intent.socket_netdev:
        raise NcclEnvError(f"no interface has {intent.socket_address}; limit: one for what speaks TCP")
    ring = intent.topology == "ring"
    sockets = [intent.socket_netdev] if ring else [rail.netdev for rail in intent.rails]
    return {
        "NCCL_NET": "IB",
        # `=` asks for exact names; without it NCCL matches by prefix. In the file this line shows two equal signs.
        "NCCL_IB_HCA": _exactly(devices),
        "NCCL_IB_ROCE_VERSION_NUM": "2",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
        "NCCL_SOCKET_IFNAME": _socket_names(sockets, fabric),
        # Gloo takes one interface, and without a name follows the host name to the LAN.
        "GLOO_SOCKET_IFNAME": intent.socket_netdev,
        "TP_SOCKET_IFNAME": intent.socket_netdev,
        "UCX_NET_DEVICES": ",".join(f"{device}:1" for device in devices),
        "OMPI_MCA_btl_tcp_if_include": ",".join(sockets),
        "VLLM_HOST_IP": intent.socket_address,
        **(ring_variables(intent.rails[0].subnet.prefixlen) if ring else {}),
        **intent.nccl_env,
    }


def ring_variables(link_prefix: int) -> dict[str, str]:
    """What NCCL needs where a node's ports lead to different nodes; `link_prefix` is the mask of one link.

    NCCL then takes the device that shares a subnet with the peer. It compares /24 unless told otherwise, which would
    make all links of a small pool look alike (src/transport/net_ib/connect.cc, NCCL 2.30.7). A device that merges two
    ports would lead to two nodes, and only the ring algorithm keeps to neighbours.
    """
    return {
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_SUBNET_PREFIX_LEN": str(link_prefix),
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_ALGO": "Ring",
    }


def rail_devices(intent: Intent, fabric: Fabric) -> list[str]:
    """The RDMA devices of the rails, in their order. Raises NcclEnvError when one is missing."""
    devices = []
    for rail in intent.rails:
        found = device_of(fabric, rail.netdev)
        if found is None:
            where = rail.netdev or f"the interface of {rail.name}, which was not found,"
            raise NcclEnvError(f"{where} has no RDMA device; limit: one for each rail; remedy: check `rdma link show`")
        devices.append(found[0])
    return devices


def _socket_names(names: Sequence[str], fabric: Fabric) -> str:
    """Plain names, as other readers of the variable expect them, unless NCCL would not take them for just these."""
    exact = _exactly(names)
    longer = any(name not in names and name.startswith(tuple(names)) for name in fabric["netdevs"])
    odd = exact[1] in "^=" or len(exact) < len("=xx")
    return exact if longer or odd else exact.removeprefix("=")


def _exactly(names: Sequence[str]) -> str:
    """The value that selects these names and no others. Raises NcclEnvError for a name that NCCL would take apart."""
    for name in names:
        if re.search("[,:]", name):
            raise NcclEnvError(f"NCCL cannot be told of {name}; limit: no comma and no colon; remedy: rename it")
    return "=" + ",".join(names)


def env_file(environment: Mapping[str, str]) -> str:
    """A file for `docker run --env-file`: NAME=value, taken literally, without quotes.

    Raises ValueError for what such a file cannot carry, byte for byte, past every release of Docker.
    """
    for name, value in environment.items():
        fault = _fault(name, value)
        if fault:
            raise ValueError(f"{name or 'a variable'} cannot be written to an environment file: {fault}")
    return "".join(f"{name}={value}\n" for name, value in environment.items())


def parse_env_file(text: str) -> dict[str, str]:
    """The variables of a file that `env_file` wrote, the last one of a name."""
    pairs = (line.partition("=") for line in text.split("\n"))
    return {name: value for name, equals, value in pairs if equals}


def _fault(name: str, value: str) -> str:
    """What Docker would make of a line that is not what was meant; empty when nothing (docker/cli, pkg/kvfile)."""
    faults = {
        "its name is empty": not name,
        "its name has a blank, an equal sign or a control character": bool(re.search(r"[\s=\x00-\x1f\ufeff]", name)),
        "its name begins with #, which makes a comment": name.startswith("#"),
        "its value has a line break or a NUL": bool(re.search(r"[\n\x00]", value)) or value.endswith("\r"),
        # Some releases take such quotes away.
        "its value is in quotes": len(value) > 1 and value[0] == value[-1] and value[0] in "'\"",
        "it is no valid UTF-8": bool(re.search(r"[\ud800-\udfff]", name + value)),
        f"its line is longer than {LONGEST_LINE} bytes": _size(name, value) > LONGEST_LINE,
    }
    return next((fault for fault, found in faults.items() if found), "")


def _size(name: str, value: str) -> int:
    return len(f"{name}={value}".encode(errors="replace"))


# --- what NCCL makes of it ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Filter:
    """A list of names as NCCL understands it: `ports` is None for any port."""

    exclude: bool
    exact: bool
    entries: tuple[tuple[str, int | None], ...]

    def takes(self, name: str, port: int | None = None) -> bool:
        # NCCL takes an empty list for a match of everything, so that a lone ^ leaves nothing.
        matched = not self.entries or any(self._matches(entry, name, port) for entry in self.entries)
        return matched != self.exclude

    def _matches(self, entry: tuple[str, int | None], name: str, port: int | None) -> bool:
        wanted, number = entry
        named = name == wanted if self.exact else name.startswith(wanted)
        return named and (number is None or port is None or number == port)


def nccl_select(value: str, fabric: Fabric) -> list[str]:
    """The RDMA devices that NCCL uses with this NCCL_IB_HCA: of ACTIVE ports those that it names.

    The grammar is an optional ^ (all but these), then an optional = (exact names and no prefixes), then a comma list of
    name[:port]. Raises NcclEnvError for a value that NCCL's releases read differently.
    """
    chosen = _filter(value, MOST_DEVICES)
    active = (name for name, device in sorted(fabric["rdma"].items()) if device["port"]["state"] == "ACTIVE")
    return [name for name in active if chosen.takes(name, 1)][:MOST_DEVICES]


def nccl_select_sockets(value: str, fabric: Fabric) -> list[str]:
    """The interfaces that NCCL may use for sockets with this NCCL_SOCKET_IFNAME: of those with an address.

    The grammar is that of NCCL_IB_HCA. Raises NcclEnvError like `nccl_select`, and for a value that NCCL ignores.
    """
    # ncclFindInterfaces: `env && strlen(env) > 1`, or else NCCL chooses by itself.
    if len(value) < 2:
        raise NcclEnvError(f"NCCL ignores {value!r} and chooses an interface itself; limit: two characters or more")
    chosen = _filter(value, MOST_NETDEVS)
    named = [name for name, link in fabric["netdevs"].items() if _speaks_ip(link) and chosen.takes(name)]
    return named[:MOST_NETDEVS]


def _speaks_ip(link: Netdev) -> bool:
    return bool(link["addresses"] or link["link_local"]) and link["carrier"] is not False


def _filter(value: str, most: int) -> _Filter:
    exclude, rest = value.startswith("^"), value.removeprefix("^")
    exact, names = rest.startswith("="), rest.removeprefix("=")
    entries = tuple(_entries(names))
    return _Filter(exclude, exact, entries[:most])


def _entries(names: str) -> Iterator[tuple[str, int | None]]:
    """The entries of a list; one without a name is skipped, what follows the port (rail and plane) is of no matter."""
    for entry in names.split(","):
        name, colon, rest = entry.partition(":")
        port = rest.partition(":")[0]
        if name and colon and not port:
            # Up to 2.29 this is port 0, which does not exist; later it is any port.
            raise NcclEnvError(f"{entry} has an empty port; limit: name or name:port, as NCCL's releases differ on it")
        if name:
            yield name, _port(port) if colon else None


def _port(text: str) -> int | None:
    """C's atoi: digits up to what is none, 0 without any; NCCL takes -1 for any port."""
    digits = re.match(r"\s*([+-]?\d+)", text)
    number = int(digits.group(1)) if digits else 0
    return None if number == -1 else number


# --- what a profile may set -----------------------------------------------------------------------------------------


def forbidden(variables: Mapping[str, object], topology: str, link_prefix: int) -> list[tuple[str, str]]:
    """What breaks every launch, as pairs of mistake and remedy: nothing on any node can make it right."""
    return [*_never_right(variables), *(_wrong_in_ring(variables, link_prefix) if topology == "ring" else ())]


def pinned_gid(variables: Mapping[str, str]) -> int | None:
    """The GID index that a profile pins; None without one, or where a negative number leaves the choice to NCCL."""
    text = variables.get("NCCL_IB_GID_INDEX")
    index = _number(text) if text else -1
    return index if index >= 0 else None


def _never_right(variables: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    disable, net = variables.get("NCCL_IB_DISABLE"), variables.get("NCCL_NET")
    if disable is not None and _number(str(disable)) != 0:
        yield (
            f"NCCL_IB_DISABLE={disable} is set; limit: 0 or unset, RoCE runs through NCCL's IB code, and without it the"
            " fabric drops to TCP",
            "remove NCCL_IB_DISABLE",
        )
    # NCCL compares without regard to case.
    if net is not None and str(net).casefold() != "ib":
        yield (
            f"NCCL_NET={net} is set; limit: IB, with any other a broken path of the fabric drops to TCP or hangs",
            "remove NCCL_NET",
        )


def _wrong_in_ring(variables: Mapping[str, object], link_prefix: int) -> Iterator[tuple[str, str]]:
    for name, needed in ring_variables(link_prefix).items():
        if name in variables and str(variables[name]) != needed:
            yield (
                f"{name}={variables[name]} is set; limit: {needed} in a ring, where a node's ports lead to different"
                " nodes",
                f"remove {name}",
            )


def _number(text: str) -> int:
    """A number as NCCL reads its parameters: strtoll with base 0, and what is no number at all is 0."""
    digits = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)", text)
    if not digits:
        return 0
    sign, number = digits.groups()
    octal = number.startswith("0") and number[1:2] not in ("x", "X")
    return int(f"{sign}{number}", 8 if octal else 0)
