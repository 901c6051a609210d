"""Bad input on fresh nodes: refused in one line a person can act on, and no node is changed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time

import pytest
from driver import LAB, REPO, STATE, Run, inventory_with, play

NODES = ("spark1", "spark2", "spark3", "spark4")
LOCK_PLAY = REPO / "tests" / "driver" / "hold_lock.yml"


@pytest.fixture(autouse=True)
def nodes_stay_untouched(on_node):
    yield
    for node in NODES:
        assert on_node(node, "ls /var/lib/sparkwright /etc/sparkwright 2>/dev/null || true") == ""


def assert_refused(run: Run, *lines: str) -> None:
    assert run.code != 0
    assert run.changed == []
    assert "Turn off what a headless node does without" not in run.tasks
    for line in lines:
        assert any(found.startswith(line) for found in run.failures), run.output


def test_an_unreachable_node_stops_the_run_for_all(tmp_path):
    inventory = inventory_with(tmp_path, {"spark4": {"ansible_host": "10.77.0.99"}})

    assert_refused(play("site.yml", inventory), "spark4: no usable connection to 10.77.0.99: ")


def test_a_host_key_that_is_not_known_is_refused(tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text("", encoding="utf-8")
    arguments = f"-o UserKnownHostsFile={known} -o StrictHostKeyChecking=yes -o ControlPath=none"
    inventory = inventory_with(tmp_path, {"spark2": {"ansible_ssh_common_args": arguments}})

    assert_refused(play("site.yml", inventory), "spark2: no usable connection to 10.77.0.12: ")


def test_an_account_without_sudo_is_named(tmp_path):
    inventory = inventory_with(tmp_path, {"spark3": {"ansible_user": "nosudo"}})

    assert_refused(play("site.yml", inventory), "spark3: no usable connection to 10.77.0.13: ")


def test_a_missing_shard_is_found_before_it_is_copied(tmp_path):
    source = tmp_path / "model"
    shutil.copytree(STATE / "model", source)
    (source / "model-00002-of-00003.safetensors").unlink()

    run = play("site.yml", variables={"model_store_source": str(source)})

    assert_refused(
        run,
        f"controller: {source}: missing: model-00002-of-00003.safetensors; "
        "limit: all 3 shards of model.safetensors.index.json, whole, no other; "
        "remedy: fetch the checkpoint again, or correct model_store_source",
    )


def test_a_truncated_shard_is_found_before_it_is_copied(tmp_path):
    source = tmp_path / "model"
    shutil.copytree(STATE / "model", source)
    shard = source / "model-00003-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])

    run = play("site.yml", variables={"model_store_source": str(source)})

    assert_refused(run, f"controller: {source}: damaged: model-00003-of-00003.safetensors; ")


def test_a_busy_port_is_named_with_its_holder(on_node):
    server = "systemd-run --quiet --unit=busy-port python3 -m http.server 8000 --bind 10.77.0.11"
    on_node("spark1", f"{server} && sleep 1")
    try:
        run = play("site.yml")
    finally:
        on_node("spark1", "systemctl stop busy-port")

    assert_refused(
        run,
        "spark1: port 8000 is held by python3; limit: free on 10.77.0.11; "
        "remedy: end python3, or choose another port in the profile",
    )


def test_a_rail_that_carries_the_connection_is_refused():
    rails = [{"name": "rail0", "netdev": "mgmt0", "subnet": "192.168.100.0/24"}]

    run = play("site.yml", variables={"fabric_rails": rails})

    assert_refused(
        run, "spark1: mgmt0 has no RDMA device", "spark2: mgmt0 has 10.77.0.12; limit: not 10.77.0.12, by which"
    )


def test_an_inventory_with_mistakes_is_refused_line_by_line(tmp_path):
    inventory = inventory_with(
        tmp_path, {"spark2": {"sparkwright_rank": 0, "fabric_mtuu": 9000}, "spark3": {"fabric_mtu": "9000"}}
    )

    run = play("site.yml", inventory)

    assert_refused(
        run,
        "spark2: sparkwright_rank 0 is also the rank of spark1; ",
        "spark2: fabric_mtuu is no variable of any role (did you mean fabric_mtu?); ",
        "spark3: fabric_mtu is",
    )


def test_a_second_run_at_the_same_time_is_refused_and_a_killed_one_leaves_no_lock():
    with subprocess.Popen(
        ["ansible-playbook", LOCK_PLAY, "-i", LAB],
        cwd=REPO,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        while "Hold the lock for a while" not in (line := first.stdout.readline()):
            assert line, "the first run ended early"
        run = play("site.yml")
        first.send_signal(signal.SIGKILL)
    assert_refused(run, "spark1: another run works on this cluster: ")
    assert f" pid {first.pid} since " in "".join(run.failures)

    # The head frees the lock as soon as the connection of the killed run is gone.
    time.sleep(2)
    assert play(str(LOCK_PLAY.relative_to(REPO)), variables={"lock_seconds": 0}).code == 0
