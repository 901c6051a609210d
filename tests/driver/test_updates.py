"""Updates of containers by a real apt, and what drifts while they serve.

The tests build on each other: the cluster serves, then updates are refused, then one fails on its canary, then it is
made.
"""

from __future__ import annotations

import base64
import json
import subprocess

import pytest
from driver import STATE, play

NODES = ("spark1", "spark2", "spark3", "spark4")
CANARY, OTHERS = "spark4", NODES[:3]
UPDATE, REPROVISION, DOCTOR = "playbooks/update.yml", "playbooks/reprovision.yml", "playbooks/doctor.yml"
KERNEL = "6.17.0-1020-lab"
# On a node that has this file the package cannot be configured.
BROKEN = "/etc/canary-lab-broken"
UPDATES = [
    {"name": "docker-lab", "version": "2.0", "Depends": "new-lab"},
    {"name": "new-lab", "version": "1.0"},
    {"name": "held-lab", "version": "2.0"},
    {"name": "canary-lab", "version": "2.0", "postinst": f"#!/bin/sh\ntest ! -e {BROKEN}\n"},
    {"name": f"linux-image-{KERNEL}", "version": "6.17.0-1020.20", "Files": {f"/boot/vmlinuz-{KERNEL}": "a kernel"}},
    {"name": "linux-image-lab", "version": "6.17.0.1020", "Depends": f"linux-image-{KERNEL}"},
]
REMOVAL = [{"name": "breaks-lab", "version": "2.0", "Conflicts": "victim-lab"}]
HELD = {"os_update_hold": ["held-lab"]}


def offer(on_node, packages, nodes=NODES):
    """Put packages into the repository of the nodes."""
    encoded = base64.b64encode(json.dumps(packages).encode()).decode()
    for node in nodes:
        on_node(node, f"echo {encoded} | base64 --decode | /opt/updates/repository /opt/updates/packages")


def version(on_node, node, package):
    return on_node(node, f"dpkg-query --show --showformat='\\${{Version}}' {package}")


def engines(on_node):
    return [on_node(node, "docker ps --quiet --filter name=sparkwright-engine") for node in NODES]


def note(on_node, node):
    return json.loads(on_node(node, "cat /var/lib/sparkwright/provisioned.json"))


@pytest.fixture(scope="module")
def serving(on_node):
    """The containers of the engine as the scenario left them."""
    found = engines(on_node)
    assert all(found)
    return found


def test_every_node_noted_what_it_was_when_it_served(serving, on_node):
    for node in NODES:
        items = note(on_node, node)["items"]
        assert items["package docker-lab"] == "1.0"
        assert items["unit cups.service"] == "masked"
        assert items["link rail0"].startswith("enp1s0f0np0 MTU 9000 192.168.100.1")
        assert any(name.startswith("file /etc/netplan/") for name in items)


def test_an_update_of_nothing_disturbs_nothing(serving, on_node):
    run = play(UPDATE)
    assert run.code == 0, run.output
    assert run.changed == []
    assert engines(on_node) == serving


def test_a_removal_that_nobody_allowed_is_refused_before_anything_is_changed(serving, on_node):
    offer(on_node, [*UPDATES, *REMOVAL])
    run = play(UPDATE)
    assert run.code != 0
    assert run.changed == []
    line = "the update would remove victim-lab 1.0; limit: what os_update_removals allows; remedy: look why with apt"
    for node in NODES:
        assert any(found.startswith(f"{node}: {line}") for found in run.failures), run.output
    assert engines(on_node) == serving
    assert version(on_node, CANARY, "docker-lab") == "1.0"


def test_nodes_that_would_not_be_alike_are_refused(serving, on_node):
    offer(on_node, UPDATES)
    offer(on_node, UPDATES[2:], ["spark2"])
    run = play(UPDATE)
    assert run.code != 0
    assert run.changed == []
    assert any(line.startswith("spark2: after the update docker-lab would be 1.0; limit: 2.0") for line in run.failures)
    offer(on_node, UPDATES)
    assert engines(on_node) == serving


def test_a_lock_that_stays_held_is_named(serving):
    hold = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    argv = ["ssh", "-F", str(STATE / "ssh_config"), "spark2"]
    holder = subprocess.Popen([*argv, f'sudo python3 -c "{hold}; print(1, flush=True); time.sleep(900)"'], stdout=-1)
    try:
        assert holder.stdout.readline() == b"1\n"
        run = play(UPDATE, variables={"os_update_lock_minutes": 0.1})
    finally:
        subprocess.run([*argv, "sudo pkill --full '^python3 -c import fcntl'"], check=False, timeout=60)
        holder.wait(timeout=60)
    assert run.code != 0
    assert run.changed == []
    lines = [line for line in run.failures if "holds /var/lib/dpkg/lock-frontend" in line]
    assert len(lines) == 1
    assert lines[0].startswith("python3 (pid ")


