"""Virtual machines whose power fails: their ranks come back in any order, or say why they do not.

The tests build on each other: the ranks serve, lose their power, and are then broken one by one before a start.
"""

from __future__ import annotations

import json
import random
import subprocess
import time

import pytest
from driver import REPO, play

NODES = ("spark1", "spark2", "spark3", "spark4")
RANK = "/run/sparkwright/rank.json"
# Seconds for four emulated machines on two cores to check themselves and meet.
LONGEST = 1200
# Seconds for the start-up check of one of them, which asks again for 75.
REFUSES = 300
MODEL = "/var/lib/sparkwright/models/zeros"


def lever(node: str, *words: str) -> None:
    subprocess.run([REPO / "lab/vm/lever", node, *words], check=True, timeout=1500)


@pytest.fixture
def ready(on_node):
    """Wait until every rank says that the engine answered, since this boot."""

    def wait() -> None:
        limit = time.monotonic() + LONGEST
        ranks = {}
        while not ranks or not all(rank.get("ready") for rank in ranks.values()):
            assert time.monotonic() < limit, ranks
            time.sleep(10)
            ranks = {node: json.loads(on_node(node, f"cat {RANK} || echo '{{}}'")) for node in NODES}

    return wait


def test_all_nodes_off_and_on_in_random_order_serve_again_without_anybody(ready, on_node):
    ready()
    # Printed, so that a failure can be repeated with the same one.
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    off, on = chance.sample(NODES, 4), chance.sample(NODES, 4)
    print(f"seed {seed}: off {off}, on {on}")
    for node in off:
        lever(node, "off")
    # Each boots while the one before it still does; the first has to wait for the last.
    boots = []
    for node in on:
        boots.append(subprocess.Popen([REPO / "lab/vm/lever", node, "on"]))
        time.sleep(chance.uniform(0, 60))
    assert [boot.wait(1500) for boot in boots] == [0] * 4
    ready()
    for node in NODES:
        assert on_node(node, "systemctl show sparkwright-engine -P NRestarts") == "0"


def test_one_node_that_loses_its_power_while_all_serve_takes_the_others_along_and_comes_back(ready, on_node):
    ids = {node: on_node(node, "docker ps --quiet --filter name=sparkwright-engine") for node in NODES}
    lever("spark3", "off")
    limit = time.monotonic() + LONGEST
    while on_node("spark2", "docker ps --quiet --filter name=sparkwright-engine"):
        assert time.monotonic() < limit
        time.sleep(5)
    assert "its node does not answer any more" in on_node("spark1", "cat /var/lib/sparkwright/watchdog.json")
    lever("spark3", "on")
    ready()
    now = {node: on_node(node, "docker ps --quiet --filter name=sparkwright-engine") for node in NODES}
    assert not set(now.values()) & set(ids.values())


# What breaks a node before its rank starts, what undoes it, and the line of its start-up check.
BROKEN = {
    "a GID of another address": (
        lambda on_node: lever("spark2", "address", "rail0", "192.168.100.77/24"),
        lambda on_node: lever("spark2", "address", "rail0", "192.168.100.11/24"),
        "refused: spark2: enp1s0f0np0 has 192.168.100.77/24; limit: 192.168.100.11/24 alone; ",
    ),
    "a lost MTU": (
        lambda on_node: lever("spark2", "mtu", "rail1", "1500"),
        lambda on_node: lever("spark2", "mtu", "rail1", "9000"),
        "refused: spark2: the MTU of enP2p1s0f0np0 is 1500; limit: 9000; ",
    ),
    "a missing mount": (
        lambda on_node: on_node("spark2", f"mkdir -p /tmp/empty && mount --bind /tmp/empty {MODEL}"),
        lambda on_node: on_node("spark2", f"umount {MODEL}"),
        f"refused: spark2: {MODEL}: model.safetensors.index.json is not there; ",
    ),
}


@pytest.fixture(scope="module")
def stopped():
    """All ranks stopped, as before a start."""
    run = play("playbooks/stop.yml")
    assert run.code == 0, run.output


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("what", BROKEN)
def test_the_start_up_check_refuses(on_node, what):
    breaks, mends, line = BROKEN[what]
    breaks(on_node)
    try:
        # Without that the failure of the test before this one would be taken for this one's.
        on_node("spark2", "systemctl reset-failed sparkwright-engine || true")
        on_node("spark2", "systemctl start --no-block sparkwright-engine")
        # The check waits for memory and, after a boot, for rails that may still come.
        limit = time.monotonic() + REFUSES
        while on_node("spark2", "systemctl is-active sparkwright-engine || true") != "failed":
            assert time.monotonic() < limit, on_node("spark2", "systemctl status sparkwright-engine || true")
            time.sleep(5)
        log = on_node("spark2", "journalctl --unit sparkwright-engine --output=cat --lines 30")
    finally:
        mends(on_node)
    assert line in log
    assert on_node("spark2", "docker ps --all --quiet --filter name=sparkwright-engine") == ""


@pytest.mark.usefixtures("stopped")
def test_whole_again_all_serve(ready):
    run = play("playbooks/start.yml")
    assert run.code == 0, run.output
    ready()
