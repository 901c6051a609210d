"""Three ranks with their supervisors as real processes, real sockets between them, and a stand-in for Docker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import intent
from engine_server import Engine, serve

from ansible_collections.sparkwright.cluster.plugins.module_utils import supervisor

HERE = Path(__file__).parent
HOSTS = ("spark1", "spark2", "spark3")
# Seconds; each step takes a fraction of one, but the machine may be very busy.
LONGEST = 120
AGAIN = 75
TRACEBACK = (
    "(Worker_TP2 pid=71) ERROR 11-30 17:03:35 [multiproc_executor.py:1063] Traceback (most recent call last):\n"
    "(Worker_TP2 pid=71) ERROR 11-30 17:03:35 [multiproc_executor.py:1063] RuntimeError: CUDA error: invalid argument\n"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Cluster:
    """Three folders, a process in each."""

    def __init__(self, folder: Path, api: str):
        self.folder, self.processes = folder, {}
        port, (address, api_port) = free_port(), api.removeprefix("http://").split(":")
        plan = {"head_address": "127.0.0.1", "roll_port": port, "api_host": address, "api_port": int(api_port)}
        for rank, host in enumerate(HOSTS):
            own = folder / host
            (own / "bin").mkdir(parents=True)
            docker = own / "bin" / "docker"
            docker.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {HERE / "fake_container.py"} "$@"\n')
            docker.chmod(0o755)
            self.write(host, "launch.json", self.launch(rank, plan))

    @staticmethod
    def launch(rank: int, plan: dict) -> dict:
        return {
            "intent": intent(rank, 3, **plan).as_data(),
            "argv": ["docker", "run", "engine"],
            "waits": [],
            "hosts": list(HOSTS),
            "deployment": "d1",
            "model": "tiny",
            "ready_minutes": 1,
            "stage_minutes": {},
            "watchdog": True,
        }

    def write(self, host: str, name: str, content) -> None:
        (self.folder / host / name).write_text(content if isinstance(content, str) else json.dumps(content))

    def change(self, host: str, **launch) -> None:
        self.write(host, "launch.json", {**json.loads((self.folder / host / "launch.json").read_text()), **launch})

    def start(self, *hosts: str) -> None:
        for host in hosts or HOSTS:
            own = self.folder / host
            environment = {**os.environ, "PATH": f"{own / 'bin'}:{os.environ['PATH']}", "FAKE_DOCKER": str(own)}
            with (own / "log").open("a") as log:
                argv = [sys.executable, HERE / "rank_process.py", own]
                self.processes[host] = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)

    def runs(self, host: str) -> bool:
        return (self.folder / host / "pid").exists()

    def rank(self, host: str) -> dict:
        file = self.folder / host / "rank.json"
        return json.loads(file.read_text()) if file.exists() else {"ready": False, "missing": [], "end": None}

    def until(self, what) -> None:
        limit = time.monotonic() + LONGEST
        while not what():
            assert time.monotonic() < limit, self.logs()
            time.sleep(0.05)

    def ready(self) -> None:
        self.start()
        self.until(lambda: all(self.rank(host)["ready"] and self.runs(host) for host in HOSTS))

    def statuses(self) -> dict[str, int]:
        return {host: process.wait(LONGEST) for host, process in self.processes.items()}

    def logs(self) -> str:
        return "\n".join(f"{host}: {(self.folder / host / 'log').read_text()}" for host in HOSTS)

    def clean(self) -> bool:
        return not any(self.runs(host) for host in HOSTS)


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def cluster(tmp_path, engine):
    with serve(engine) as url:
        made = Cluster(tmp_path, url)
        yield made
        for process in made.processes.values():
            process.kill()
            process.wait()
        for host in HOSTS:
            (tmp_path / host / "exit").write_text("0")


def test_nobody_starts_a_container_before_all_have_called(cluster):
    cluster.start("spark2", "spark1")
    cluster.until(lambda: cluster.rank("spark1")["missing"] == ["spark3"])
    assert cluster.clean()

    cluster.start("spark3")
    cluster.until(lambda: all(cluster.rank(host)["ready"] and cluster.runs(host) for host in HOSTS))
    assert cluster.rank("spark1")["available"] == 7


def test_a_rank_that_needs_another_one_starts_its_container_once_it_listens(cluster):
    port = free_port()
    cluster.change("spark2", waits=[["spark1", "127.0.0.1", port]])
    cluster.start()
    cluster.until(lambda: cluster.runs("spark1") and cluster.runs("spark3"))
    waits = f"waits for spark1 at 127.0.0.1:{port}"
    cluster.until(lambda: cluster.rank("spark2").get("detail") == waits)
    assert not cluster.runs("spark2")
    with socket.create_server(("127.0.0.1", port)):
        cluster.until(lambda: cluster.runs("spark2"))
    assert cluster.rank("spark2")["stage"] != "roll call"


def test_a_rank_that_waits_for_another_one_for_too_long_ends_all(cluster, engine):
    engine.counts = False
    cluster.change("spark1", waits=[["spark3", "127.0.0.1", free_port()]], stage_minutes={"container": 0.02})
    cluster.start()
    assert cluster.statuses() == dict.fromkeys(HOSTS, 1)
    assert cluster.clean()
    assert "rank 0 on spark1: stage container: waits for spark3 at 127.0.0.1:" in cluster.rank("spark2")["first"]
    assert not (cluster.folder / "spark1" / "calls").exists()


def test_a_rank_of_another_deployment_is_refused_and_costs_nobody_memory(cluster):
    cluster.change("spark3", deployment="d2")
    cluster.start()
    assert cluster.processes["spark3"].wait(LONGEST) == 1
    assert cluster.rank("spark3")["end"]["why"] == (
        "spark3 was set up for deployment d2; limit: d1, as on the head; remedy: run site.yml"
    )
    assert cluster.clean()


def test_a_rank_that_fails_before_the_first_answer_stops_all_and_is_named_by_all(cluster, engine):
    engine.counts = False
    cluster.write("spark3", "prints", TRACEBACK)
    cluster.start()
    cluster.until(lambda: all(cluster.runs(host) for host in HOSTS))
    cluster.write("spark3", "exit", "1")

    assert cluster.statuses() == dict.fromkeys(HOSTS, 1)
    assert cluster.clean()
    first = "rank 2 on spark3: it ended with exit code 1: RuntimeError: CUDA error: invalid argument"
    assert [cluster.rank(host)["first"] for host in HOSTS] == [first] * 3
    ordered = {host: cluster.rank(host)["end"]["ordered"] for host in HOSTS}
    assert ordered == {"spark1": True, "spark2": True, "spark3": False}
    watchdog = json.loads((cluster.folder / "spark1/watchdog.json").read_text())
    assert (watchdog["stopped"], watchdog["restarts"]) == (first, [])


def test_a_rank_that_fails_while_it_serves_starts_all_again_once(cluster):
    cluster.ready()
    cluster.write("spark2", "exit", "137")
    assert cluster.statuses() == dict.fromkeys(HOSTS, AGAIN)
    assert cluster.clean()
    assert cluster.rank("spark1")["first"] == "rank 1 on spark2: it was killed (exit code 137)"

    cluster.ready()
    cluster.write("spark2", "exit", "137")
    assert cluster.statuses() == dict.fromkeys(HOSTS, 1)
    assert cluster.clean()
    assert len(json.loads((cluster.folder / "spark1/watchdog.json").read_text())["restarts"]) == 1


def test_a_head_that_is_killed_takes_the_others_with_it_and_all_come_again(cluster):
    cluster.ready()
    cluster.write("spark1", "exit", "137")
    assert cluster.statuses() == dict.fromkeys(HOSTS, AGAIN)
    assert cluster.rank("spark2")["first"] == "rank 0 on spark1: it was killed (exit code 137)"
    assert cluster.clean()


def test_ranks_whose_head_is_gone_end_and_ask_to_wait_for_it(cluster):
    cluster.ready()
    cluster.processes["spark1"].kill()
    assert {host: cluster.processes[host].wait(LONGEST) for host in ("spark2", "spark3")} == dict.fromkeys(
        ("spark2", "spark3"), AGAIN
    )
    assert not cluster.runs("spark2")
    assert cluster.rank("spark2")["end"]["ordered"]


def test_an_engine_that_generates_no_more_is_a_failure_although_its_containers_run(cluster, engine):
    cluster.ready()
    engine.broken = True
    assert cluster.statuses() == dict.fromkeys(HOSTS, AGAIN)
    assert cluster.rank("spark1")["first"] == "rank 0 on spark1: 2 generations in a row failed; limit: 1"


def test_without_a_watchdog_a_failure_stops_all(cluster):
    for host in HOSTS:
        cluster.change(host, watchdog=False)
    cluster.ready()
    cluster.write("spark2", "exit", "0")
    assert cluster.statuses() == dict.fromkeys(HOSTS, 1)


def test_a_stop_on_request_counts_as_no_failure(cluster):
    cluster.ready()
    for process in cluster.processes.values():
        process.send_signal(signal.SIGTERM)
    statuses = cluster.statuses()
    assert statuses["spark1"] in (0, AGAIN)
    assert set(statuses.values()) <= {0, AGAIN}
    assert cluster.clean()
    assert not (cluster.folder / "spark1/watchdog.json").exists()


def test_a_stage_that_takes_too_long_is_named(cluster, engine):
    engine.counts = False
    cluster.write(
        "spark2", "prints", "INFO world_size=3 rank=1 local_rank=0 distributed_init_method=tcp://h:1 backend=gloo"
    )
    cluster.change("spark2", stage_minutes={"rendezvous": 0.01})
    cluster.start()
    assert cluster.statuses() == dict.fromkeys(HOSTS, 1)
    assert cluster.rank("spark1")["first"] == (
        "rank 1 on spark2: stage rendezvous: meets 3 ranks for 0 minutes; limit: 0.01 minutes"
    )
    assert cluster.clean()


def test_a_docker_that_hangs_does_not_keep_a_rank_from_ending(monkeypatch):
    asked = []

    def hangs(argv, *, timeout, **_):
        asked.append(argv[1])
        raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(supervisor.subprocess, "run", hangs)
    supervisor.Container.stop(None)
    assert asked == ["stop", "rm"]