def test_apt_lets_nobody_change_what_a_serving_engine_stands_on(serving, on_node):
    refused = on_node("spark2", "apt-get update >/dev/null && apt-get -y install docker-lab 2>&1 || true")
    assert "sparkwright: docker-lab would change under the engine, which serves" in refused
    assert version(on_node, "spark2", "docker-lab") == "1.0"
    on_node("spark2", "apt-get -y install new-lab")
    assert version(on_node, "spark2", "new-lab") == "1.0"
    on_node("spark2", "apt-get -y remove new-lab")
    assert engines(on_node) == serving


def test_what_drifted_is_found_by_name_and_put_back_under_the_engine(serving, on_node):
    on_node("spark3", "systemctl unmask cups.service")
    doctor = play(DOCTOR)
    assert "[drift.ours unit] spark3: unit cups.service is gone, it was masked since it last served" in doctor.output
    assert doctor.changed == []
    run = play(REPROVISION)
    assert run.code == 0, run.output
    assert "unit cups.service" in run.output
    assert on_node("spark3", "systemctl is-enabled cups.service || true") == "masked"
    assert engines(on_node) == serving
    assert play(REPROVISION).changed == []


def test_what_only_the_user_can_decide_stops_a_reprovision_until_it_is_accepted(serving, on_node):
    folder = "/etc/nvidia-container-runtime"
    encoded = base64.b64encode(b'[nvidia-container-runtime]\nmode = "cdi"\n').decode()
    on_node("spark2", f"mkdir -p {folder}; echo {encoded} | base64 --decode > {folder}/config.toml")
    run = play(REPROVISION)
    assert run.code != 0
    assert run.changed == []
    assert any(line.startswith("spark2: runtime toolkit is new (mode cdi, ") for line in run.failures), run.output
    accepted = play(REPROVISION, variables={"os_update_accept": ["runtime toolkit"]})
    assert accepted.code == 0, accepted.output
    assert engines(on_node) == serving
    on_node("spark2", f"rm -r {folder}")


def test_a_canary_that_fails_leaves_the_others_as_they_are(on_node):
    on_node(CANARY, f"touch {BROKEN}")
    run = play(UPDATE, variables=HELD)
    assert run.code != 0
    assert any(
        line.startswith(
            f"{CANARY}: the canary failed its update, for the reason above; the other nodes were not changed"
        )
        for line in run.failures
    ), run.output
    for node in OTHERS:
        assert version(on_node, node, "docker-lab") == "1.0"
    assert on_node(CANARY, "dpkg-query --show --showformat='\\${db:Status-Abbrev}' canary-lab").strip() == "iF"
    assert engines(on_node) == ["", "", "", ""]


def test_run_again_it_goes_on_where_it_was_and_serves(on_node):
    on_node(CANARY, f"rm {BROKEN}")
    run = play(UPDATE, variables=HELD)
    assert run.code == 0, run.output
    for node in NODES:
        assert version(on_node, node, "docker-lab") == "2.0"
        assert version(on_node, node, "new-lab") == "1.0"
        assert version(on_node, node, f"linux-image-{KERNEL}") == "6.17.0-1020.20"
        assert on_node(node, "dpkg --audit") == ""
        assert note(on_node, node)["items"]["package docker-lab"] == "2.0"
    upgraded = [line for line in run.changed if line.endswith("Install the update")]
    assert upgraded[0].startswith(CANARY)
    assert all(engines(on_node))


def test_a_second_update_changes_nothing_and_a_hold_has_its_age(on_node):
    before = engines(on_node)
    assert play(UPDATE, variables=HELD).changed == []
    assert engines(on_node) == before
    doctor = play(DOCTOR, variables=HELD)
    assert "held-lab (for 0 days)" in doctor.output


def test_a_restore_lets_the_holds_go_and_takes_the_guard_away(on_node):
    assert play("playbooks/stop.yml").code == 0
    run = play("playbooks/restore.yml")
    assert run.code == 0, run.output
    for node in NODES:
        assert on_node(node, "apt-mark showhold") == ""
        assert on_node(node, "ls /etc/apt/apt.conf.d/60-sparkwright 2>/dev/null || true") == ""
