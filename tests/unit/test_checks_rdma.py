"""What the results of all nodes amount to: one thing is wrong, and the lines that are not ok say so."""

from __future__ import annotations

import pytest
from builders import cluster, findings

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Status
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_rdma import (
    judge,
    probe_ends,
    promising_ends,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_schedule import make_schedule

HOSTS = ("spark1", "spark2", "spark3")
NETDEVS = ("enp1s0f0np0", "enP2p1s0f0np0")
LIMIT = "all peers, and 60 Gb/s on a link of 200000 Mb/s"
CABLE = "check cable, MTU and GIDs of enp1s0f0np0 on both nodes with playbooks/doctor.yml"
CARD = "bring the firmware of the card up to date, and compare the PCIe width of enp1s0f0np0 with x4 in `lspci -vv`"
INSTALL = "install perftest on every Spark; a machine without RDMA devices has nothing to try"


def address(rail, host):
    return f"192.168.{100 + rail}.{10 + HOSTS.index(host)}"


ENDS = {
    host: [
        {
            "rail": f"rail{rail}",
            "netdev": netdev,
            "address": address(rail, host),
            "peers": {peer: address(rail, peer) for peer in HOSTS if peer != host},
        }
        for rail, netdev in enumerate(NETDEVS)
    ]
    for host in HOSTS
}


def healthy(gbits=97.4):
    """Every run went well, as the nodes report it."""
    runs = make_schedule(ENDS, {})
    return {
        host: {"available": True, "reason": "", "runs": [run.result(gbits=gbits) for run in own]}
        for host, own in runs.items()
    }


def speeds(mbits=200_000):
    return {host: dict.fromkeys(NETDEVS, mbits) for host in HOSTS}


def with_run(host, peer, rail="rail0", **changes):
    """A healthy cluster in which one end of one run has another result."""
    probes = healthy()
    (run,) = [run for run in probes[host]["runs"] if (run["peer"], run["rail"]) == (peer, rail)]
    run.update(changes)
    return probes


def without_run(host, peer, rail="rail0"):
    probes = healthy()
    probes[host]["runs"] = [run for run in probes[host]["runs"] if (run["peer"], run["rail"]) != (peer, rail)]
    return probes


def unavailable(*hosts, reason="there is no /dev/infiniband"):
    """These nodes could not probe, so the runs of the others with them failed."""
    probes = healthy()
    for host in HOSTS:
        for run in probes[host]["runs"]:
            if run["peer"] in hosts:
                run.update(ok=False, gbits=None, reason="nobody listened there")
    return probes | {host: {"available": False, "reason": reason, "runs": []} for host in hosts}


def lines(probes, link=200_000):
    return [
        f"{check.status} {check.name} {check}" for check in judge(ENDS, probes, speeds(link)) if check.status != "ok"
    ]


def test_each_rail_of_each_node_has_one_result_and_the_slowest_peer_in_it():
    probes = with_run("spark2", "spark3", gbits=91.23)
    found = list(judge(ENDS, probes, speeds()))
    assert [(check.id, check.host, check.subject) for check in found] == [
        ("fabric.rdma-write", host, f"rail{rail}") for host in HOSTS for rail in range(2)
    ]
    assert {check.status for check in found} == {Status.OK}
    assert [str(check) for check in found if check.host == "spark2"] == [
        f"spark2: writes on {netdev} passed with 2 of 2 peers, the slowest at {slowest}; limit: {LIMIT}"
        for netdev, slowest in zip(NETDEVS, ("91.23 Gb/s with spark3", "97.4 Gb/s with spark1"), strict=True)
    ]


CASES = {
    "a failed run": (
        with_run("spark2", "spark1", ok=False, gbits=None, reason="the peer acknowledged no write (status 12)"),
        "refuse fabric.rdma-write rail0 spark2: writes on enp1s0f0np0 passed with 1 of 2 peers; with spark1: the peer"
        f" acknowledged no write (status 12); limit: all peers; remedy: {CABLE}",
    ),
    "a run that nobody reports": (
        without_run("spark2", "spark1"),
        "refuse fabric.rdma-write rail0 spark2: writes on enp1s0f0np0 passed with 1 of 2 peers; with spark1: not"
        f" tried, or not reported; limit: all peers; remedy: {CABLE}",
    ),
    "a slow rail": (
        with_run("spark2", "spark1", gbits=23.9),
        "warn fabric.rdma-write rail0 spark2: writes on enp1s0f0np0 passed with 2 of 2 peers, the slowest at 23.9 Gb/s"
        f" with spark1; limit: {LIMIT}; remedy: {CARD}",
    ),
    "just below the bar": (
        with_run("spark2", "spark1", gbits=59.99),
        "warn fabric.rdma-write rail0 spark2: writes on enp1s0f0np0 passed with 2 of 2 peers, the slowest at 59.99 Gb/s"
        f" with spark1; limit: {LIMIT}; remedy: {CARD}",
    ),
    "on the bar": (with_run("spark2", "spark1", gbits=60.0),),
    "a run without a figure": (with_run("spark2", "spark1", gbits=None),),
    "a slow rail that also failed": (
        with_run("spark2", "spark1", gbits=23.9, ok=False, reason="no"),
        "refuse fabric.rdma-write rail0 spark2: writes on enp1s0f0np0 passed with 1 of 2 peers; with spark1: no; limit:"
        f" all peers; remedy: {CABLE}",
    ),
    "a node that cannot probe is no failure of the others": (
        unavailable("spark3"),
        *(
            f"warn fabric.rdma-write rail{rail} {host}: writes on {netdev} were not tried with spark3; limit: all"
            f" peers; remedy: {INSTALL}"
            for host in HOSTS[:2]
            for rail, netdev in enumerate(NETDEVS)
        ),
        "warn fabric.rdma-write spark3: RDMA writes were not tried: there is no /dev/infiniband; limit: all peers on"
        f" all rails; remedy: {INSTALL}",
    ),
    "nodes that cannot probe": (
        unavailable(*HOSTS, reason="ib_write_bw is not installed (package perftest)"),
        *(
            f"warn fabric.rdma-write {host}: RDMA writes were not tried: ib_write_bw is not installed (package"
            f" perftest); limit: all peers on all rails; remedy: {INSTALL}"
            for host in HOSTS
        ),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_thing_is_wrong(case):
    probes, *expected = case
    assert lines(probes) == expected


@pytest.mark.parametrize("link", [None, 1000, 100_000, -1], ids=str)
def test_only_a_link_of_full_speed_has_a_bar(link):
    """Soft-RoCE moves less than 1 Gb/s, and its interfaces show no speed or another one."""
    probes = healthy(gbits=0.4)
    assert lines(probes, link) == []
    assert len(lines(probes)) == 6


def test_a_run_that_failed_for_another_reason_than_the_node_that_cannot_probe_is_a_failure():
    probes = unavailable("spark3")
    failed = {"ok": False, "gbits": None, "reason": "the other end gave up"}
    for run in probes["spark1"]["runs"]:
        run.update(failed if run["peer"] == "spark2" else {})
    found = [line for line in lines(probes) if " spark1: " in line]
    assert [line.split(";")[0] for line in found] == [
        f"refuse fabric.rdma-write rail{rail} spark1: writes on {netdev} passed with 0 of 1 peers"
        for rail, netdev in enumerate(NETDEVS)
    ]


def test_a_node_that_was_not_asked_has_no_result_and_is_a_failure_of_the_others():
    probes = unavailable("spark3")
    del probes["spark3"]
    found = list(judge(ENDS, probes, speeds()))
    assert {(check.host, check.status) for check in found} == {("spark1", Status.REFUSE), ("spark2", Status.REFUSE)}
    assert "1 of 2 peers; with spark3: nobody listened there" in found[0].fact


def peers_by_rail(ends, host):
    return {end["rail"]: sorted(end["peers"]) for end in ends[host]}


def test_every_peer_that_answers_to_a_ping_is_worth_a_try():
    found = cluster()
    assert promising_ends(found) == probe_ends(found)
    others = ["spark2", "spark3", "spark4"]
    assert peers_by_rail(promising_ends(found), "spark1") == {"rail0": others, "rail1": others}


@pytest.mark.parametrize(
    "silent", [("spark1", "192.168.100.10 192.168.100.11"), ("spark2", "192.168.100.11 192.168.100.10")]
)
def test_a_ping_that_fails_in_one_direction_leaves_out_the_pair_on_that_rail(silent):
    host, ping = silent
    ends = promising_ends(cluster(facts={(host, "fabric", "pings", ping): False}))
    assert peers_by_rail(ends, "spark1") == {"rail0": ["spark3", "spark4"], "rail1": ["spark2", "spark3", "spark4"]}
    assert peers_by_rail(ends, "spark2") == {"rail0": ["spark3", "spark4"], "rail1": ["spark1", "spark3", "spark4"]}


def test_the_catalogue_judges_what_the_nodes_were_asked_for_and_is_silent_otherwise():
    found = cluster()
    runs = make_schedule(promising_ends(found), {})
    probes = {
        host: {"available": True, "reason": "", "runs": [run.result(gbits=97.4) for run in own]}
        for host, own in runs.items()
    }
    probes["spark2"]["runs"][0].update(ok=False, reason="the peer left")
    assert [line for line in findings(cluster(rdma=probes)) if "rdma-write" in line] == [
        "refuse fabric.rdma-write spark2: writes on enp1s0f0np0 passed with 2 of 3 peers; with "
        f"{probes['spark2']['runs'][0]['peer']}: the peer left; limit: all peers; remedy: {CABLE}"
    ]
    assert [line for line in findings(cluster()) if "rdma-write" in line] == []
