"""Checks of the rails: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

import pytest
from builders import DEVICE0, DEVICE1, GONE, NETDEV0, NETDEV1, cluster, findings, gid_of, gid_row, netdev

SPARK2 = "spark2"
OWN_NETPLAN = "/etc/netplan/60-sparkwright.yaml"
APPLY = "run playbooks/stop.yml if it serves, then site.yml, which applies netplan"
LOCAL = "fe80:0000:0000:0000:4ebb:47ff:fe2c:100a"


def on_spark2(*path, value):
    return {"facts": {(SPARK2, "fabric", *path): value}}


def default_route(netdev):
    return {"dst": "default", "dev": netdev, "gateway": "10.0.0.1"}


CASES = {
    "no interface": (
        on_spark2("netdevs", NETDEV1, value=GONE),
        "refuse fabric.rail spark2: there is no interface enP2p1s0f0np0, only enP7s7, enp1s0f0np0; limit: the"
        " interface of rail1; remedy: correct fabric_rails, or leave out netdev there to have it found; then run"
        " site.yml",
        f"refuse fabric.address spark2: enP2p1s0f0np0 has no address; limit: 192.168.101.11/24 alone; remedy: {APPLY}",
        f"refuse fabric.mtu spark2: the MTU of enP2p1s0f0np0 is 0; limit: 9000; remedy: {APPLY}",
    ),
    "no device": (
        on_spark2("rdma", DEVICE1, value=GONE),
        "refuse fabric.rdma spark2: enP2p1s0f0np0 has no RDMA device; devices: rocep1s0f0 on enp1s0f0np0; limit: one"
        " for each rail; remedy: check the cable and `rdma link show`",
    ),
    "no devices at all": (
        on_spark2("rdma", value={}),
        "refuse fabric.rdma spark2: enp1s0f0np0 has no RDMA device; devices: none; limit: one for each rail; remedy:"
        " check the cable and `rdma link show`",
        "refuse fabric.rdma spark2: enP2p1s0f0np0 has no RDMA device; devices: none; limit: one for each rail; remedy:"
        " check the cable and `rdma link show`",
    ),
    "a default route": (
        on_spark2("routes", value=[default_route("enP7s7"), default_route(NETDEV0)]),
        "refuse fabric.default-route spark2: the default route leaves through enP7s7, enp1s0f0np0; limit: not"
        " enp1s0f0np0; remedy: remove the gateway of enp1s0f0np0 from netplan or NetworkManager",
    ),
    "another netplan file": (
        on_spark2("netplan", "/etc/netplan/40-cx7.yaml", value=[NETDEV0]),
        "refuse fabric.netplan spark2: enp1s0f0np0 is named by /etc/netplan/40-cx7.yaml; limit:"
        f" {OWN_NETPLAN} alone; remedy: remove enp1s0f0np0 from /etc/netplan/40-cx7.yaml",
    ),
    "a taken address": (
        on_spark2("netdevs", "docker0", value=netdev("192.168.100.12/16")),
        "refuse fabric.address-taken spark3: 192.168.100.12 is used by docker0 of spark2; limit: only enp1s0f0np0 of"
        " spark3; remedy: remove the address there, or choose another subnet for the rail",
    ),
    "no address": (
        on_spark2("netdevs", NETDEV0, "addresses", value=[]),
        f"refuse fabric.address spark2: enp1s0f0np0 has no address; limit: 192.168.100.11/24 alone; remedy: {APPLY}",
    ),
    "a second address": (
        on_spark2("netdevs", NETDEV0, "addresses", value=["192.168.100.11/24", "10.9.9.9/24"]),
        "refuse fabric.address spark2: enp1s0f0np0 has 192.168.100.11/24, 10.9.9.9/24; limit: 192.168.100.11/24 alone;"
        f" remedy: {APPLY}",
    ),
    "another mask": (
        on_spark2("netdevs", NETDEV0, "addresses", value=["192.168.100.11/16"]),
        "refuse fabric.address spark2: enp1s0f0np0 has 192.168.100.11/16; limit: 192.168.100.11/24 alone; remedy:"
        f" {APPLY}",
    ),
    "a small mtu": (
        on_spark2("netdevs", NETDEV1, "mtu", value=1500),
        f"refuse fabric.mtu spark2: the MTU of enP2p1s0f0np0 is 1500; limit: 9000; remedy: {APPLY}",
    ),
    "a port that is down": (
        on_spark2("rdma", DEVICE0, "port", "state", value="DOWN"),
        "refuse fabric.gid spark2: rocep1s0f0 is DOWN with 0 IB/RoCE v1 fe80::4ebb:47ff:fe2c:100a, 1 RoCE v2"
        " fe80::4ebb:47ff:fe2c:100a, 2 IB/RoCE v1 192.168.100.11, 3 RoCE v2 192.168.100.11; limit: ACTIVE with RoCE v2"
        " 192.168.100.11; remedy: check the cable of enp1s0f0np0, then `netplan apply`",
        "refuse fabric.nccl-env spark2: NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0 selects roceP2p1s0f0; limit: what the"
        " inventory asks for, with rocep1s0f0, roceP2p1s0f0, the devices of the rails; remedy: check the cables and"
        " `rdma link show`",
    ),
    "a table without the address": (
        on_spark2("rdma", DEVICE0, "port", "gids", value=[gid_row(1, LOCAL)]),
        "refuse fabric.gid spark2: rocep1s0f0 is ACTIVE with 1 RoCE v2 fe80::4ebb:47ff:fe2c:100a; limit: ACTIVE with"
        " RoCE v2 192.168.100.11; remedy: check the cable of enp1s0f0np0, then `netplan apply`",
    ),
    "only v1 of the address": (
        on_spark2("rdma", DEVICE0, "port", "gids", value=[gid_row(2, gid_of("192.168.100.11"), "IB/RoCE v1")]),
        "refuse fabric.gid spark2: rocep1s0f0 is ACTIVE with 2 IB/RoCE v1 192.168.100.11; limit: ACTIVE with RoCE v2"
        " 192.168.100.11; remedy: check the cable of enp1s0f0np0, then `netplan apply`",
    ),
    "an empty table": (
        on_spark2("rdma", DEVICE0, "port", "gids", value=[]),
        "refuse fabric.gid spark2: rocep1s0f0 is ACTIVE with no GID; limit: ACTIVE with RoCE v2 192.168.100.11; remedy:"
        " check the cable of enp1s0f0np0, then `netplan apply`",
    ),
    "a silent peer": (
        on_spark2("pings", "192.168.101.11 192.168.101.13", value=False),
        "refuse fabric.path spark2: 2 of 3 peers answer on enP2p1s0f0np0 with 9000 bytes, not spark4; limit: all peers;"
        " remedy: set the same MTU on both ends and on the switch",
    ),
    "pings that nobody sent": (
        on_spark2("pings", value={}),
        "refuse fabric.path spark2: 0 of 3 peers answer on enp1s0f0np0 with 9000 bytes, not spark1, spark3, spark4;"
        " limit: all peers; remedy: set the same MTU on both ends and on the switch",
        "refuse fabric.path spark2: 0 of 3 peers answer on enP2p1s0f0np0 with 9000 bytes, not spark1, spark3, spark4;"
        " limit: all peers; remedy: set the same MTU on both ends and on the switch",
    ),
    "netplan would change while the engine serves": (
        {"serving": True, **on_spark2("own_netplan", value="network: {}\n")},
        f"refuse fabric.serving spark2: the rails or {OWN_NETPLAN} are not as planned; limit: no netplan apply while"
        " the engine serves; remedy: run playbooks/stop.yml, then site.yml",
    ),
    "a small mtu while the engine serves": (
        {"serving": True, **on_spark2("netdevs", NETDEV1, "mtu", value=1500)},
        f"refuse fabric.mtu spark2: the MTU of enP2p1s0f0np0 is 1500; limit: 9000; remedy: {APPLY}",
        f"refuse fabric.serving spark2: the rails or {OWN_NETPLAN} are not as planned; limit: no netplan apply while"
        " the engine serves; remedy: run playbooks/stop.yml, then site.yml",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_thing_is_wrong(case):
    changes, *lines = case
    assert findings(cluster(**changes)) == lines


def test_a_rail_that_carries_the_management_connection():
    changes = {SPARK2: {"management": "192.168.100.11"}}
    assert findings(cluster(intents=changes)) == [
        "refuse fabric.management spark2: enp1s0f0np0 has 192.168.100.11; limit: not 192.168.100.11, by which the node"
        " is managed; remedy: manage the node over another interface, or choose another rail"
    ]


@pytest.mark.parametrize("index", [0, 3, 5, 200])
def test_the_row_of_the_address_may_be_anywhere(index):
    rows = [gid_row(index, gid_of("192.168.100.11"))]
    assert findings(cluster(**on_spark2("rdma", DEVICE0, "port", "gids", value=rows))) == []


@pytest.mark.parametrize(
    "changes",
    [
        on_spark2("netplan", value={}),
        on_spark2("own_netplan", value=None),
        on_spark2("routes", value=[]),
        on_spark2("netdevs", "docker0", value=netdev("172.17.0.1/16")),
    ],
    ids=str,
)
def test_what_a_node_before_its_first_run_may_look_like(changes):
    assert findings(cluster(**changes)) == []
