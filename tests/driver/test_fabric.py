"""Configured rails, broken as they break in the field: doctor names each, the next run repairs what is ours."""

from __future__ import annotations

import os
import subprocess

import pytest
from driver import LAB, REPO, play

CONVERGE = "molecule/fabric/converge.yml"
OTHER_FILE = "/etc/netplan/90-other.yaml"
OTHER = "network: {version: 2, ethernets: {enp1s0f0np0: {addresses: [10.9.9.9/24]}}}"
# Node, what breaks it, and the line that must name it.
BROKEN = {
    "MTU": (
        "spark2",
        "ip link set enp1s0f0np0 mtu 1500",
        "spark2: the MTU of enp1s0f0np0 is 1500; limit: 9000; remedy: run playbooks/stop.yml if it serves, then"
        " site.yml, which applies netplan",
    ),
    "address": (
        "spark3",
        "ip -4 address flush dev enP2p1s0f0np0",
        "spark3: enP2p1s0f0np0 has no address; limit: 192.168.101.12/24 alone; remedy: run playbooks/stop.yml if it"
        " serves, then site.yml, which applies netplan",
    ),
    "second file": (
        "spark4",
        f"umask 077; echo '{OTHER}' > {OTHER_FILE}; netplan apply",
        f"spark4: enp1s0f0np0 is named by {OTHER_FILE}; limit: /etc/netplan/60-sparkwright.yaml alone; remedy: remove"
        f" enp1s0f0np0 from {OTHER_FILE}",
    ),
}


@pytest.fixture(scope="module")
def doctor(on_node):
    """What doctor says about all of it at once."""
    for node, command, _ in BROKEN.values():
        on_node(node, command)
    return play("playbooks/doctor.yml")


@pytest.mark.parametrize("what", BROKEN)
def test_doctor_names_what_is_broken(doctor, what):
    assert doctor.code != 0
    assert doctor.changed == []
    assert BROKEN[what][2] in doctor.failures


@pytest.mark.usefixtures("doctor")
def test_a_file_that_is_not_ours_stops_the_run_before_anything_is_changed():
    run = play(CONVERGE)
    assert run.code != 0
    assert run.changed == []
    assert BROKEN["second file"][2] in run.failures


@pytest.mark.usefixtures("doctor")
def test_without_that_file_the_next_run_repairs_the_rest_and_only_there(on_node):
    on_node("spark4", f"rm {OTHER_FILE}")
    run = play(CONVERGE)
    assert run.code == 0, run.output
    assert sorted(run.changed) == [f"{node}: Apply netplan" for node in ("spark2", "spark3", "spark4")]
    assert play(CONVERGE).changed == []


def test_the_facts_of_a_node_take_one_round_trip():
    """Counted where Ansible says so, with a user's settings and not those of whoever runs the test."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    argv = ["ansible", "sparks", "-i", str(LAB), "-m", "sparkwright.cluster.node_facts", "-vvv"]
    done = subprocess.run(argv, cwd=REPO, env=settings, capture_output=True, text=True, check=True, timeout=300)
    trips = [line for line in done.stdout.splitlines() if "SSH: EXEC" in line]
    print(f"{len(trips)} commands over SSH for the facts of 4 nodes")
    assert len(trips) == 4
