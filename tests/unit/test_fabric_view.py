"""The picture's data: cages, twins and rails as the facts show them, and the worst that a check says of each end."""

from __future__ import annotations

from xml.etree import ElementTree

from builders import GONE, cluster

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Check, Status
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_picture import RailStatus, text
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_svg import svg
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_view import nodes_of, rails_of, statuses_of


def view(found):
    return nodes_of(found), rails_of(found), statuses_of(run_checks(found))


def test_a_healthy_cluster_has_its_rails_on_the_twins_of_one_cage():
    nodes, rails, statuses = view(cluster())
    assert rails == ["rail0", "rail1"]
    (used,) = [cage for cage in nodes["spark2"]["cages"] if any(netdev["rail"] for netdev in cage["netdevs"])]
    assert [(twin["netdev"], twin["device"], twin["rail"], twin["address"]) for twin in used["netdevs"]] == [
        ("enp1s0f0np0", "rocep1s0f0", "rail0", "192.168.100.11/24"),
        ("enP2p1s0f0np0", "roceP2p1s0f0", "rail1", "192.168.101.11/24"),
    ]
    assert {status.status for status in statuses.values()} == {Status.OK}


def test_the_worst_check_of_an_end_is_its_status_and_the_first_of_these_its_reason():
    checks = [
        Check("fabric.link", "spark1", Status.WARN, "slow", subject="rail0"),
        Check("fabric.mtu", "spark1", Status.REFUSE, "the MTU is 1500", subject="rail0"),
        Check("fabric.gid", "spark1", Status.REFUSE, "no GID", subject="rail0"),
        Check("fabric.path", "spark1", Status.OK, "3 of 3", subject="rail0"),
        Check("fabric.serving", "spark1", Status.REFUSE, "about the node"),
        Check("memory.headroom", "spark1", Status.REFUSE, "about memory", subject="rail0"),
    ]
    assert statuses_of(checks) == {("spark1", "rail0"): RailStatus(Status.REFUSE, "the MTU is 1500")}


def test_the_links_of_a_ring_are_shown_as_their_rails():
    checks = [
        Check("fabric.mtu", "spark1", Status.OK, "9000", subject="rail0.link0"),
        Check("fabric.mtu", "spark1", Status.REFUSE, "the MTU is 1500", subject="rail0.link2"),
    ]
    assert statuses_of(checks) == {("spark1", "rail0"): RailStatus(Status.REFUSE, "the MTU is 1500")}


def test_what_is_broken_stands_in_the_table_and_in_the_drawing():
    found = cluster(facts={("spark3", "fabric", "netdevs", "enp1s0f0np0", "mtu"): 1500})
    shown = view(found)
    assert "refuse: spark3 rail0 (enp1s0f0np0): the MTU of enp1s0f0np0 is 1500" in text(*shown)
    drawing = ElementTree.fromstring(svg(*shown, "switch"))
    assert "the MTU of enp1s0f0np0 is 1500" in " ".join(drawing.itertext())


def test_a_node_without_facts_is_in_the_picture_without_interfaces():
    found = cluster(facts={("spark4", "fabric"): GONE})
    assert nodes_of(found)["spark4"] == {"rank": 3, "cages": []}
    assert "no interface" in text(*view(found))
