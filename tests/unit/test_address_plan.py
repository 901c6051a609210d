"""The address plan: what it computes for good inventories, and the line it gives for each bad one."""

from __future__ import annotations

from ipaddress import ip_interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import (
    AddressPlanError,
    Cabling,
    Rail,
    make_plan,
    parse_rails,
)

RAIL0 = Rail("rail0", "192.168.100.0/24")
RAIL1 = Rail("rail1", "192.168.101.0/24")
PINNED = Rail("rail1", "192.168.101.0/24", "enP2p1s0f0np0")
FOUR = {"spark1": 0, "spark2": 1, "spark3": 2, "spark4": 3}
THREE = {"spark1": 0, "spark2": 1, "spark3": 2}
TWO = {"spark1": 0, "spark2": 1}
DIRECT = Cabling("direct")
RING = Cabling("ring")


def lines_of(rails=(RAIL0, RAIL1), mtu=9000, offset=10, ranks=FOUR, management=None, cabling=None):
    with pytest.raises(AddressPlanError) as refusal:
        make_plan(rails, mtu, offset, ranks, management, cabling)
    assert str(refusal.value) == "\n".join(map(str, refusal.value.mistakes))
    return [str(mistake) for mistake in refusal.value.mistakes]


# --- a switch -------------------------------------------------------------------------------------------------------


def test_a_node_has_one_address_a_rail_with_the_mask_of_the_subnet():
    node = make_plan([RAIL0, PINNED], 9000, 10, FOUR).node("spark3")
    assert node.rank == 2
    assert [(r.name, r.netdev, r.address, r.cidr, r.mtu) for r in node.rails] == [
        ("rail0", "", "192.168.100.12", "192.168.100.12/24", 9000),
        ("rail1", "enP2p1s0f0np0", "192.168.101.12", "192.168.101.12/24", 9000),
    ]


def test_peers_are_all_other_nodes_on_the_same_rail():
    node = make_plan([RAIL0, RAIL1], 9000, 10, FOUR).node("spark2")
    assert [rail.peers for rail in node.rails] == [
        {"spark1": "192.168.100.10", "spark3": "192.168.100.12", "spark4": "192.168.100.13"},
        {"spark1": "192.168.101.10", "spark3": "192.168.101.12", "spark4": "192.168.101.13"},
    ]


def test_nodes_are_in_rank_order_and_the_head_is_rank_0_on_the_first_rail():
    plan = make_plan([RAIL1, RAIL0], 9000, 10, {"c": 2, "a": 1, "b": 0})
    assert [node.host for node in plan.nodes] == ["b", "a", "c"]
    assert plan.head_address == "192.168.101.10"


def test_a_host_that_is_not_in_the_plan_is_a_key_error():
    with pytest.raises(KeyError, match="spark9"):
        make_plan([RAIL0], 9000, 10, FOUR).node("spark9")


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
                        "name": "rail0",
                        "netdev": "",
                        "address": f"192.168.100.1{rank}",
                        "cidr": f"192.168.100.1{rank}/24",
                        "mtu": 9000,
                        "peers": {f"spark{2 - rank}": f"192.168.100.1{1 - rank}"},
                    }
                ],
            }
            for host, rank in TWO.items()
        },
    }


def test_the_narrowest_rail_is_the_limit():
    narrow = Rail("rail1", "192.168.101.0/28")
    assert lines_of(rails=[RAIL0, narrow], offset=12) == [
        "spark4: rank 3 with fabric_host_offset 12 is host number 15 of rail1 192.168.101.0/28; limit: 1 to 14; "
        "remedy: set fabric_host_offset to 1 to 11"
    ]


# --- one cable ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subnet", "offset", "addresses"),
    [
        ("192.168.100.0/24", 10, ["192.168.100.10/24", "192.168.100.11/24"]),
        ("10.0.0.4/30", 1, ["10.0.0.5/30", "10.0.0.6/30"]),
        ("10.0.0.4/31", 0, ["10.0.0.4/31", "10.0.0.5/31"]),
        ("10.0.0.0/29", 5, ["10.0.0.5/29", "10.0.0.6/29"]),
    ],
)
def test_the_two_ends_of_a_cable(subnet, offset, addresses):
    plan = make_plan([Rail("rail0", subnet)], 1500, offset, TWO, cabling=DIRECT)
    assert [node.rails[0].cidr for node in plan.nodes] == addresses
    assert plan.head_address == addresses[0].split("/")[0]


# --- a ring ---------------------------------------------------------------------------------------------------------


