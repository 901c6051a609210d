"""A cluster that serves with vLLM's own executor: what ends it, who says so, and that nothing is left of it.

The tests build on each other, because each launch loads four real ranks. The cluster serves before the first one.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager

import pytest
from driver import LAB, REPO, play

NODES = ("spark1", "spark2", "spark3", "spark4")
PORTS = "sport = :8000 or sport = :29501 or sport = :29400"
API = "http://10.77.0.11:8000/v1/completions"
RANK = "/run/sparkwright/rank.json"
HARDWARE = "/opt/sparkwright-lab/hardware/proc"
# Seconds for four ranks to load on two cores while others work, and then some.
LONGEST = 600


@pytest.fixture
def ids(on_node):
    """The containers of ours on all nodes, empty where there is none."""
    return lambda: [on_node(node, "docker ps --all --quiet --filter name=sparkwright-engine") for node in NODES]


@pytest.fixture
def rank(on_node):
    """What the rank of a node keeps of itself."""
    return lambda node: json.loads(on_node(node, f"cat {RANK}"))


@pytest.fixture
def clean(on_node, ids):
    """Nothing of the engine is left on any node: no container, no process, no port."""

    def check() -> None:
        assert ids() == ["", "", "", ""]
        for node in NODES:
            assert on_node(node, f"ss -H -l -t -n {PORTS}") == ""
            assert on_node(node, "pgrep --full '[v]llm serve' || true") == ""

    return check


@pytest.fixture
def until():
    """Wait for something, as long as a load may take."""

    def wait(what) -> None:
        limit = time.monotonic() + LONGEST
        while not what():
            assert time.monotonic() < limit, "it did not come about"
            time.sleep(2)

    return wait


def complete() -> int:
    """One request; the result is the number of tokens that came back."""
    body = json.dumps({"model": "tiny", "prompt": "hello world", "max_tokens": 4, "ignore_eos": True}).encode()
    request = urllib.request.Request(API, body, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def serves() -> bool:
    try:
        return complete() == 4
    except OSError:
        return False


@contextmanager
def load():
    """Requests one after the other until the block ends; the list has what came back of each."""
    answers, over = [], threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                answers.append(complete())
            except OSError as error:
                answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        over.set()
        thread.join()


def test_verify_proves_what_the_profile_expects_and_says_what_it_skips():
    run = play("playbooks/verify.yml")
    assert run.code == 0, run.output
    for proof in ("deterministic", "counter", "streaming"):
        assert f"ok      {proof}: " in run.output
    assert "skipped arithmetic: the profile does not expect it" in run.output


def test_bench_measures_and_keeps_what_it_found():
    run = play("playbooks/bench.yml")
    assert run.code == 0, run.output
    kept = json.loads((REPO / "reports" / "lab-bench.json").read_text(encoding="utf-8"))
    assert set(kept["measured"]) == {"decode", "decode_long", "prefill", "concurrent"}
    assert all(rate > 0 for rate in kept["measured"].values())
    assert " bench ok lab-tiny-tp4 " in (REPO / "reports" / "lab-evidence.txt").read_text().splitlines()[-1]


def test_a_second_run_under_load_touches_no_rank_and_drops_no_request(ids):
    before = ids()
    with load() as answers:
        run = play("site.yml")
    assert run.code == 0, run.output
    assert run.changed == []
    assert ids() == before
    assert set(answers) == {4}
    assert len(answers) > 10


def test_every_rank_says_how_far_it_came_and_over_what_it_talks(rank):
    for node in NODES:
        assert rank(node)["ready"]
        assert rank(node)["figures"]["meets"] == "tcp://192.168.100.10:29501"
    # Of 16 MiB a rank, as the plan computes it: see playbooks/plan.yml.
    assert (rank("spark1")["figures"]["kv_tokens"], rank("spark1")["figures"]["concurrency"]) == (65536, 512.0)


def test_a_worker_that_is_killed_while_it_serves_starts_all_again_once(on_node, ids, rank, until):
    before = ids()
    on_node("spark3", "docker kill sparkwright-engine")
    until(lambda: all(old not in ids() for old in before) and serves())
    assert "rank 2 on spark3: it was killed (exit code 137)" in on_node(
        "spark1", "cat /var/lib/sparkwright/watchdog.json"
    )
    run = play("playbooks/doctor.yml")
    assert run.code == 0, run.output
    assert "warn: [serving.watchdog] spark1: it started the ranks again once" in run.output


def test_a_head_that_is_killed_after_that_stops_all_and_doctor_says_why(on_node, until, ids, clean):
    on_node("spark1", "docker kill sparkwright-engine")
    until(lambda: ids() == ["", "", "", ""])
    until(lambda: on_node("spark4", "systemctl is-active sparkwright-engine || true") == "failed")
    clean()
    run = play("playbooks/doctor.yml")
    assert run.code != 0
    assert any(
        "spark1: it started the ranks again once, and gave up: rank 0 on spark1: it was killed (exit code 137)" in line
        for line in run.failures
    ), run.output
    for node in NODES:
        assert "rank 0 on spark1: it was killed" in on_node(node, f"cat {RANK}")


def test_a_worker_that_is_killed_during_the_load_is_named_and_nothing_is_left(on_node, until, clean):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(play("playbooks/start.yml")))
    thread.start()
    until(lambda: on_node("spark2", "docker ps --quiet --filter name=sparkwright-engine"))
    time.sleep(5)
    on_node("spark2", "docker kill sparkwright-engine")
    thread.join()

    (run,) = runs
    assert run.code != 0
    assert any(line.startswith("spark2: rank 1 failed first: it was killed (exit code 137)") for line in run.failures)
    clean()


def refused(run, line: str) -> None:
    """The run failed with that line."""
    assert run.code != 0
    assert any(one.startswith(line) for one in run.failures), run.output


def test_a_port_that_is_taken_is_refused_before_anything_starts(on_node, clean):
    on_node("spark1", "systemd-run --quiet --unit=taker python3 -m http.server 29501 && sleep 2")
    try:
        run = play("playbooks/start.yml")
    finally:
        on_node("spark1", "systemctl stop taker")
    refused(run, "spark1: port 29501 is held by python3; limit: free on 192.168.100.10; ")
    clean()


def test_a_wrong_image_on_rank_2_is_refused_before_anything_starts(on_node, clean):
    image = "sparkwright-lab/vllm-cpu:0.32.0"
    on_node("spark3", f"docker tag {image} keep:1 && printf 'FROM keep:1\\nLABEL other=1\\n' > /tmp/Dockerfile")
    on_node("spark3", f"docker build --quiet --tag {image} --file /tmp/Dockerfile /tmp")
    try:
        run = play("playbooks/start.yml")
    finally:
        on_node("spark3", f"docker tag keep:1 {image} && docker rmi keep:1")
    refused(run, f"spark3: {image} is ")
    clean()


def test_too_little_memory_on_rank_3_is_refused_before_anything_starts(on_node, clean):
    short = (
        f"mkdir -p {HARDWARE}; sed 's/^MemAvailable:.*/MemAvailable: 1000000 kB/' /proc/meminfo > {HARDWARE}/meminfo"
    )
    on_node("spark4", short)
    try:
        run = play("playbooks/start.yml")
    finally:
        on_node("spark4", f"rm {HARDWARE}/meminfo")
    refused(run, "spark4: MemAvailable is 0.95 GiB; ")
    clean()


def test_a_node_refuses_by_itself_and_the_others_wait_without_a_container(on_node, rank, until, clean):
    on_node("spark2", "ip link set dev enP2p1s0f0np0 mtu 1500")
    for node in ("spark1", "spark3", "spark4"):
        on_node(node, "systemctl start --no-block sparkwright-engine")
    started = on_node("spark2", "systemctl start sparkwright-engine || journalctl -u sparkwright-engine -o cat -n 9")
    on_node("spark2", "ip link set dev enP2p1s0f0np0 mtu 9000")
    assert "refused: spark2: the MTU of enP2p1s0f0np0 is 1500; limit: 9000; " in started
    until(lambda: rank("spark1")["missing"] == ["spark2"])
    assert rank("spark2")["end"]["refused"]
    assert play("playbooks/stop.yml").code == 0
    clean()


def test_start_serves_again_and_forgets_what_the_watchdog_did(on_node):
    run = play("playbooks/start.yml")
    assert run.code == 0, run.output
    assert serves()
    assert on_node("spark1", "ls /var/lib/sparkwright/watchdog.json || true") == ""


def test_a_node_that_reboots_comes_back_and_all_serve_again(ids, until):
    before = ids()
    subprocess.run([REPO / "lab" / "podman", "restart", "spark3"], check=True, timeout=300)
    subprocess.run(["ssh", "-F", REPO / "lab/.state/ssh_config", "-O", "exit", "spark3"], check=False)

    def again() -> bool:
        try:
            return all(old not in ids() for old in before) and serves()
        except subprocess.SubprocessError:
            # The node does not answer yet.
            return False

    until(again)
    assert play("playbooks/verify.yml").code == 0


def test_stop_leaves_nothing_names_others_and_a_second_stop_changes_nothing(on_node, clean):
    on_node("spark2", "docker create --name neighbour sparkwright-lab/vllm-cpu:0.32.0 sleep 900")
    on_node("spark2", "docker start neighbour")
    try:
        run = play("playbooks/stop.yml", LAB, "-v")
        assert run.code == 0, run.output
        assert on_node("spark2", "docker ps --quiet --filter name=neighbour")
        assert "neighbour" in run.output
    finally:
        on_node("spark2", "docker rm --force neighbour")
    clean()
    assert play("playbooks/stop.yml").changed == []
