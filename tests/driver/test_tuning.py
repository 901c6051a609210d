"""Tuned containers: what they cannot set is said, what was measured is shown, and a restore leaves nothing behind."""

from __future__ import annotations

import json

import pytest
from driver import REPO, play

CONVERGE, RESTORE = "molecule/tuning/converge.yml", "playbooks/restore.yml"
NODES = ("spark1", "spark2", "spark3", "spark4")
REPORT = REPO / "reports" / "lab-footprint.json"


@pytest.fixture(scope="module")
def second_run():
    return play(CONVERGE)


def test_what_a_container_cannot_set_is_said_and_no_refusal(second_run):
    assert second_run.code == 0, second_run.output
    assert second_run.changed == []
    for node in NODES:
        assert f"warn: [tuning.sysctl] {node}: " in second_run.output
    assert "cannot be set here" in second_run.output


@pytest.mark.usefixtures("second_run")
def test_the_gain_is_shown_against_the_node_of_before():
    found = json.loads(REPORT.read_text(encoding="utf-8"))
    for node in NODES:
        before, after = found["before"][node], found["after"][node]
        assert after["processes"] < before["processes"]
        assert len(after["listeners"]) < len(before["listeners"])
        assert sum(after["units"].values()) < sum(before["units"].values())
        assert "cups.service" in before["units"]
        assert "cups.service" not in after["units"]


@pytest.mark.usefixtures("second_run")
def test_a_value_that_is_not_taken_is_one_line_and_the_next_run_goes_on():
    setting = {"name": "net.ipv4.tcp_syncookies", "value": "many", "reason": "It takes numbers only."}
    run = play(CONVERGE, variables={"host_tuning_sysctl_extra": [setting]})
    assert run.code != 0
    assert any("net/ipv4/tcp_syncookies does not take many" in line for line in run.failures), run.output
    assert play(CONVERGE).code == 0


@pytest.mark.usefixtures("second_run")
def test_restored_nodes_are_as_they_were_and_can_be_tuned_again(on_node):
    run = play(RESTORE)
    assert run.code == 0, run.output
    for node in NODES:
        assert on_node(node, "tuning-snapshot | diff /var/tmp/tuning-before.txt - || true") == ""
    assert play(RESTORE).changed == []
    assert play(CONVERGE).code == 0
