"""Nodes that are headless: put back, killed half way and turned off again, compared with how they were at first.

The tests build on each other; the nodes are headless before and after.
"""

from __future__ import annotations

import json

import pytest
from driver import LAB, play

CONVERGE, RESTORE = "molecule/headless/converge.yml", "playbooks/restore.yml"
NODES = ("spark1", "spark2", "spark3", "spark4")
RECORD = "/var/lib/sparkwright/before.json"
COMPARE = "headless-snapshot > /var/tmp/headless-now.txt; diff /var/tmp/headless-before.txt /var/tmp/headless-now.txt"


@pytest.fixture
def record(on_node):
    """The record of a node."""
    return lambda node, name=RECORD: json.loads(on_node(node, f"cat {name}"))


@pytest.fixture
def assert_as_before(on_node):
    """Nothing is different from the snapshot that was taken before the first run."""

    def compare(*nodes: str) -> None:
        assert {node: on_node(node, f"{COMPARE} || true") for node in nodes} == dict.fromkeys(nodes, "")

    return compare


@pytest.fixture
def die_at(on_node):
    """Let the module die at the next call of systemctl with these words, on one node."""
    yield lambda node, words: on_node(node, f"headless-die '{words}'")
    for node in NODES:
        on_node(node, "rm -f /usr/local/sbin/systemctl")


def test_a_unit_of_the_users_own_list_that_no_node_has_is_warned_about():
    run = play(CONVERGE)
    assert (run.code, run.changed) == (0, [])
    assert "headless_more names no-such.service, which this node lacks" in " ".join(run.output.split())


def test_nothing_is_put_back_on_any_node_while_one_of_them_serves(on_node, record):
    on_node("spark2", "systemd-run --quiet --unit=sparkwright-engine sleep 900")
    try:
        run = play(RESTORE)
    finally:
        on_node("spark2", "systemctl stop sparkwright-engine")
    assert run.failures == [
        "the engine serves, sparkwright-engine.service is active; limit: nothing is put back under it; "
        "remedy: run playbooks/stop.yml first"
    ]
    assert run.changed == []
    for node in NODES:
        assert record(node)["units"]["cups.service"]["state"] == "enabled"


def test_check_mode_says_what_would_be_put_back_and_changes_nothing(on_node):
    run = play(RESTORE, LAB, "--check", "--diff")
    assert run.code == 0
    assert sorted(run.changed) == [f"{node}: Put it back" for node in NODES]
    # A row of the table, and a line of the diff.
    assert "cups.service" in run.output
    assert "+cups.service: enabled, active" in run.output
    for node in NODES:
        assert on_node(node, "systemctl is-enabled cups.service || true") == "masked"


def test_a_restore_that_is_killed_half_way_is_finished_by_the_next(die_at, assert_as_before, on_node, record):
    die_at("spark1", "--global unmask")
    die_at("spark2", "--system start")
    first = play(RESTORE)
    assert first.code != 0
    assert on_node("spark1", "systemctl is-enabled cups.service") == "enabled"
    assert record("spark1")["units"]["cups.service"]["state"] == "enabled"

    assert play(RESTORE).code == 0
    assert_as_before(*NODES)


def test_a_second_restore_has_nothing_to_do(assert_as_before):
    run = play(RESTORE)
    assert (run.code, run.changed) == (0, [])
    assert "nothing is recorded, so there is nothing to put back" in run.output
    assert_as_before(*NODES)


def test_what_a_killed_run_did_is_put_back(die_at, assert_as_before, on_node):
    die_at("spark3", "--system stop")
    assert play(CONVERGE).code != 0
    assert on_node("spark3", "systemctl is-enabled cups.service || true") == "masked"
    assert on_node("spark3", "systemctl is-active cups.service") == "active"

    assert play(RESTORE).code == 0
    assert_as_before(*NODES)


def test_somebody_at_the_desktop_is_not_logged_out_unasked(on_node):
    on_node(
        "spark4",
        "systemd-run --quiet --unit=desktop -p User=spark -p PAMName=login -E XDG_SESSION_TYPE=wayland "
        "-E XDG_SESSION_CLASS=user sleep 900 && sleep 2",
    )
    try:
        run = play(CONVERGE)
    finally:
        on_node("spark4", "systemctl stop desktop")
    assert any(line.startswith("stopping gdm.service ends the desktop of spark (session ") for line in run.failures)
    assert on_node("spark4", "systemctl is-active gdm.service cups.service") == "active\nactive"


@pytest.mark.parametrize("words", ["--system mask", "--system stop", "--global mask", "set-default"])
def test_a_run_that_is_killed_half_way_is_finished_by_the_next(die_at, record, words):
    assert play(RESTORE).code == 0
    die_at("spark1", words)
    assert play(CONVERGE).code != 0
    then = record("spark1")

    assert play(CONVERGE).code == 0

    assert record("spark1") == then
    assert then["units"]["cups.service"] == {"active": True, "links": {}, "state": "enabled"}
    assert play(CONVERGE).changed == []
