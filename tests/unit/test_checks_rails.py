"""Checks of where the rails are: the interface of each, the cage, the twin; on nodes whose rails were looked for."""

from __future__ import annotations

import pytest
from builders import DEVICE1, GONE, cluster, findings
from wiring import NETDEVS, POOLS, address, joined, planned, spark

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import CATALOGUE, run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Cluster, Stage, Status
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import resolve

P0, P1 = NETDEVS["p0"], NETDEVS["p1"]
RULES = {rule.id: rule for rule in CATALOGUE}


def seen(intents, facts):
    """The cluster as the controller sees it."""
    resolution = resolve(intents, facts)
    return Cluster(facts, resolution.intents, doubts=resolution.doubts)


def switched(**facts):
    """Two nodes on a switch; one that is not given has its cable in p0."""
    both = {"spark1": spark(1, p0="cabled"), "spark2": spark(2, p0="cabled"), **facts}
    return seen(planned(2), both)


def lines(id_, subject):
    """What one check says that is not ok."""
    return [
        f"{check.status} {check.name} {check}" for check in RULES[id_].run(subject) if check.status is not Status.OK
    ]


@pytest.mark.parametrize("id_", ["fabric.rail", "fabric.awake", "fabric.cage", "fabric.twins"])
@pytest.mark.parametrize("cage", NETDEVS)
def test_a_node_with_one_cable_in_either_cage_is_right(id_, cage):
    subject = switched(spark2=spark(2, **{cage: "cabled"}))
    assert lines(id_, subject) == []
    assert {check.host for check in RULES[id_].run(subject)} == {"spark1", "spark2"}


def test_a_rail_that_was_not_found_has_its_reason():
    subject = switched(spark2=spark(2))
    reason = (
        "no cage has a carrier: p0 (enp1s0f0np0, enP2p1s0f0np0) dark, p1 (enp1s0f1np1, enP2p1s0f1np1) dark; limit: a"
        " cable in one of them; remedy: plug in the cable at both ends, and switch on what is at the other end"
    )
    assert lines("fabric.rail", subject) == [f"refuse fabric.rail rail{n} spark2: {reason}" for n in range(2)]
    assert lines("fabric.awake", subject) == []


def test_without_its_interfaces_no_other_check_of_a_rail_stumbles():
    """What cannot be looked at is said once, and not by every check."""
    subject = switched(spark2=spark(2, p0=None, p1=None))
    of_spark2 = {check.id for check in run_checks(subject) if check.host == "spark2" and "rail" in check.subject}
    assert of_spark2 - {"fabric.networkmanager"} == {"fabric.rail"}


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.FABRIC, Stage.LAUNCH])
def test_a_rail_that_was_not_found_stops_every_stage(stage):
    checks = run_checks(switched(spark2=spark(2)), stage)
    assert any(check.id == "fabric.rail" and check.status is Status.REFUSE for check in checks)


def test_a_link_that_hides_a_cable_is_no_refusal_before_the_role_has_brought_it_up():
    facts = joined(3, ((1, "p0"), (2, "p1")), ((2, "p0"), (3, "p1")))
    facts["spark1"] = spark(1, p0="asleep", p1="asleep")
    subject = seen(planned(3, "ring"), facts)
    assert lines("fabric.rail", subject) == []
    assert {line.split(":")[0] for line in lines("fabric.awake", subject)} == {
        f"refuse fabric.awake {rail} {host}"
        for host, links in (("spark1", (0, 2)), ("spark2", (0,)), ("spark3", (2,)))
        for rail in (f"rail{n}.link{link}" for n in range(2) for link in links)
    }
    assert RULES["fabric.awake"].stages == {Stage.FABRIC, Stage.LAUNCH}
    assert lines("fabric.cage", subject)[0] == (
        "warn fabric.cage spark1: nobody can see whether p0 (enp1s0f0np0, enP2p1s0f0np0) and p1 (enp1s0f1np1,"
        " enP2p1s0f1np1) has a cable, as its links are down; limit: a cable where a rail is, and no other; remedy:"
        " nothing: site.yml brings the links up and looks again"
    )


def test_a_cage_that_was_only_assumed_is_a_warning():
    subject = switched(spark2=spark(2, p0="asleep", p1="asleep"))
    assert lines("fabric.cage", subject) == [
        "warn fabric.cage spark2: nobody can see whether p0 (enp1s0f0np0, enP2p1s0f0np0) has a cable, as its links are"
        " down; limit: a cable where a rail is, and no other; remedy: nothing: site.yml brings the links up and looks"
        " again"
    ]
    assert lines("fabric.rail", subject) == lines("fabric.awake", subject) == []


def test_a_second_cable_that_carries_nothing():
    assert lines("fabric.cage", switched(spark2=spark(2, p0="cabled", p1="cabled"))) == [
        "warn fabric.cage spark2: p1 (enp1s0f1np1, enP2p1s0f1np1) has a cable too, and only p0 (enp1s0f0np0,"
        " enP2p1s0f0np0) carries rails; limit: a cable where a rail is, and no other; remedy: pull that cable, or"
        " choose its cage with fabric_cage"
    ]


def test_in_a_ring_both_cages_are_in_use():
    facts = joined(3, ((1, "p0"), (2, "p1")), ((2, "p0"), (3, "p1")), ((3, "p0"), (1, "p1")))
    subject = seen(planned(3, "ring"), facts)
    for id_ in ("fabric.rail", "fabric.awake", "fabric.cage", "fabric.twins"):
        assert lines(id_, subject) == []
        assert {check.host for check in RULES[id_].run(subject)} == {"spark1", "spark2", "spark3"}


def test_one_rail_on_a_cable_of_two_twins_halves_the_decoding():
    facts = {"spark1": spark(1, p0="cabled"), "spark2": spark(2, p1="cabled")}
    subject = seen(planned(2, rails=POOLS[:1]), facts)
    assert lines("fabric.twins", subject) == [
        f"warn fabric.twins {cage} {host}: 1 of 2 twins of {cage} carry a rail, not {NETDEVS[cage][1]}; limit: all:"
        " with one rail decode halves, 9.4 against about 20 tok/s; remedy: add a second rail with a subnet of its own"
        " to fabric_rails"
        for host, cage in (("spark1", "p0"), ("spark2", "p1"))
    ]


def test_an_address_may_move_from_one_own_rail_to_another_but_not_to_other_interfaces():
    """Netplan takes it away there before it puts it here."""
    facts = joined(3, ((1, "p1"), (2, "p1")), ((2, "p0"), (3, "p1")), ((3, "p0"), (1, "p0")))
    address(facts["spark1"], P0[0], "192.168.100.0/31")
    address(facts["spark2"], "enP7s7", "192.168.100.5/31")
    assert [line.split(";")[0] for line in lines("fabric.address-taken", seen(planned(3, "ring"), facts))] == [
        "refuse fabric.address-taken rail0.link2 spark1: 192.168.100.5 is used by enP7s7 of spark2"
    ]


def test_an_intent_from_a_file_is_checked_on_the_node_as_it_is():
    """The node's own check has interfaces from the launch file, and nobody looks for them again."""
    changes = {("spark2", "fabric", "rdma", DEVICE1): GONE}
    assert findings(cluster(facts=changes))[0].startswith("refuse fabric.rdma spark2: enP2p1s0f0np0 has no RDMA device")
