"""The order of the RDMA runs: what must be true of it for any cluster, and two that are small enough to read."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_schedule import (
    CLIENT,
    PORT_BASE,
    RUN_SECONDS,
    SERVER,
    WAIT_SECONDS,
    latest_start,
    longest,
    make_schedule,
    tournament,
)

COUNTS = st.integers(2, 8)


def address(rail, host):
    return f"192.168.{100 + rail}.{10 + host}"


def switched(count, rails=2):
    """Every node reaches every other one on every rail."""
    hosts = range(count)
    return {
        f"spark{host}": [
            {
                "rail": f"rail{rail}",
                "netdev": f"net{rail}",
                "address": address(rail, host),
                "peers": {f"spark{peer}": address(rail, peer) for peer in hosts if peer != host},
            }
            for rail in range(rails)
        ]
        for host in hosts
    }


def ring(count):
    """Each cage is cabled to the other cage of a neighbour; both twins of a cable are rails, named by their cage."""
    ends = {f"spark{host}": [] for host in range(count)}
    for host in range(count):
        peer = (host + 1) % count
        for twin in range(2):
            here, there = f"10.{host}.{twin}.1", f"10.{host}.{twin}.2"
            names = {"netdev": f"net{twin}", "rail": f"p0-{twin}"}
            ends[f"spark{host}"].append({**names, "address": here, "peers": {f"spark{peer}": there}})
            names = {"netdev": f"net{2 + twin}", "rail": f"p1-{twin}"}
            ends[f"spark{peer}"].append({**names, "address": there, "peers": {f"spark{host}": here}})
    return ends


CLUSTERS = st.one_of(st.builds(switched, COUNTS, st.integers(1, 4)), st.builds(ring, st.integers(3, 8)))


def links_of(ends):
    """All cables, or paths through the switch, as pairs of addresses."""
    return {
        frozenset((end["address"], there)) for own in ends.values() for end in own for there in end["peers"].values()
    }


@given(CLUSTERS)
def test_every_pair_meets_exactly_once_on_every_rail(ends):
    runs = [run for own in make_schedule(ends, {}).values() for run in own]
    met = Counter(frozenset((run.gid_address, run.peer_address)) for run in runs)
    assert met == dict.fromkeys(links_of(ends), 2), "each link has its two ends"


@given(CLUSTERS)
def test_a_node_has_one_run_in_a_round_and_rounds_have_no_gaps(ends):
    schedule = make_schedule(ends, {})
    for runs in schedule.values():
        rounds = [run.round for run in runs]
        assert rounds == sorted(set(rounds))
    assert {run.round for runs in schedule.values() for run in runs} == set(range(last_round(schedule) + 1))


def last_round(schedule):
    return max(run.round for runs in schedule.values() for run in runs)


@given(CLUSTERS)
def test_the_ends_of_a_run_agree_and_its_port_is_its_own(ends):
    schedule = make_schedule(ends, {})
    hosts = list(ends)
    by_port = {}
    for host, runs in schedule.items():
        for run in runs:
            by_port.setdefault(run.port, []).append((host, run))
    for (low, one), (high, other) in by_port.values():
        assert (one.peer, other.peer, one.round) == (high, low, other.round)
        assert (one.gid_address, one.peer_address) == (other.peer_address, other.gid_address)
        assert (one.role, other.role) == (SERVER, CLIENT)
        assert hosts.index(low) < hosts.index(high), "the lower rank listens"
    assert sorted(by_port) == list(range(PORT_BASE, PORT_BASE + len(links_of(ends))))


@given(COUNTS, st.integers(1, 4))
def test_behind_a_switch_a_tournament_takes_as_few_rounds_as_there_can_be(count, rails):
    assert last_round(make_schedule(switched(count, rails), {})) + 1 == rails * (count - 1 + count % 2)


@given(COUNTS)
def test_in_a_tournament_every_two_meet_once_and_nobody_twice_in_a_round(count):
    hosts = [f"spark{number}" for number in range(count)]
    rounds = list(tournament(hosts))
    assert Counter(pair for round_ in rounds for pair in round_) == dict.fromkeys(combinations(hosts, 2), 1)
    for round_ in rounds:
        assert len({host for pair in round_ for host in pair}) == 2 * len(round_)


def test_two_nodes_with_two_rails():
    devices = {"spark0": {"net0": "rocep1s0f0", "net1": "roceP2p1s0f0"}, "spark1": {"net0": "rocep1s0f0"}}
    schedule = make_schedule(switched(2), devices)
    assert [run.as_data() for run in schedule["spark0"]] == [
        {
            "round": number,
            "rail": f"rail{number}",
            "role": "server",
            "device": ("rocep1s0f0", "roceP2p1s0f0")[number],
            "gid_address": f"192.168.{100 + number}.10",
            "peer": "spark1",
            "peer_address": f"192.168.{100 + number}.11",
            "port": 18700 + number,
        }
        for number in range(2)
    ]
    assert [(run.role, run.device) for run in schedule["spark1"]] == [(CLIENT, "rocep1s0f0"), (CLIENT, None)]


def test_in_a_ring_of_four_only_neighbours_meet_each_at_its_own_end_of_the_cable():
    schedule = make_schedule(ring(4), {})
    assert {(run.peer, run.rail) for run in schedule["spark0"]} == {
        ("spark1", "p0-0"),
        ("spark1", "p0-1"),
        ("spark3", "p1-0"),
        ("spark3", "p1-1"),
    }
    assert last_round(schedule) + 1 == 4, "the two rounds of opposite nodes have no runs and take no time"


def test_nodes_without_rails_have_no_runs():
    assert make_schedule({"spark1": [], "spark2": []}, {}) == {"spark1": [], "spark2": []}
    assert longest({"spark1": [], "spark2": []}) == 0


@pytest.mark.parametrize("wrong", [{"spark0": "192.168.100.99"}, {}], ids=["another address", "no way back"])
def test_ends_that_do_not_name_each_other_are_an_error(wrong):
    ends = switched(2, rails=1)
    ends["spark1"][0]["peers"] = wrong
    with pytest.raises(ValueError, match=r"^rail0 of spark0 leads to 192.168.100.11 of spark1, whose end there does"):
        make_schedule(ends, {})


def test_an_end_waits_until_a_peer_that_lost_all_its_time_before_is_free():
    waits = [latest_start(round_) for round_ in range(4)]
    assert waits[0] == WAIT_SECONDS
    assert [later - earlier for earlier, later in pairwise(waits)] == [RUN_SECONDS] * 3


def test_the_longest_time_is_that_of_the_last_round_and_its_run():
    schedule = make_schedule(switched(4), {})
    assert longest(schedule) == WAIT_SECONDS + 6 * RUN_SECONDS
    assert longest(schedule, wait=5) == 5 + 6 * RUN_SECONDS