def test_each_link_of_a_ring_takes_the_next_subnet_of_each_pool():
    plan = make_plan([RAIL0, RAIL1], 9000, 10, THREE, {"spark1": "10.0.0.11"}, RING)
    assert {node.host: [(end.name, end.cidr, dict(end.peers)) for end in node.rails] for node in plan.nodes} == {
        "spark1": [
            ("rail0.link0", "192.168.100.0/31", {"spark2": "192.168.100.1"}),
            ("rail0.link2", "192.168.100.5/31", {"spark3": "192.168.100.4"}),
            ("rail1.link0", "192.168.101.0/31", {"spark2": "192.168.101.1"}),
            ("rail1.link2", "192.168.101.5/31", {"spark3": "192.168.101.4"}),
        ],
        "spark2": [
            ("rail0.link0", "192.168.100.1/31", {"spark1": "192.168.100.0"}),
            ("rail0.link1", "192.168.100.2/31", {"spark3": "192.168.100.3"}),
            ("rail1.link0", "192.168.101.1/31", {"spark1": "192.168.101.0"}),
            ("rail1.link1", "192.168.101.2/31", {"spark3": "192.168.101.3"}),
        ],
        "spark3": [
            ("rail0.link1", "192.168.100.3/31", {"spark2": "192.168.100.2"}),
            ("rail0.link2", "192.168.100.4/31", {"spark1": "192.168.100.5"}),
            ("rail1.link1", "192.168.101.3/31", {"spark2": "192.168.101.2"}),
            ("rail1.link2", "192.168.101.4/31", {"spark1": "192.168.101.5"}),
        ],
    }


def test_a_link_of_30_leaves_its_own_name_and_its_broadcast_free():
    plan = make_plan([RAIL0], 9000, 10, FOUR, cabling=Cabling("ring", 30))
    assert [end.cidr for end in plan.node("spark1").rails] == ["192.168.100.1/30", "192.168.100.14/30"]
    assert [end.cidr for end in plan.node("spark4").rails] == ["192.168.100.10/30", "192.168.100.13/30"]


def test_in_a_ring_the_head_is_met_where_it_is_managed():
    assert make_plan([RAIL0], 9000, 10, THREE, {"spark1": "10.0.0.11"}, RING).head_address == "10.0.0.11"
    assert make_plan([RAIL0], 9000, 10, THREE, None, RING).head_address == "spark1"


@given(st.integers(3, 8), st.sampled_from([30, 31]))
def test_the_two_ends_of_every_link_agree_and_no_address_is_there_twice(count, prefix):
    ranks = {f"spark{n + 1}": n for n in range(count)}
    plan = make_plan([RAIL0, RAIL1], 9000, 10, ranks, cabling=Cabling("ring", prefix))
    ends = {(node.host, end.name): end for node in plan.nodes for end in node.rails}
    addresses = [end.address for end in ends.values()]
    assert len(addresses) == len(set(addresses)) == 4 * count
    for (host, name), end in ends.items():
        ((peer, far),) = end.peers.items()
        assert ends[peer, name].address == far
        assert ends[peer, name].peers == {host: end.address}
        assert ends[peer, name].subnet == end.subnet == ip_interface(end.cidr).network
        assert abs(ranks[host] - ranks[peer]) in (1, count - 1)


# --- mistakes -------------------------------------------------------------------------------------------------------


def rail1(**changes):
    return {"rails": [RAIL0, Rail(**{"name": "rail1", "subnet": RAIL1.subnet, **changes})]}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            {"rails": [Rail("rail0", "10.0.0.0/30")], "ranks": {"spark2": 1, "spark1": 0}, "offset": 2},
            "spark2: rank 1 with fabric_host_offset 2 is host number 3 of rail0 10.0.0.0/30; limit: 1 to 2; "
            "remedy: set fabric_host_offset to 1",
            id="offset-too-large-for-30",
        ),
        pytest.param(
            {"rails": [Rail("rail0", "10.0.0.0/30")], "ranks": THREE, "offset": 1},
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
            {"rails": [Rail("rail0", "10.0.0.0/31")], "ranks": TWO, "offset": 1, "cabling": DIRECT},
            "spark2: rank 1 with fabric_host_offset 1 is host number 2 of rail0 10.0.0.0/31; limit: 0 to 1; "
            "remedy: set fabric_host_offset to 0",
            id="31-with-an-offset",
        ),
        pytest.param(
            {"rails": [Rail("rail0", "10.0.0.0/31"), RAIL1], "ranks": TWO, "offset": 0, "cabling": DIRECT},
            "spark1: rank 0 with fabric_host_offset 0 is host number 0 of rail1 192.168.101.0/24; limit: 1 to 254; "
            "remedy: give rail0 a wider subnet",
            id="31-beside-24",
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
            id="31-on-a-switch",
        ),
        pytest.param(
            {**rail1(subnet="192.168.101.0/32"), "ranks": TWO, "cabling": DIRECT},
            "all nodes: rail1 has the subnet 192.168.101.0/32 without room for two nodes; limit: /31; "
            "remedy: write a mask of /31 or wider",
            id="32-on-a-cable",
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
            {"rails": [Rail("rail0", "192.168.100.0/24", "eth1"), Rail("rail1", "192.168.101.0/24", "eth1")]},
            "all nodes: rail0 and rail1 share the netdev eth1; "
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
            {**rail1(netdev="enP2p1s0f0np0"), "cabling": RING},
            "all nodes: rail1 has the netdev enP2p1s0f0np0; limit: none in a ring, where a rail has two ends on each"
            " node; remedy: remove netdev: the interface of each link is found by who answers on it",
            id="netdev-in-a-ring",
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
        pytest.param(
            {"management": {"spark4": "192.168.101.200"}, "cabling": RING},
            "spark4: its management address 192.168.101.200 lies in the subnet 192.168.101.0/24 of rail1; "
            "remedy: give rail1 a subnet that is used nowhere else",
            id="management-address-in-the-pool-of-a-ring",
        ),
        pytest.param(
            {"cabling": DIRECT},
            "all nodes: fabric_topology is direct with 4 nodes; limit: 2; "
            "remedy: set fabric_topology to ring or switch",
            id="four-nodes-on-one-cable",
        ),
        pytest.param(
            {"ranks": TWO, "cabling": RING},
            "all nodes: fabric_topology is ring with 2 nodes; limit: 3 to 8; "
            "remedy: set fabric_topology to direct or switch",
            id="a-ring-of-two",
        ),
        pytest.param(
            {"rails": [Rail("rail0", "10.1.0.0/29")], "ranks": {f"n{n}": n for n in range(5)}, "cabling": RING},
            "all nodes: rail0 has the subnet 10.1.0.0/29 with room for 4 links of /31; limit: 5 links for 5 nodes; "
            "remedy: write a mask of /28 or wider",
            id="a-pool-too-small",
        ),
        pytest.param(
            {"rails": [Rail("rail0", "10.1.0.0/29")], "ranks": THREE, "cabling": Cabling("ring", 30)},
            "all nodes: rail0 has the subnet 10.1.0.0/29 with room for 2 links of /30; limit: 3 links for 3 nodes; "
            "remedy: write a mask of /28 or wider",
            id="a-pool-too-small-for-30",
        ),
        pytest.param(
            {"rails": [Rail("rail0", "10.1.0.1/32")], "ranks": THREE, "cabling": RING},
            "all nodes: rail0 has the subnet 10.1.0.1/32 with room for 0 links of /31; limit: 3 links for 3 nodes; "
            "remedy: write a mask of /29 or wider",
            id="no-pool",
        ),
    ],
)
def test_a_bad_plan_is_refused_in_one_line(arguments, line):
    assert lines_of(**arguments) == [line]


