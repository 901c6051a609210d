"""The program that runs a rank of Ray in its container, with stand-ins for Ray and for the engine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils import ray_rank
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import CONTAINER_MAIN
from ansible_collections.sparkwright.cluster.plugins.module_utils.ray_plan import PORTS, RayPlan
from ansible_collections.sparkwright.cluster.plugins.module_utils.ray_rank import LogRelay, Peers

NODE = PORTS["node-manager-port"]


def plan(rank=0, start=("true",), serve=(), ranks=None, port=26479, seconds=900):
    ranks = ranks or {"spark1": "127.0.0.1", "spark2": "127.0.0.2"}
    return RayPlan(rank, ranks, port, seconds, list(start), list(serve))


@pytest.fixture
def listening():
    """Makes sockets that listen, and closes those that are left."""
    made = []

    def listen(address, port=0):
        made.append(socket.create_server((address, port)))
        return made[-1]

    yield listen
    for one in made:
        one.close()


# --- the logs of Ray's workers --------------------------------------------------------------------------------------


def test_whole_lines_are_relayed_once(tmp_path):
    relay, log = LogRelay(tmp_path), tmp_path / "worker-1-2-3.out"
    assert list(relay.new_text()) == []
    log.write_text("one\ntwo\nhal")
    (tmp_path / "raylet.out").write_text("not a rank's\n")
    assert list(relay.new_text()) == ["one\ntwo"]
    assert list(relay.new_text()) == []
    with log.open("a") as file:
        file.write("f\n")
    (tmp_path / "worker-1-2-3.err").write_text("NET/IB\n")
    assert list(relay.new_text()) == ["NET/IB", "half"]


def test_before_ray_has_a_folder_there_is_nothing_to_relay(tmp_path):
    assert list(LogRelay(tmp_path / "absent").new_text()) == []


# --- the other ranks ------------------------------------------------------------------------------------------------


def test_a_rank_is_gone_after_several_looks_in_a_row(listening):
    first = listening("127.0.0.1")
    port = first.getsockname()[1]
    second = listening("127.0.0.2", port)
    peers = Peers(plan(port=port - NODE))
    assert peers.gone() == []
    second.close()
    looks = [peers.gone() for _ in range(ray_rank.LOOKS)]
    assert looks[:-1] == [[], []]
    (line,) = looks[-1]
    assert line.startswith(f"spark2: rank 1 is gone: nothing answers at 127.0.0.2:{port}; limit: ")


def test_a_rank_that_comes_back_in_between_is_not_gone(listening):
    port = listening("127.0.0.1").getsockname()[1]
    peers = Peers(plan(port=port - NODE))
    for _ in range(2):
        assert [peers.gone() for _ in range(ray_rank.LOOKS - 1)] == [[], []]
        back = listening("127.0.0.2", port)
        assert peers.gone() == []
        back.close()


# --- waiting for all ------------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """What Ray will answer, one after the other, the last one for ever; time goes on with each pause."""
    answers, clock = [], [0.0]
    monkeypatch.setattr(ray_rank, "called", lambda _: answers.pop(0) if len(answers) > 1 else answers[0])
    monkeypatch.setattr(ray_rank.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(ray_rank.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    return answers


BOTH = {"127.0.0.1": "00", "127.0.0.2": "01"}


def test_the_engine_starts_when_all_have_registered(calls, capsys):
    calls += [{}, {}, {"127.0.0.1": "00"}, BOTH]
    assert ray_rank.wait_for_members(plan()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Ray: waiting for spark1, spark2",
        "Ray: waiting for spark2",
        "Ray: all 2 ranks have registered: 127.0.0.1, 127.0.0.2",
    ]


def test_a_half_formed_cluster_names_who_is_missing(calls, capsys):
    calls += [{"127.0.0.1": "00"}]
    assert ray_rank.wait_for_members(plan(seconds=60)) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("spark2: rank 1 has not registered 127.0.0.2 with Ray at 127.0.0.1:26479; ")
    assert len(said) == 2


def test_a_stranger_is_not_waited_out(calls, capsys):
    calls += [{**BOTH, "10.0.0.9": "01"}]
    assert ray_rank.wait_for_members(plan()) == 1
    assert capsys.readouterr().out.startswith("spark1: 10.0.0.9 is registered with Ray at 127.0.0.1:26479; ")


# --- the processes --------------------------------------------------------------------------------------------------


def run_rank(tmp_path, wanted, members):
    """Start the program as a container does; `members` is what stands in for asking Ray."""
    package = tmp_path / "library" / "sparkwright"
    package.mkdir(parents=True)
    for name in ("ray_plan", "ray_rank"):
        (package / f"{name}.py").write_text((REPO / f"plugins/module_utils/{name}.py").read_text())
    (package / "__init__.py").touch()
    main = CONTAINER_MAIN.replace(
        "sys.exit",
        f"from sparkwright import ray_rank\nray_rank.called = lambda _: {members!r}\nray_rank.PAUSE = 0.05\nsys.exit",
    )
    (tmp_path / "library" / "__main__.py").write_text(main)
    behind = ["--", *wanted.serve] if wanted.serve else []
    argv = [sys.executable, str(tmp_path / "library"), "ray", *wanted.as_arguments(), *behind]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end_of(process):
    out, _ = process.communicate(timeout=30)
    return process.returncode, out.splitlines()


def telling(place, names):
    """A command that writes some variables of its environment to a file."""
    return [
        sys.executable,
        "-c",
        f"import os; open({str(place)!r}, 'w').write(repr([os.environ[n] for n in {names!r}]))",
    ]


def test_ray_gets_a_name_by_its_rank_and_the_engine_is_told_where_ray_is(tmp_path, listening):
    port = listening("127.0.0.1").getsockname()[1]
    start = telling(tmp_path / "start", ["RAY_OVERRIDE_NODE_ID_FOR_TESTING"])
    serve = telling(tmp_path / "serve", ["RAY_ADDRESS"])
    wanted = plan(0, start, serve, ranks={"spark1": "127.0.0.1"}, port=port - NODE)
    code, said = end_of(run_rank(tmp_path, wanted, {"127.0.0.1": "00"}))
    (name,) = json.loads((tmp_path / "start").read_text().replace("'", '"'))
    assert (name[:2], len(name)) == ("00", 56)
    assert (tmp_path / "serve").read_text() == f"['127.0.0.1:{port - NODE}']"
    # An engine that ends is never right, whatever it returns.
    assert (code, said[-1].partition("; ")[0]) == (1, "spark1: the engine of rank 0 ended with 0")


def test_a_missing_rank_ends_the_head_before_the_engine(tmp_path):
    serve = telling(tmp_path / "serve", ["RAY_ADDRESS"])
    code, said = end_of(run_rank(tmp_path, plan(0, ["true"], serve, seconds=0), {"127.0.0.1": "00"}))
    assert code == 1
    assert any(line.startswith("spark2: rank 1 has not registered 127.0.0.2") for line in said)
    assert not (tmp_path / "serve").exists()


def test_ray_is_started_anew_when_it_was_too_slow(tmp_path):
    count = tmp_path / "count"
    program = tmp_path / "ray"
    program.write_text(f'#!/bin/sh\necho "$1" >> {count}\nexit 3\n')
    program.chmod(0o755)
    code, said = end_of(run_rank(tmp_path, plan(1, [str(program), "start"]), {}))
    assert count.read_text().split() == ["start", *["stop", "start"] * (ray_rank.ATTEMPTS - 1)]
    assert (code, said[-1].partition("; ")[0]) == (1, "spark2: Ray of rank 1 ended with 3")


def test_what_others_leave_behind_is_reaped():
    """Ray's servers outlive the command that starts them and come to the first process of the container."""
    rank = ray_rank.Rank(plan())
    rank._start("Ray", ["sleep", "60"])
    orphan = os.fork()
    if not orphan:
        os._exit(0)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        rank._reap()
        try:
            os.kill(orphan, 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(orphan, 0)
    (own,) = rank._processes.values()
    own.kill()
    time.sleep(0.2)
    # Its own are left to whoever waits for them.
    rank._reap()
    assert own.wait(10) == -signal.SIGKILL


def test_a_worker_ends_when_the_head_is_gone(tmp_path, listening):
    head = listening("127.0.0.1")
    port = head.getsockname()[1]
    listening("127.0.0.2", port)
    process = run_rank(tmp_path, plan(1, ["true"], port=port - NODE), {})
    time.sleep(0.5)
    assert process.poll() is None
    head.close()
    code, said = end_of(process)
    assert code == 1
    assert said[-1].startswith(f"spark1: rank 0 is gone: nothing answers at 127.0.0.1:{port}; ")


def test_told_to_end_it_ends_the_engine_and_has_nothing_to_complain_of(tmp_path, listening):
    port = listening("127.0.0.1").getsockname()[1]
    pid = tmp_path / "pid"
    serve = [sys.executable, "-c", f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"]
    wanted = plan(0, ["true"], serve, ranks={"spark1": "127.0.0.1"}, port=port - NODE)
    process = run_rank(tmp_path, wanted, {"127.0.0.1": "00"})
    until = time.monotonic() + 20
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, said = end_of(process)
    assert (code, [line for line in said if line.startswith("refused")]) == (0, [])
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


# --- what it says of Ray --------------------------------------------------------------------------------------------


def test_an_image_without_ray_says_so(monkeypatch):
    def absent(name):
        raise ray_rank.PackageNotFoundError(name)

    monkeypatch.setattr(ray_rank, "version", absent)
    assert ray_rank.facts("") == {"version": None, "nodes": None, "error": "the image has no Ray"}


def test_a_worker_says_its_release_and_the_head_who_has_registered(monkeypatch):
    monkeypatch.setattr(ray_rank, "version", lambda name: "2.60.0")
    monkeypatch.setattr(ray_rank, "registered", lambda place: {"10.0.0.1": "00"})
    assert ray_rank.facts("") == {"version": "2.60.0", "nodes": None, "error": None}
    assert ray_rank.facts("10.0.0.1:26479") == {"version": "2.60.0", "nodes": {"10.0.0.1": "00"}, "error": None}


def test_a_ray_that_does_not_answer_is_no_crash(monkeypatch):
    def silent(place):
        raise TimeoutError(place)

    monkeypatch.setattr(ray_rank, "version", lambda name: "2.60.0")
    monkeypatch.setattr(ray_rank, "registered", silent)
    assert ray_rank.facts("10.0.0.1:26479") == {
        "version": "2.60.0",
        "nodes": None,
        "error": "Ray at 10.0.0.1:26479 does not answer: TimeoutError",
    }


@pytest.mark.parametrize(("rank", "grpc", "port"), [(0, True, "26486"), (0, False, None), (1, True, None)])
def test_the_server_of_remote_clients_gets_a_port_where_it_runs(monkeypatch, rank, grpc, port):
    monkeypatch.setattr(ray_rank, "find_spec", lambda name: object() if grpc else None)
    found = ray_rank.start_arguments(replace(plan(rank), start=["ray", "start"]))
    assert found == ["ray", "start", *(["--ray-client-server-port", port] if port else [])]
