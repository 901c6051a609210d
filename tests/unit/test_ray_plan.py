"""A rank's part in Ray: its command line and back, who must register, and what is said when somebody does not."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.ray_plan import (
    RayPlan,
    ended,
    gone,
    missing,
    node_id,
    node_rank,
    strangers,
)

RANKS = {"spark1": "10.0.0.1", "spark2": "10.0.0.2", "spark3": "10.0.0.3"}
START = ["ray", "start", "--head"]
SERVE = ["vllm", "serve", "/models/big", "--", '{"a": "b c"}']
ALL = {"10.0.0.1": "00", "10.0.0.2": "01", "10.0.0.3": "02"}
REMEDY = "then run playbooks/start.yml"


def plan(rank=0, serve=()):
    return RayPlan(rank, RANKS, 26479, 900, START, list(serve))


@pytest.mark.parametrize("wanted", [plan(0, SERVE), plan(2)])
def test_a_command_line_carries_the_whole_plan(wanted):
    behind = ["--", *wanted.serve] if wanted.serve else []
    assert RayPlan.from_arguments([*wanted.as_arguments(), *behind]) == wanted


@pytest.mark.parametrize("arguments", [[], ["--rank", "0"], ["--", "ray"], ["--rank", "--", "ray"]])
def test_another_command_line_is_no_plan(arguments):
    with pytest.raises((ValueError, KeyError)):
        RayPlan.from_arguments(arguments)


def test_the_head_looks_at_all_and_a_worker_at_the_head_and_itself():
    assert plan(0).watched == {host: (address, 26480) for host, address in RANKS.items()}
    assert plan(2).watched == {"spark1": ("10.0.0.1", 26480), "spark3": ("10.0.0.3", 26480)}
    assert (plan(2).meeting_point, plan(2).address, plan(2).host) == ("10.0.0.1:26479", "10.0.0.3", "spark3")


def test_the_names_of_nodes_sort_by_rank_and_are_as_long_as_rays_own():
    names = [node_id(rank, "f0" * 28) for rank in (11, 2, 0, 7)]
    assert [node_rank(name) for name in sorted(names)] == [0, 2, 7, 11]
    assert {len(name) for name in names} == {56}


@pytest.mark.parametrize(
    ("registered", "hosts"),
    [
        (ALL, []),
        ({}, ["spark1", "spark2", "spark3"]),
        ({"10.0.0.1": "00", "10.0.0.3": "02"}, ["spark2"]),
        ({**ALL, "192.168.1.9": "03"}, []),
    ],
)
def test_who_is_missing(registered, hosts):
    assert [line.partition(":")[0] for line in missing(plan(), registered)] == hosts


def test_a_missing_rank_is_named_with_its_address():
    assert missing(plan(), {"10.0.0.1": "00", "10.0.0.2": "01"}) == [
        "spark3: rank 2 has not registered 10.0.0.3 with Ray at 10.0.0.1:26479; limit: all 3 ranks within 15 minutes;"
        f" remedy: look at `journalctl -u sparkwright-engine` on spark3, {REMEDY}"
    ]


def test_the_address_of_a_lan_is_a_stranger():
    assert strangers(plan(), ALL) == []
    assert strangers(plan(), {**ALL, "192.168.1.9": "03"}) == [
        "spark1: 192.168.1.9 is registered with Ray at 10.0.0.1:26479; limit: 10.0.0.1, 10.0.0.2, 10.0.0.3 alone;"
        f" remedy: end the Ray that joined from there, {REMEDY}"
    ]


def test_what_is_said_of_a_rank_that_is_gone():
    assert gone(plan(), "spark2") == (
        "spark2: rank 1 is gone: nothing answers at 10.0.0.2:26480; limit: it runs as long as rank 0 on spark1; remedy:"
        f" look at `journalctl -u sparkwright-engine` on spark2, {REMEDY}"
    )


def test_what_is_said_of_a_process_that_ended():
    assert ended(plan(1), "Ray", -9) == (
        f"spark2: Ray of rank 1 ended with -9; limit: it runs until stopped; remedy: read the log above, {REMEDY}"
    )
