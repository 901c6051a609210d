"""The address plan: what it computes for good inventories, and the line it gives for each bad one."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import (
    AddressPlanError,
    Rail,
    make_plan,
    parse_rails,
)

RAIL0 = Rail("rail0", "enp1s0f0np0", "192.168.100.0/24")
RAIL1 = Rail("rail1", "enP2p1s0f0np0", "192.168.101.0/24")
FOUR = {"spark1": 0, "spark2": 1, "spark3": 2, "spark4": 3}
TWO = {"spark1": 0, "spark2": 1}


def lines_of(rails=(RAIL0, RAIL1), mtu=9000, offset=10, ranks=FOUR, management=None):
    with pytest.raises(AddressPlanError) as refusal:
        make_plan(rails, mtu, offset, ranks, management)
    assert str(refusal.value) == "\n".join(map(str, refusal.value.mistakes))
    return [str(mistake) for mistake in refusal.value.mistakes]


def test_a_node_has_one_address_a_rail_with_the_mask_of_the_subnet():
    node = make_plan([RAIL0, RAIL1], 9000, 10, FOUR).node("spark3")
    assert node.rank == 2
    assert [(r.rail, r.netdev, r.address, r.cidr, r.mtu) for r in node.rails] == [
        ("rail0", "enp1s0f0np0", "192.168.100.12", "192.168.100.12/24", 9000),
        ("rail1", "enP2p1s0f0np0", "192.168.101.12", "192.168.101.12/24", 9000),
    ]


def test_nodes_are_in_rank_order_and_the_head_is_rank_0_on_the_first_rail():
    plan = make_plan([RAIL1, RAIL0], 9000, 10, {"c": 2, "a": 1, "b": 0})
    assert [node.host for node in plan.nodes] == ["b", "a", "c"]
    assert plan.head_address == "192.168.101.10"


def test_peers_are_all_other_nodes():
    assert [node.host for node in make_plan([RAIL0], 9000, 10, FOUR).peers("spark2")] == ["spark1", "spark3", "spark4"]


@pytest.mark.parametrize("method", ["node", "peers"])
def test_a_host_that_is_not_in_the_plan_is_a_key_error(method):
    with pytest.raises(KeyError, match="spark9"):
        getattr(make_plan([RAIL0], 9000, 10, FOUR), method)("spark9")


def test_the_two_ends_of_a_cable_fit_a_30():
    rail = Rail("rail0", "enp1s0f0np0", "10.0.0.4/30")
    assert [node.rails[0].cidr for node in make_plan([rail], 1500, 1, TWO).nodes] == ["10.0.0.5/30", "10.0.0.6/30"]


def test_the_last_usable_address_is_used_and_the_broadcast_is_not():
    assert make_plan([RAIL0], 9000, 251, FOUR).node("spark4").rails[0].address == "192.168.100.254"
    assert lines_of(offset=252, rails=[RAIL0]) == [
        "spark4: rank 3 with fabric_host_offset 252 is host number 255 of rail0 192.168.100.0/24; limit: 1 to 254; "
        "remedy: set fabric_host_offset to 1 to 251"
    ]


def test_the_plan_as_data_is_plain_and_keyed_by_host():
    assert make_plan([RAIL0], 9000, 10, TWO).as_data() == {
        "head_address": "192.168.100.10",
        "nodes": {
            host: {
                "host": host,
                "rank": rank,
                "rails": [
                    {
                        "rail": "rail0",
                        "netdev": "enp1s0f0np0",
                        "address": f"192.168.100.1{rank}",
                        "cidr": f"192.168.100.1{rank}/24",
                        "mtu": 9000,
                    }
                ],
            }
            for host, rank in TWO.items()
        },
    }


def test_the_narrowest_rail_is_the_limit():
    narrow = Rail("rail1", "enP2p1s0f0np0", "192.168.101.0/28")
    assert lines_of(rails=[RAIL0, narrow], offset=12) == [
        "spark4: rank 3 with fabric_host_offset 12 is host number 15 of rail1 192.168.101.0/28; limit: 1 to 14; "
        "remedy: set fabric_host_offset to 1 to 11"
    ]


def rail1(**changes):
    return {"rails": [RAIL0, Rail(**{"name": "rail1", "netdev": RAIL1.netdev, "subnet": RAIL1.subnet, **changes})]}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            {"rails": [Rail("rail0", "eth1", "10.0.0.0/30")], "ranks": {"spark2": 1}},
            "spark2: rank 1 with fabric_host_offset 10 is host number 11 of rail0 10.0.0.0/30; limit: 1 to 2; "
            "remedy: set fabric_host_offset to 1",
            id="offset-too-large-for-30",
        ),
        pytest.param(
            {"rails": [Rail("rail0", "eth1", "10.0.0.0/30")], "ranks": {"spark3": 2}, "offset": 1},
            "spark3: rank 2 with fabric_host_offset 1 is host number 3 of rail0 10.0.0.0/30; limit: 1 to 2; "
            "remedy: give rail0 a wider subnet",
            id="three-nodes-in-30",
        ),
        pytest.param(
            {"rails": [RAIL0], "ranks": TWO, "offset": 0},
            "spark1: rank 0 with fabric_host_offset 0 is host number 0 of rail0 192.168.100.0/24; limit: 1 to 254; "
            "remedy: set fabric_host_offset to 1 to 253",
            id="network-address",
        ),
        pytest.param(
            rail1(subnet="192.168.101.0"),
            "all nodes: rail1 has the subnet 192.168.101.0 without room for two nodes; limit: /30; "
            "remedy: write a mask of /30 or wider",
            id="no-mask",
        ),
        pytest.param(
            rail1(subnet="192.168.101.0/31"),
            "all nodes: rail1 has the subnet 192.168.101.0/31 without room for two nodes; limit: /30; "
            "remedy: write a mask of /30 or wider",
            id="31",
        ),
        pytest.param(
            rail1(subnet="192.168.101.7/24"),
            "all nodes: rail1 has the subnet 192.168.101.7/24, which is the address of a host; "
            "remedy: write 192.168.101.0/24",
            id="host-bits",
        ),
        pytest.param(
            rail1(subnet="192.168.101/24"),
            "all nodes: rail1 has the subnet 192.168.101/24, which is no IPv4 subnet; "
            "remedy: write it like 192.168.100.0/24",
            id="no-subnet",
        ),
        pytest.param(
            rail1(subnet="fd00::/64"),
            "all nodes: rail1 has the subnet fd00::/64, which is IPv6; limit: IPv4; "
            "remedy: write it like 192.168.100.0/24",
            id="ipv6",
        ),
        pytest.param(
            rail1(subnet="192.168.100.0/24"),
            "all nodes: rail0 and rail1 share the subnet 192.168.100.0/24; remedy: give each its own subnet",
            id="shared-subnet",
        ),
        pytest.param(
            rail1(subnet="192.168.0.0/16"),
            "all nodes: the subnets of rail0 and rail1 overlap: 192.168.100.0/24 and 192.168.0.0/16; "
            "remedy: give the rails subnets that lie apart",
            id="overlap",
        ),
        pytest.param(
            rail1(netdev="enp1s0f0np0"),
            "all nodes: rail0 and rail1 share the netdev enp1s0f0np0; "
            "remedy: give each rail its own interface: the twins of one cage",
            id="shared-netdev",
        ),
        pytest.param(
            rail1(name="rail0"),
            "all nodes: two rails are named rail0; remedy: name the rails differently",
            id="shared-name",
        ),
        pytest.param(
            rail1(netdev="enP2p1s0f0np0.100"),
            "all nodes: rail1 has the netdev 'enP2p1s0f0np0.100'; limit: 15 characters without blank or slash; "
            "remedy: write the name that `ip link` shows",
            id="netdev-too-long",
        ),
        pytest.param(
            {"mtu": 90000},
            "all nodes: fabric_mtu is 90000; limit: 1500 to 9216 bytes; remedy: write 9000, or what the switch carries",
            id="mtu",
        ),
        pytest.param(
            {"ranks": {"spark1": 0, "spark2": 1, "spark3": 1}},
            "spark3: has the rank 1 of spark2 and so its addresses; remedy: give each node its own rank",
            id="repeated-address",
        ),
        pytest.param(
            {"management": {"spark1": "192.168.1.1", "spark2": "192.168.101.11"}},
            "spark2: its management address 192.168.101.11 lies in the subnet 192.168.101.0/24 of rail1; "
            "remedy: give rail1 a subnet that is used nowhere else",
            id="management-address-is-a-rail-address",
        ),
    ],
)
def test_a_bad_plan_is_refused_in_one_line(arguments, line):
    assert lines_of(**arguments) == [line]


def test_every_mistake_is_reported_at_once():
    rails = [Rail("rail0", "enp1s0f0np0", "192.168.100.1/24"), Rail("rail0", "enp1s0f0np0", "x")]
    assert len(lines_of(rails, mtu=100)) == 5


@pytest.mark.parametrize("address", ["192.168.1.11", "spark1.example.org", "fd00::1"])
def test_a_management_address_elsewhere_or_a_name_is_fine(address):
    assert make_plan([RAIL0], 9000, 10, TWO, {"spark1": address}).head_address == "192.168.100.10"


def test_rails_are_parsed_from_plain_data():
    assert parse_rails([{"name": "rail0", "netdev": "enp1s0f0np0", "subnet": "192.168.100.0/24"}]) == (RAIL0,)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (None, "all nodes: fabric_rails is not a list of rails; remedy: list at least one rail"),
        ([], "all nodes: fabric_rails is not a list of rails; remedy: list at least one rail"),
        ({"name": "rail0"}, "all nodes: fabric_rails is not a list of rails; remedy: list at least one rail"),
        (["rail0"], "all nodes: fabric_rails[0] is not a mapping; remedy: give it the keys name, netdev, subnet"),
        ([{"name": "a", "netdev": "b"}], "all nodes: fabric_rails[0].subnet is None; remedy: write subnet as text"),
        (
            [{"name": 0, "netdev": "b", "subnet": "10.0.0.0/24"}],
            "all nodes: fabric_rails[0].name is 0; remedy: write name as text",
        ),
    ],
)
def test_rails_of_a_wrong_shape_are_refused_in_one_line(data, line):
    with pytest.raises(AddressPlanError) as refusal:
        parse_rails(data)
    assert str(refusal.value) == line
