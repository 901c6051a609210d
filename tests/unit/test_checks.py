"""The record of a check, the catalogue, the verdict and the table."""

from __future__ import annotations

import json
import re

import pytest
from builders import GONE, cluster

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import CATALOGUE, run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import (
    REGISTERED,
    Check,
    Cluster,
    Stage,
    Status,
    refusals,
    rule,
    table,
)

REFUSED = Check("a.b", "spark1", Status.REFUSE, "5 of 6 answer", "all", "look at spark6", "rail0")
IDLE_STAGES = [stage for stage in Stage if stage is not Stage.SERVING]


def not_ok(checks):
    return [str(check) for check in checks if check.status is not Status.OK]


# --- a healthy cluster ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("stage", IDLE_STAGES)
def test_a_healthy_cluster_that_is_down_passes_every_stage_before_the_launch(stage, count):
    assert not_ok(run_checks(cluster(count), stage)) == []


@pytest.mark.parametrize("stage", [*Stage, None])
def test_a_healthy_cluster_that_serves_passes_every_stage(stage):
    assert not_ok(run_checks(cluster(serving=True), stage)) == []


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_says_something_of_every_node(stage):
    assert {check.host for check in run_checks(cluster(), stage)} >= {f"spark{n}" for n in range(1, 5)}


def test_a_stage_runs_its_own_checks_alone():
    for stage in Stage:
        allowed = {rule.id for rule in CATALOGUE if stage in rule.stages}
        assert {check.id for check in run_checks(cluster(serving=True), stage)} <= allowed


def test_a_node_that_was_not_read_has_one_line():
    facts = {("spark2",): {"reachable": False, "privileged": False, "reason": "timed out"}}
    assert not_ok(run_checks(cluster(facts=facts), Stage.PREFLIGHT)) == [
        "spark2: no usable connection to 10.0.0.12: timed out; limit: every node answers, with sudo; "
        "remedy: check the address, the key and the host key with ssh, and sudo with -K"
    ]


# --- the catalogue --------------------------------------------------------------------------------------------------


def test_every_rule_is_in_the_catalogue_once():
    assert len(CATALOGUE) == len({rule.id for rule in CATALOGUE}) == len(REGISTERED)


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_a_rule_is_documented_and_is_a_gate_somewhere(entry):
    assert re.fullmatch(r"[a-z]+\.[a-z-]+", entry.id)
    assert re.fullmatch(r"[A-Z].*\.", entry.what)
    assert entry.stages


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_a_rule_returns_its_own_id(entry):
    for state in (False, True):
        assert {check.id for check in entry.run(cluster(serving=state))} <= {entry.id}


def test_checks_come_in_the_order_of_a_look_at_a_node():
    kinds = list(dict.fromkeys(entry.run.__module__.rpartition(".")[2] for entry in CATALOGUE))
    assert kinds == [
        "checks_node",
        "checks_tuning",
        "checks_memory",
        "checks_rails",
        "checks_links",
        "checks_fabric",
        "checks_nccl",
        "checks_rdma",
        "checks_share",
        "checks_weights",
        "checks_image",
        "checks_launch",
        "checks_serving",
        "checks_ray",
        "checks_updates",
    ]


def test_an_id_is_taken_once():
    with pytest.raises(ValueError, match=r"^the check fabric.mtu is already there$"):
        rule("fabric.mtu", "Again.", Stage.FABRIC)(lambda cluster: iter(()))


# --- the record -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "line"),
    [
        (REFUSED, "spark1: 5 of 6 answer; limit: all; remedy: look at spark6"),
        (Check("a.b", "spark1", Status.WARN, "odd"), "spark1: odd"),
        (Check("a.b", "spark1", Status.WARN, "odd", remedy="look"), "spark1: odd; remedy: look"),
        (Check("a.b", "spark1", Status.REFUSE, "two\nlines\t and  blanks"), "spark1: two lines and blanks"),
        (Check("a.b", "spark1", Status.OK, "fine", "all", "look"), "spark1: fine; limit: all"),
    ],
)
def test_a_check_is_one_line(check, line):
    assert str(check) == line


def test_a_check_is_plain_data():
    data = REFUSED.as_data()
    assert json.loads(json.dumps(data)) == data
    assert data == {
        "id": "a.b",
        "host": "spark1",
        "status": "refuse",
        "fact": "5 of 6 answer",
        "limit": "all",
        "remedy": "look at spark6",
        "subject": "rail0",
        "message": str(REFUSED),
    }


@pytest.mark.parametrize(("status", "stops"), [("ok", False), ("warn", False), ("refuse", True), ("unknown", True)])
def test_what_stops_a_verb(status, stops):
    check = Check("a.b", "spark1", Status(status), "fact")
    assert refusals([check]) == ([check] if stops else [])


def test_only_nodes_whose_section_was_read_are_asked():
    partly = cluster(facts={("spark3", "memory"): GONE})
    assert [host for host, _, _ in partly.having("memory")] == ["spark1", "spark2", "spark4"]
    assert list(Cluster({}, partly.intents).having("memory")) == []


def test_the_table_has_a_line_a_check_and_a_column_a_node():
    checks = [
        Check("a.b", "spark1", Status.OK, "fine", subject="rail0"),
        Check("a.b", "spark2", Status.REFUSE, "bad", "good", "mend it", subject="rail0"),
        Check("c.d", "controller", Status.WARN, "odd"),
    ]
    assert table(checks, ["spark1", "spark2"]).splitlines() == [
        "check      spark1  spark2  controller",
        "-------------------------------------",
        "a.b rail0  ok      refuse  -",
        "c.d        -       -       warn",
        "refuse: [a.b rail0] spark2: bad; limit: good; remedy: mend it",
        "warn: [c.d] controller: odd",
    ]


def test_an_empty_table_has_its_head():
    assert table([], ["spark1"]).splitlines()[0] == "check  spark1"
