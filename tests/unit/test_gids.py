"""The rows of a GID table: what each is, and which one carries RoCE v2 over an address."""

from __future__ import annotations

import pytest
from builders import gid_of

from ansible_collections.sparkwright.cluster.plugins.module_utils.gids import (
    Gid,
    GidKind,
    classify,
    find_ipv4,
    ipv4_of,
    summary,
)

V1, V2 = "IB/RoCE v1", "RoCE v2"
LOCAL_V6 = "fe80:0000:0000:0000:4ebb:47ff:fe2c:100a"
ADDRESS = "192.168.100.10"


def row(gid, kind=V2, index=0):
    return Gid(index, gid, kind, "enp1s0f0np0")


@pytest.mark.parametrize(
    ("gid", "kind", "found"),
    [
        (gid_of(ADDRESS), V2, GidKind.ROCE_V2_IPV4),
        (gid_of(ADDRESS), V1, GidKind.ROCE_V1),
        (LOCAL_V6, V1, GidKind.ROCE_V1),
        (LOCAL_V6, V2, GidKind.LINK_LOCAL_V6),
        (gid_of("169.254.7.1"), V2, GidKind.LINK_LOCAL_V4),
        ("2001:0db8:0000:0000:0000:0000:0000:0001", V2, GidKind.ROCE_V2_IPV6),
        ("0000:0000:0000:0000:0000:0000:0000:0000", V2, GidKind.EMPTY),
        ("0000:0000:0000:0000:0000:0000:0000:0000", "", GidKind.EMPTY),
        (gid_of(ADDRESS), "", GidKind.UNREADABLE),
        ("", V2, GidKind.UNREADABLE),
        ("no address", V2, GidKind.UNREADABLE),
    ],
)
def test_a_row_is_what_it_says(gid, kind, found):
    assert classify(row(gid, kind)) is found


@pytest.mark.parametrize(
    ("gid", "address"),
    [
        ("0000:0000:0000:0000:0000:ffff:c0a8:640a", "192.168.100.10"),
        (LOCAL_V6, None),
        ("", None),
    ],
)
def test_the_address_inside_a_gid(gid, address):
    assert ipv4_of(gid) == address


@pytest.mark.parametrize("index", [0, 3, 6, 255])
def test_the_row_is_found_wherever_it_moved(index):
    rows = [row(gid_of(ADDRESS), V1, 1), row(LOCAL_V6, V2, 2), row(gid_of(ADDRESS), V2, index)]
    assert find_ipv4(rows, ADDRESS) == rows[2]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(gid_of(ADDRESS), V1)],
        [row(gid_of("192.168.100.11"))],
        [row(gid_of(ADDRESS), "")],
    ],
    ids=["empty", "v1 only", "another address", "unreadable type"],
)
def test_a_missing_row_is_none(rows):
    assert find_ipv4(rows, ADDRESS) is None


def test_a_link_local_address_is_never_taken():
    assert find_ipv4([row(gid_of("169.254.7.1"))], "169.254.7.1") is None


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "no GID"),
        ([row("", V2, 5), row("0000:0000:0000:0000:0000:0000:0000:0000", V2, 6)], "no GID"),
        (
            [row(LOCAL_V6, V2, 1), row(gid_of(ADDRESS), V1, 2), row(gid_of(ADDRESS), V2, 3)],
            "1 RoCE v2 fe80::4ebb:47ff:fe2c:100a, 2 IB/RoCE v1 192.168.100.10, 3 RoCE v2 192.168.100.10",
        ),
    ],
)
def test_the_summary_is_one_line(rows, text):
    assert summary(rows) == text
