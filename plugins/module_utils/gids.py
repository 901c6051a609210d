"""The GID table of one RDMA port: what each row is, and which row carries RoCE v2 over IPv4.

The index of that row is not a constant: it differs between devices and moves after link, netplan and firmware events.
Nothing here is ever pinned; the table is read at the moment of launch and asked again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

# The kernel's words in gid_attrs/types/N (drivers/infiniband/core/cache.c).
ROCE_V2 = "RoCE v2"


class GidKind(StrEnum):
    """What one row of the table is good for."""

    EMPTY = "empty"
    UNREADABLE = "unreadable"
    LINK_LOCAL_V6 = "link-local IPv6"
    LINK_LOCAL_V4 = "link-local IPv4"
    ROCE_V1 = "RoCE v1"
    ROCE_V2_IPV6 = "RoCE v2 IPv6"
    ROCE_V2_IPV4 = "RoCE v2 IPv4"


@dataclass(frozen=True)
class Gid:
    """One row: its index, the GID as the kernel prints it (8 groups of 4 hex digits), its type and its netdev.

    `gid`, `type` and `netdev` are empty strings where the kernel refused to say.
    """

    index: int
    gid: str
    type: str
    netdev: str


def ipv4_of(gid: str) -> str | None:
    """The IPv4 address inside an IPv4-mapped GID, or None."""
    try:
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    except ValueError:
        return None
    return None if mapped is None else str(mapped)


def classify(row: Gid) -> GidKind:
    """Say what a row is; a row without a readable GID or type counts as unreadable."""
    try:
        address = ipaddress.IPv6Address(row.gid)
    except ValueError:
        return GidKind.UNREADABLE
    if int(address) == 0:
        return GidKind.EMPTY
    if not row.type:
        return GidKind.UNREADABLE
    if row.type != ROCE_V2:
        return GidKind.ROCE_V1
    mapped = address.ipv4_mapped
    if mapped is not None:
        return GidKind.LINK_LOCAL_V4 if mapped.is_link_local else GidKind.ROCE_V2_IPV4
    return GidKind.LINK_LOCAL_V6 if address.is_link_local else GidKind.ROCE_V2_IPV6


def find_ipv4(rows: Iterable[Gid], address: str) -> Gid | None:
    """The RoCE v2 row of one IPv4 address (plain, such as 192.168.100.10), or None."""
    for row in rows:
        if classify(row) is GidKind.ROCE_V2_IPV4 and ipv4_of(row.gid) == address:
            return row
    return None


def summary(rows: Iterable[Gid]) -> str:
    """The usable rows in one line for a person, such as `1 RoCE v2 fe80::1, 3 RoCE v2 192.168.100.10`."""
    shown = [
        f"{row.index} {row.type} {ipv4_of(row.gid) or ipaddress.IPv6Address(row.gid)}"
        for row in rows
        if classify(row) not in (GidKind.EMPTY, GidKind.UNREADABLE)
    ]
    return ", ".join(shown) or "no GID"
