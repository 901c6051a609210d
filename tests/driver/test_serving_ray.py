"""Four ranks under a trimmed Ray: registered as planned, left alone, repaired, stopped, and what Ray costs a node.

The tests go on from one another, and the first one expects the profile lab-tiny-ray4 to serve or starts it.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import time
from pathlib import Path

import pytest
from driver import REPO, play

NODES = ("spark1", "spark2", "spark3", "spark4")
RAILS = {node: f"192.168.100.{10 + rank}" for rank, node in enumerate(NODES)}
PROFILE = {"sparkwright_profile": "lab-tiny-ray4"}
REPORT = REPO / "reports" / "lab-verify.json"
UNIT = "sparkwright-engine"
WATCHDOG = "/var/lib/sparkwright/watchdog.json"
MEMORY = Path(__file__).with_name("ray_memory.py")
# Seconds after which the end of a worker must have ended the rest; Ray itself takes half a minute to notice.
NOTICED = 60
# A Ray that nobody told anything but where it is.
PLAIN = "plain-ray"


def verb(name: str):
    return play(name, variables=PROFILE)


def containers(on_node) -> list[str]:
    return [on_node(node, f"docker ps --all --quiet --filter name={UNIT}") for node in NODES]


def states(on_node) -> list[str]:
    return [on_node(node, f"systemctl is-active {UNIT} || true") for node in NODES]


def rank(on_node, node: str) -> dict:
    """What the rank of a node keeps of itself."""
    return json.loads(on_node(node, "cat /run/sparkwright/rank.json"))


def log(on_node, node: str, lines: int = 400) -> str:
    return on_node(node, f"journalctl --unit {UNIT} --output cat --no-pager --lines {lines}")


def ray_memory(on_node, node: str, container: str) -> dict[str, int]:
    """Process by process in kB, by a program that is carried to the node."""
    program = base64.b64encode(MEMORY.read_bytes()).decode()
    return json.loads(on_node(node, f"echo {program} | base64 -d | python3 - {container}"))


def until(seconds: float, true) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(2)
    return False


@pytest.fixture(scope="module")
def served():
    """The cluster serves."""
    run = verb("site.yml")
    assert run.code == 0, run.output
    return run


@pytest.fixture(scope="module")
def verified(served):
    """What verify.yml found, as its report has it."""
    run = verb("playbooks/verify.yml")
    assert run.code == 0, run.output
    return json.loads(REPORT.read_text())


def test_the_registered_addresses_equal_the_plan(verified):
    ray = verified["facts"]["spark1"]["serving"]["ray"]
    assert sorted(ray["nodes"]) == sorted(RAILS.values())
    assert {address: int(name[:2], 16) for address, name in ray["nodes"].items()} == {
        address: rank for rank, address in enumerate(RAILS.values())
    }


def test_every_node_has_the_same_release(verified):
    versions = {verified["facts"][node]["serving"]["ray"]["version"] for node in NODES}
    assert len(versions) == 1
    assert None not in versions


def test_every_check_of_ray_was_made_and_passed(verified):
    found = {check["id"]: check["status"] for check in verified["checks"]}
    assert {found.get(id_) for id_ in ("ray.nodes", "ray.version", "serving.filter")} == {"ok"}


def test_rank_k_runs_on_node_k_and_shows_its_load_in_the_log_of_its_unit(served, on_node):
    """Ray's workers write to files of their own, which our program relays; each line says of which rank it is."""
    found = [set(re.findall(r"Worker_TP(\d+)", log(on_node, node, 2000))) for node in NODES]
    assert found == [{str(rank)} for rank in range(4)]


def test_a_stranger_does_not_reach_ray(served, on_node):
    """From another node: the rail leads to Ray's ports, the management network does not."""
    for address, reached in ((RAILS["spark1"], "open"), ("10.77.0.11", "closed")):
        look = shlex.quote(f"exec 3<>/dev/tcp/{address}/26479")
        said = on_node("spark2", f"timeout 3 bash -c {look} && echo open || echo closed")
        assert said.splitlines()[-1] == reached, address


def test_a_second_run_touches_nothing(served, on_node):
    before = containers(on_node)
    assert all(before)
    run = verb("site.yml")
    assert run.code == 0, run.output
    assert run.changed == []
    assert containers(on_node) == before


