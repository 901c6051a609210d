"""Which interface carries which rail: any cabling of 2 to 8 nodes, and the reason where none can be found."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from builders import GONE, node_facts
from hypothesis import given
from hypothesis import strategies as st
from wiring import NETDEVS, POOLS, address, joined, planned, rename, spark

from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import Rail
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import asleep, cages, resolve, used_cages

P0, P1 = NETDEVS["p0"], NETDEVS["p1"]


def found(intents, facts):
    """{host: interfaces of its rails}, nothing is doubted."""
    resolution = resolve(intents, facts)
    assert resolution.doubts == {}
    return {host: tuple(rail.netdev for rail in intent.rails) for host, intent in resolution.intents.items()}


def doubted(intents, facts, host="spark1"):
    """What is said about the rails of one node that were not found, without repeating it for each rail."""
    resolution = resolve(intents, facts)
    lines = [f"{d.fact}; limit: {d.limit}; remedy: {d.remedy}" for d in resolution.doubts.get(host, ())]
    return list(dict.fromkeys(lines))


def one(facts, **changes):
    """The interfaces of spark1, on a switch with a healthy spark2."""
    return found(planned(2, spark1=changes), {"spark1": facts, "spark2": spark(2, p0="cabled")})["spark1"]


def one_doubted(facts, **changes):
    return doubted(planned(2, spark1=changes), {"spark1": facts, "spark2": spark(2, p0="cabled")})


# --- cages ----------------------------------------------------------------------------------------------------------


def test_the_cages_of_a_spark():
    fabric = spark(1, p0="cabled", p1="asleep")["fabric"]
    assert [(cage.name, cage.twins, str(cage.cable)) for cage in cages(fabric)] == [
        ("p0", P0, "cabled"),
        ("p1", P1, "asleep"),
    ]
    assert asleep(fabric) == list(P1)


def test_a_healthy_node_of_the_other_tests_has_one_cage():
    assert [str(cage) for cage in cages(node_facts(0)["fabric"])] == ["p0 (enp1s0f0np0, enP2p1s0f0np0)"]


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        # The name that udev made of the port, where the driver says no port.
        ({"phys_port_name": None}, ["p0", "p1"]),
        # The function, where there is neither.
        ({"phys_port_name": None, "rename": True}, ["p0", "p1"]),
        ({"phys_port_name": None, "rename": True, "pci": None}, []),
        # Ports of virtual functions are no cages.
        ({"phys_port_name": "pf0vf3"}, []),
    ],
)
def test_what_tells_the_cage(changes, seen):
    facts = spark(1, p0="cabled", p1="cabled")
    renamed = changes.pop("rename", False)
    for link in facts["fabric"]["netdevs"].values():
        link.update(changes)
    if renamed:
        rename(facts, **{name: f"eth{n}" for n, name in enumerate((*P0, *P1))})
    assert [cage.name for cage in cages(facts["fabric"])] == seen


@pytest.mark.parametrize("names", [P0, tuple(reversed(P0))], ids=["in order", "reversed"])
@pytest.mark.parametrize("pci", [True, False], ids=["PCI address", "name alone"])
def test_twins_are_in_the_order_of_their_domains_and_not_of_their_names(names, pci):
    fabric = spark(1, p0="cabled")["fabric"]
    fabric["netdevs"] = {name: fabric["netdevs"][name] for name in names}
    for link in fabric["netdevs"].values():
        link["pci"] = link["pci"] if pci else None
    assert cages(fabric)[0].twins == P0
    assert sorted(P0) == [P0[1], P0[0]]


def test_on_a_machine_with_one_pci_domain_the_names_tell_the_order():
    fabric = spark(1, p0="cabled")["fabric"]
    for name, bus in zip(P0, ("06", "05"), strict=True):
        fabric["netdevs"][name]["pci"]["address"] = f"0000:{bus}:00.0"
    assert cages(fabric)[0].twins == P0


def test_one_twin_that_sees_the_cable_is_enough():
    fabric = spark(1, p0="cabled")["fabric"]
    fabric["netdevs"][P0[0]]["carrier"] = None
    assert str(cages(fabric)[0].cable) == "cabled"


def test_an_interface_without_a_rdma_device_is_no_twin():
    fabric = spark(1, p0="cabled")["fabric"]
    del fabric["rdma"]["roceP2p1s0f0"]
    assert cages(fabric)[0].twins == (P0[0],)


# --- one switch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p0", "p1", "interfaces"),
    [
        ("cabled", "dark", P0),
        ("dark", "cabled", P1),
        ("cabled", "cabled", P0),
        ("cabled", "asleep", P0),
        ("asleep", "cabled", P1),
        # Nobody can see the cable of a link that is down, so the first such cage is taken until it is up.
        ("asleep", "asleep", P0),
        ("dark", "asleep", P1),
        (None, "cabled", P1),
    ],
)
def test_the_first_cage_with_a_cable_carries_the_rails(p0, p1, interfaces):
    assert one(spark(1, p0=p0, p1=p1)) == interfaces


def test_the_cage_may_differ_from_node_to_node():
    facts = {"spark1": spark(1, p0="cabled"), "spark2": spark(2, p1="cabled"), "spark3": spark(3, p0="cabled")}
    assert found(planned(3), facts) == {"spark1": P0, "spark2": P1, "spark3": P0}


def test_names_play_no_part():
    names = dict(zip((*P0, *P1), ("eth5", "eth2", "eth3", "eth4"), strict=True))
    facts = rename(spark(1, p0="cabled"), **names)
    facts["fabric"]["rdma"] = {f"mlx5_{n}": device for n, device in enumerate(facts["fabric"]["rdma"].values())}
    assert one(facts) == ("eth5", "eth2")


def test_one_rail_takes_the_first_twin():
    facts = {"spark1": spark(1, p1="cabled"), "spark2": spark(2, p0="cabled")}
    assert found(planned(2, rails=POOLS[:1]), facts) == {"spark1": P1[:1], "spark2": P0[:1]}


UNCABLED = "plug in the cable at both ends, and switch on what is at the other end"


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (
            spark(1, p0=None, p1=None),
            "there is no RDMA device at all; limit: two for each cable; remedy: plug in the cable, without which some"
            " Sparks show none; then check `lspci` and `rdma link show`",
        ),
        (
            spark(1),
            "no cage has a carrier: p0 (enp1s0f0np0, enP2p1s0f0np0) dark, p1 (enp1s0f1np1, enP2p1s0f1np1) dark; limit:"
            f" a cable in one of them; remedy: {UNCABLED}",
        ),
        (
            spark(1, p1=None),
            f"no cage has a carrier: p0 (enp1s0f0np0, enP2p1s0f0np0) dark; limit: a cable in one of them; remedy:"
            f" {UNCABLED}",
        ),
    ],
    ids=["no device", "four dark devices", "two dark devices"],
)
def test_an_uncabled_node(facts, line):
    assert one_doubted(facts) == [line]


def test_interfaces_that_tell_no_port():
    facts = rename(spark(1, p0="cabled", p1=None), **dict(zip(P0, ("eth2", "eth3"), strict=True)))
    for link in facts["fabric"]["netdevs"].values():
        link.update(phys_port_name=None, pci=None)
    assert one_doubted(facts) == [
        "no port can be told of eth2, eth3; limit: a phys_port_name such as p0; remedy: name the interface of each rail"
        " as netdev in fabric_rails"
    ]


@pytest.mark.parametrize("lost", P0)
def test_a_twin_without_a_rdma_device(lost):
    facts = spark(1, p0="cabled")
    kept = P0[1 - P0.index(lost)]
    facts["fabric"]["rdma"] = {n: d for n, d in facts["fabric"]["rdma"].items() if d["netdev"] != lost}
    resolution = resolve(planned(2), {"spark1": facts})
    assert [rail.netdev for rail in resolution.intents["spark1"].rails] == [kept, ""]
    (doubt,) = resolution.doubts["spark1"]
    assert (doubt.rail, doubt.fact, doubt.limit, doubt.asleep) == (
        "rail1",
        f"p0 ({kept}) has 1 interface with a RDMA device",
        "2, one for each rail",
        False,
    )


def test_more_rails_than_twins():
    rails = [*POOLS, Rail("rail2", "192.168.102.0/24")]
    assert doubted(planned(2, rails=rails), {"spark1": spark(1, p0="cabled", p1="cabled")}) == [
        "p0 (enp1s0f0np0, enP2p1s0f0np0) has 2 interfaces with a RDMA device; limit: 3, one for each rail; remedy:"
        " check `rdma link show` and `lspci` for the missing twin, or take the rail out of fabric_rails"
    ]


# --- addresses come first -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "interfaces"),
    [
        ({P1[0]: "192.168.100.10/24", P1[1]: "192.168.101.10/24"}, P1),
        # Another number of the subnet, or another mask, is the rail as well.
        ({P1[0]: "192.168.100.77/24", P1[1]: "192.168.101.10/16"}, P1),
        # One of two: the other rail is on the other twin of that cage.
        ({P1[0]: "192.168.100.10/24"}, P1),
        ({P1[1]: "192.168.101.10/24"}, P1),
        ({P1[1]: "192.168.100.10/24"}, (P1[1], P1[0])),
        ({P0[1]: "192.168.100.10/24", P0[0]: "192.168.101.10/24"}, (P0[1], P0[0])),
        # A rail in each cage.
        ({P1[0]: "192.168.100.10/24", P0[0]: "192.168.101.10/24"}, (P1[0], P0[0])),
        # The planned address counts for more than another one of the subnet.
        ({P0[0]: "192.168.100.99/24", P1[0]: "192.168.100.10/24", P1[1]: "192.168.101.10/24"}, P1),
        ({P0[0]: "10.9.9.9/24"}, P0),
    ],
    ids=str,
)
def test_an_interface_with_an_address_in_the_subnet_is_the_rail(addresses, interfaces):
    facts = spark(1, p0="cabled", p1="cabled")
    for name, cidr in addresses.items():
        address(facts, name, cidr)
    assert one(facts) == interfaces


def test_an_address_elsewhere_is_the_rail_only_when_it_is_the_planned_one():
    """Then the check of the RDMA device says what is wrong; a bridge with another one is a matter of another check."""
    facts = spark(1, p0="cabled")
    facts["fabric"]["netdevs"]["docker0"] = {**facts["fabric"]["netdevs"]["lo"], "addresses": ["192.168.100.99/16"]}
    assert one(facts) == P0
    address(facts, "docker0", "192.168.100.10/16")
    assert one(facts) == ("docker0", P0[0])
    assert one(address(facts, P0[0], "192.168.100.10/24")) == P0


def test_both_twins_in_one_subnet():
    facts = spark(1, p0="cabled")
    for name, cidr in zip(P0, ("192.168.100.77/24", "192.168.100.78/24"), strict=True):
        address(facts, name, cidr)
    assert one_doubted(facts)[0] == (
        "enp1s0f0np0 and enP2p1s0f0np0 have addresses in 192.168.100.0/24; limit: one interface in the subnet of rail0:"
        " twins belong in different subnets; remedy: remove the address of the wrong one from netplan or NetworkManager"
    )


# --- pins -----------------------------------------------------------------------------------------------------------


def test_a_pinned_interface_is_taken_as_it_is():
    rails = [Rail("rail0", "192.168.100.0/24", "mgmt0"), POOLS[1]]
    facts = {"spark1": spark(1, p0="cabled"), "spark2": spark(2, p1="cabled")}
    assert found(planned(2, rails=rails), facts) == {"spark1": ("mgmt0", P0[0]), "spark2": ("mgmt0", P1[0])}


def test_the_twin_of_a_pinned_interface_is_in_the_same_cage():
    rails = [Rail("rail0", "192.168.100.0/24", P1[0]), POOLS[1]]
    assert found(planned(2, rails=rails), {"spark1": spark(1, p0="cabled", p1="cabled")})["spark1"] == P1


@pytest.mark.parametrize("state", ["cabled", "asleep"])
def test_a_pinned_cage(state):
    assert one(spark(1, p0="cabled", p1=state), cage="p1") == P1


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (spark(1, p0="cabled"), "p1 (enp1s0f1np1, enP2p1s0f1np1) has no carrier"),
        (spark(1, p0="cabled", p1=None), "there is no cage p1, only p0 (enp1s0f0np0, enP2p1s0f0np0) cabled"),
    ],
)
def test_a_pinned_cage_without_a_cable(facts, line):
    assert one_doubted(facts, cage="p1") == [
        f"{line}; limit: a cable in p1, which fabric_cage names; remedy: plug the cable into p1, or correct fabric_cage"
    ]


def test_a_pin_that_contradicts_an_address():
    facts = address(spark(1, p0="cabled", p1="cabled"), P0[0], "192.168.100.10/24")
    assert one_doubted(facts, cage="p1") == [
        "enp1s0f0np0 has an address in 192.168.100.0/24; limit: fabric_cage p1 of the inventory; remedy: remove that"
        " address from enp1s0f0np0, or the pin from the inventory"
    ]
    rails = [Rail("rail0", "192.168.100.0/24", P1[0]), POOLS[1]]
    assert doubted(planned(2, rails=rails), {"spark1": facts}) == [
        "enp1s0f0np0 has an address in 192.168.100.0/24; limit: netdev enp1s0f1np1 of the inventory; remedy: remove"
        " that address from enp1s0f0np0, or the pin from the inventory"
    ]


def test_a_pin_that_agrees_with_an_address():
    facts = address(spark(1, p0="cabled", p1="cabled"), P1[0], "192.168.100.10/24")
    assert one(facts, cage="p1") == P1


# --- one cable, or two ----------------------------------------------------------------------------------------------

CABLE = Rail("rail0", "10.1.0.0/30")


@pytest.mark.parametrize(("near", "far"), list(product(NETDEVS, NETDEVS)))
def test_one_cable_between_any_two_cages(near, far):
    facts = joined(2, ((1, near), (2, far)))
    assert found(planned(2, "direct"), facts) == {"spark1": NETDEVS[near], "spark2": NETDEVS[far]}


@pytest.mark.parametrize("asked", [True, False], ids=["neighbours known", "nobody asked"])
def test_one_cable_is_found_without_asking_who_is_there(asked):
    facts = joined(2, ((1, "p1"), (2, "p0")))
    for node in facts.values() if not asked else ():
        node["fabric"]["neighbours"] = {}
    assert found(planned(2, "direct"), facts) == {"spark1": P1, "spark2": P0}


@pytest.mark.parametrize("far", list(permutations(NETDEVS)), ids=["straight", "crossed"])
def test_of_two_cables_both_ends_choose_the_same(far):
    facts = joined(2, ((1, "p0"), (2, far[0])), ((1, "p1"), (2, far[1])))
    assert found(planned(2, "direct"), facts) == {"spark1": P0, "spark2": NETDEVS[far[0]]}


def test_of_two_cables_the_one_that_carries_a_rail_at_one_end_is_chosen_at_the_other():
    facts = joined(2, ((1, "p0"), (2, "p1")), ((1, "p1"), (2, "p0")))
    address(facts["spark1"], P1[0], "192.168.100.10/24")
    assert found(planned(2, "direct"), facts) == {"spark1": P1, "spark2": P0}


@pytest.mark.parametrize(("host", "pinned"), [("spark1", "p1"), ("spark2", "p0")])
def test_of_two_cables_a_pin_at_one_end_decides_for_the_other(host, pinned):
    facts = joined(2, ((1, "p0"), (2, "p1")), ((1, "p1"), (2, "p0")))
    assert found(planned(2, "direct", **{host: {"cage": pinned}}), facts) == {"spark1": P1, "spark2": P0}


# --- rings ----------------------------------------------------------------------------------------------------------


def circle(*ends):
    """Cables that close a circle of nodes 1..n; `ends` says for each node the cages to the last and to the next one."""
    count = len(ends)
    return [((n + 1, ends[n][1]), ((n + 1) % count + 1, ends[(n + 1) % count][0])) for n in range(count)]


def links_of(intents, facts, host):
    """{link of the first rail: interface} and the same of the second, of one node in a ring."""
    (intent,) = [found_ for name, found_ in resolve(intents, facts).intents.items() if name == host]
    return {rail.name: rail.netdev for rail in intent.rails}


def test_a_ring_of_three():
    facts = joined(3, *circle(("p1", "p0"), ("p1", "p0"), ("p1", "p0")))
    assert links_of(planned(3, "ring"), facts, "spark1") == {
        "rail0.link0": P0[0],
        "rail1.link0": P0[1],
        "rail0.link2": P1[0],
        "rail1.link2": P1[1],
    }
    assert links_of(planned(3, "ring"), facts, "spark2") == {
        "rail0.link0": P1[0],
        "rail1.link0": P1[1],
        "rail0.link1": P0[0],
        "rail1.link1": P0[1],
    }


@given(st.lists(st.permutations(["p0", "p1"]), min_size=3, max_size=8))
def test_in_a_ring_of_any_cabling_each_link_is_on_the_cage_of_its_cable(ends):
    count = len(ends)
    facts = joined(count, *circle(*ends))
    resolution = resolve(planned(count, "ring"), facts)
    assert resolution.doubts == {}
    for rank, (last, following) in enumerate(ends):
        got = {rail.name: rail.netdev for rail in resolution.intents[f"spark{rank + 1}"].rails}
        for twin in range(2):
            assert got[f"rail{twin}.link{rank}"] == NETDEVS[following][twin]
            assert got[f"rail{twin}.link{(rank - 1) % count}"] == NETDEVS[last][twin]


def test_the_answers_of_one_side_are_enough():
    facts = joined(4, *circle(*[("p1", "p0")] * 4))
    for host in ("spark1", "spark3"):
        facts[host]["fabric"]["neighbours"] = {}
    assert resolve(planned(4, "ring"), facts).doubts == {}


def test_once_a_ring_has_its_addresses_nobody_needs_to_be_asked():
    intents = resolve(planned(4, "ring"), joined(4, *circle(*[("p1", "p0")] * 4))).intents
    facts = {f"spark{n}": spark(n, p0="cabled", p1="cabled") for n in range(1, 5)}
    for host, intent in intents.items():
        for rail in intent.rails:
            address(facts[host], rail.netdev, rail.cidr)
    assert resolve(planned(4, "ring"), facts).intents == intents


def test_one_address_of_a_link_is_enough_for_its_other_rail():
    facts = {f"spark{n}": spark(n, p0="cabled", p1="cabled") for n in range(1, 4)}
    address(facts["spark1"], P1[0], "192.168.100.0/31")
    resolution = resolve(planned(3, "ring"), facts)
    got = {rail.name: rail.netdev for rail in resolution.intents["spark1"].rails}
    assert (got["rail0.link0"], got["rail1.link0"]) == P1
    assert {doubt.rail for doubt in resolution.doubts["spark1"]} == {"rail0.link2", "rail1.link2"}


def test_cables_that_were_moved_count_for_more_than_addresses():
    intents = resolve(planned(3, "ring"), joined(3, *circle(*[("p1", "p0")] * 3))).intents
    facts = joined(3, *circle(("p0", "p1"), ("p1", "p0"), ("p1", "p0")))
    for host, intent in intents.items():
        for rail in intent.rails:
            address(facts[host], rail.netdev, rail.cidr)
    assert links_of(planned(3, "ring"), facts, "spark1") == {
        "rail0.link0": P1[0],
        "rail1.link0": P1[1],
        "rail0.link2": P0[0],
        "rail1.link2": P0[1],
    }


def test_in_a_ring_tcp_uses_the_interface_with_the_management_address():
    facts = joined(3, *circle(*[("p1", "p0")] * 3))
    assert {i.socket_netdev for i in resolve(planned(3, "ring"), facts).intents.values()} == {"enP7s7"}
    facts["spark2"]["fabric"]["netdevs"]["enP7s7"]["addresses"] = ["10.0.0.99/24"]
    resolution = resolve(planned(3, "ring"), facts)
    assert not resolution.intents["spark2"].rails_found
    assert doubted(planned(3, "ring"), facts, "spark2") == [
        "no interface has the management address 10.0.0.12; limit: one that all nodes reach: in a ring the rendezvous"
        " and NCCL's bootstrap use it; remedy: write the node's own IPv4 address as ansible_host"
    ]


def test_on_a_switch_tcp_uses_the_first_rail():
    resolution = resolve(planned(2), {"spark1": spark(1, p1="cabled")})
    assert resolution.intents["spark1"].socket_netdev == P1[0]


NOBODY = "behind p0 (enp1s0f0np0, enP2p1s0f0np0) cabled, p1 (enp1s0f1np1, enP2p1s0f1np1) cabled"
NEXT = "which has the next or the last rank"


def test_cables_in_another_order_than_the_ranks():
    order = [1, 3, 2, 4]
    cables = [((a, "p0"), (b, "p1")) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    assert doubted(planned(4, "ring"), joined(4, *cables)) == [
        f"nobody of spark2 answers {NOBODY}: p0 leads to spark3; p1 leads to spark4; limit: a cable to spark2, {NEXT};"
        " remedy: give the ranks in the order of the cables: sparkwright_rank of spark1 0, spark3 1, spark2 2, spark4"
        " 3; or move the cables"
    ]


def test_a_cable_that_is_missing():
    facts = joined(3, *circle(*[("p1", "p0")] * 3)[:2])
    assert doubted(planned(3, "ring"), facts) == [
        "nobody of spark3 answers behind p0 (enp1s0f0np0, enP2p1s0f0np0) cabled, p1 (enp1s0f1np1, enP2p1s0f1np1) dark:"
        f" p0 leads to spark2; limit: a cable to spark3, {NEXT}; remedy: join spark1 and spark3 by a cable; both ends"
        " need link-local IPv6 addresses"
    ]


def test_nobody_answers_at_all():
    facts = {f"spark{n}": spark(n, p0="cabled", p1="cabled") for n in range(1, 4)}
    assert doubted(planned(3, "ring"), facts) == [
        f"nobody of {peer} answers {NOBODY}; limit: a cable to {peer}, {NEXT}; remedy: join spark1 and {peer} by a"
        " cable; both ends need link-local IPv6 addresses"
        for peer in ("spark2", "spark3")
    ]


@pytest.mark.parametrize("sleeper", ["spark1", "spark2"])
def test_links_that_are_down_at_either_end_may_hide_a_cable(sleeper):
    facts = joined(3, *circle(*[("p1", "p0")] * 3)[1:])
    facts[sleeper] = spark(int(sleeper[-1]), p0="asleep", p1="asleep")
    for host in ("spark1", "spark2"):
        hidden = {doubt.rail: doubt for doubt in resolve(planned(3, "ring"), facts).doubts[host]}
        assert hidden["rail0.link0"].asleep
        assert hidden["rail0.link0"].remedy == "run site.yml, which brings the links up and looks again"


def test_two_cables_to_one_neighbour():
    facts = joined(3, ((1, "p0"), (2, "p0")), ((1, "p1"), (2, "p1")))
    assert doubted(planned(3, "ring"), facts)[0] == (
        "p0 (enp1s0f0np0, enP2p1s0f0np0) and p1 (enp1s0f1np1, enP2p1s0f1np1) both lead to spark2; limit: one cable to"
        " each neighbour; remedy: move one of the two cables, so that each neighbour has one"
    )


# --- what is left alone ---------------------------------------------------------------------------------------------


def test_a_node_whose_fabric_was_not_read_keeps_its_intent():
    intents = planned(3)
    unread = {**node_facts(1), "fabric": GONE}
    del unread["fabric"]
    gone = {"reachable": False, "privileged": False, "reason": "timed out"}
    resolution = resolve(intents, {"spark1": spark(1, p0="cabled"), "spark2": unread, "spark3": gone})
    assert resolution.doubts == {}
    assert resolution.intents["spark1"].rails_found
    assert [resolution.intents[host] for host in ("spark2", "spark3")] == [intents["spark2"], intents["spark3"]]


def test_looking_again_finds_the_same():
    facts = {"spark1": spark(1, p1="cabled"), "spark2": spark(2, p0="cabled")}
    once = resolve(planned(2), facts)
    assert resolve(planned(2), facts) == once
    assert used_cages(facts["spark1"]["fabric"], once.intents["spark1"])[0].name == "p1"