@pytest.mark.parametrize(("count", "pool"), [(3, 29), (4, 29), (5, 28), (8, 28)])
def test_the_smallest_pool_that_holds_a_ring(count, pool):
    ranks = {f"spark{n + 1}": n for n in range(count)}
    assert make_plan([Rail("rail0", f"10.1.0.0/{pool}")], 9000, 10, ranks, cabling=RING).nodes
    (line,) = lines_of([Rail("rail0", f"10.1.0.0/{pool + 1}")], ranks=ranks, cabling=RING)
    assert line.endswith(f"remedy: write a mask of /{pool} or wider")


def test_every_mistake_is_reported_at_once():
    rails = [Rail("rail0", "192.168.100.1/24", "eth 1"), Rail("rail0", "x", "eth 1")]
    assert len(lines_of(rails, mtu=100)) == 7


@pytest.mark.parametrize("address", ["192.168.1.11", "spark1.example.org", "fd00::1"])
def test_a_management_address_elsewhere_or_a_name_is_fine(address):
    assert make_plan([RAIL0], 9000, 10, TWO, {"spark1": address}).head_address == "192.168.100.10"


@pytest.mark.parametrize(
    ("data", "rail"),
    [
        ({"name": "rail0", "subnet": "192.168.100.0/24"}, RAIL0),
        ({"name": "rail0", "subnet": "192.168.100.0/24", "netdev": None}, RAIL0),
        ({"name": "rail1", "netdev": "enP2p1s0f0np0", "subnet": "192.168.101.0/24"}, PINNED),
    ],
)
def test_rails_are_parsed_from_plain_data(data, rail):
    assert parse_rails([data]) == (rail,)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (None, "all nodes: fabric_rails is not a list of rails; remedy: list at least one rail"),
        ([], "all nodes: fabric_rails is not a list of rails; remedy: list at least one rail"),
        ({"name": "rail0"}, "all nodes: fabric_rails is not a list of rails; remedy: list at least one rail"),
        (["rail0"], "all nodes: fabric_rails[0] is not a mapping; remedy: give it a name and a subnet"),
        ([{"name": "a", "netdev": "b"}], "all nodes: fabric_rails[0].subnet is None; remedy: write subnet as text"),
        (
            [{"name": 0, "netdev": "b", "subnet": "10.0.0.0/24"}],
            "all nodes: fabric_rails[0].name is 0; remedy: write name as text",
        ),
        (
            [{"name": "a", "netdev": 5, "subnet": "10.0.0.0/24"}],
            "all nodes: fabric_rails[0].netdev is 5; remedy: write netdev as text, or leave it out",
        ),
    ],
)
def test_rails_of_a_wrong_shape_are_refused_in_one_line(data, line):
    with pytest.raises(AddressPlanError) as refusal:
        parse_rails(data)
    assert str(refusal.value) == line