def test_what_ray_costs_a_node(served, on_node):
    """The trimmed Ray as it serves against a Ray that was told nothing, of the same image, started beside nothing."""
    trimmed = {node: ray_memory(on_node, node, UNIT) for node in NODES}
    image = on_node("spark1", f"docker inspect --format '{{{{.Image}}}}' {UNIT}")
    assert verb("playbooks/stop.yml").code == 0
    mounts = "--volume /opt/sparkwright-lab/engine-env:/opt/sparkwright-lab/engine-env:ro"
    run = f"docker run --detach --rm --name {PLAIN} --network host --shm-size 512m {mounts} {image} ray start --block"
    plain = {}
    try:
        for node, address in RAILS.items():
            place = "--head --port 26479" if node == "spark1" else f"--address {RAILS['spark1']}:26479"
            on_node(node, f"{run} --node-ip-address {address} --object-store-memory 134217728 --num-gpus 1 {place}")
            assert until(120, lambda node=node: "raylet" in on_node(node, f"docker top {PLAIN} -eo pid,args")), node
        # Its agents come a while after it.
        time.sleep(30)
        plain = {node: ray_memory(on_node, node, PLAIN) for node in NODES}
    finally:
        for node in NODES:
            on_node(node, f"docker rm --force {PLAIN} || true")
    print("\nPSS of Ray's processes, MiB")
    print(f"{'node':8} {'default':>8} {'trimmed':>8}")
    for node in NODES:
        print(f"{node:8} {sum(plain[node].values()) / 1024:8.0f} {sum(trimmed[node].values()) / 1024:8.0f}")
    for name in sorted({*plain["spark1"], *trimmed["spark1"]}):
        print(f"  head, {name}: {plain['spark1'].get(name, 0) / 1024:.0f} {trimmed['spark1'].get(name, 0) / 1024:.0f}")
    for node in NODES:
        assert sum(trimmed[node].values()) < sum(plain[node].values()), node


def test_units_started_in_the_wrong_order_serve(on_node):
    """As after a power cut: the workers first, the head a while later, and nobody runs a play."""
    for node in reversed(NODES):
        assert containers(on_node) == ["", "", "", ""]
        on_node(node, f"systemctl start --no-block {UNIT}")
        time.sleep(5)
    assert until(600, lambda: rank(on_node, "spark1")["ready"]), log(on_node, "spark1", 40)
    run = verb("playbooks/verify.yml")
    assert run.code == 0, run.output


def test_a_worker_starts_its_container_when_the_head_has_its_ray(on_node):
    said = log(on_node, "spark4", 2000)
    waits = said.rindex(f"sparkwright: rank 3 waits for spark1 at {RAILS['spark1']}:26480")
    assert said.index("sparkwright: the container starts", waits) > waits


def test_a_worker_that_is_killed_starts_all_again_once(on_node):
    before = containers(on_node)
    assert all(before)
    on_node("spark3", f"docker kill {UNIT}")
    assert until(NOTICED, lambda: not set(containers(on_node)) & set(before)), states(on_node)
    assert until(600, lambda: rank(on_node, "spark1")["ready"]), log(on_node, "spark1", 40)
    assert "rank 2 on spark3: it was killed (exit code 137)" in on_node("spark1", f"cat {WATCHDOG}")


def test_a_worker_that_is_killed_again_ends_the_others_and_all_say_who_it_was(on_node):
    on_node("spark3", f"docker kill {UNIT}")
    assert until(NOTICED, lambda: not any(containers(on_node))), states(on_node)
    assert until(NOTICED, lambda: states(on_node) == ["failed"] * 4)
    for node in NODES:
        assert rank(on_node, node)["first"].startswith("rank 2 on spark3: it was killed (exit code 137)"), node

    repaired = verb("site.yml")
    assert repaired.code == 0, repaired.output
    assert all(containers(on_node))


def test_a_worker_that_never_comes_is_named_and_costs_nobody_memory(on_node):
    """One unit is not started; the others wait for it without a container."""
    assert verb("playbooks/stop.yml").code == 0
    for node in NODES[:3]:
        on_node(node, f"systemctl start --no-block {UNIT}")
    assert until(240, lambda: rank(on_node, "spark1")["missing"] == ["spark4"]), log(on_node, "spark1", 40)
    assert containers(on_node) == ["", "", "", ""]


def test_stop_leaves_nothing(on_node):
    run = verb("playbooks/start.yml")
    assert run.code == 0, run.output
    run = verb("playbooks/stop.yml")
    assert run.code == 0, run.output
    assert containers(on_node) == ["", "", "", ""]
    for node in NODES:
        assert on_node(node, "pgrep --full '[r]aylet|[g]cs_server|[r]ay::|[v]llm serve' || true") == ""
        ports = on_node(node, "ss -H -l -t -n 'sport >= :26479 and sport <= :26598 or sport = :8000 or sport = :29400'")
        assert ports == ""
        assert on_node(node, "iptables --list-rules | grep SPARKWRIGHT || true") == ""
    assert verb("playbooks/stop.yml").changed == []
