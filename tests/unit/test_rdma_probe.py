"""The runs themselves: two ends meet over loopback through a stand-in for ib_write_bw, fail, or wait in vain."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import fake_perftest
import pytest
from builders import gid_of
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils import rdma_exchange
from ansible_collections.sparkwright.cluster.plugins.module_utils.perftest import REACH, SPEED
from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_exchange import Exchange, Limits, listens
from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_schedule import CLIENT, SERVER, Run
from ansible_collections.sparkwright.cluster.plugins.modules import rdma_probe

ONE, TWO = "127.0.0.11", "127.0.0.12"
DEVICE = "rocep1s0f0"
# Seconds for what succeeds at once, and for what waits in vain: still enough for a process to start on a busy machine.
PATIENT, SHORT = 15, 4


@pytest.fixture
def root(tmp_path):
    """A node with one device, which has rows for both addresses: both ends run on this machine."""
    port = tmp_path / "root/sys/class/infiniband" / DEVICE / "ports/1"
    for index, address in ((3, ONE), (5, TWO)):
        for file, text in (("gids", gid_of(address)), ("gid_attrs/types", "RoCE v2"), ("gid_attrs/ndevs", "lo")):
            (port / file).mkdir(parents=True, exist_ok=True)
            (port / file / str(index)).write_text(f"{text}\n")
    (tmp_path / "root/dev/infiniband").mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Installs the stand-in; the test says what its ends do."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(rdma_exchange, "RETRY_SECONDS", 0.1)
    yield partial(fake_perftest.install, folder)
    assert wait_for(lambda: not fake_perftest.running(folder), seconds=1), "a process was left behind"


def wait_for(holds, seconds):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def both_ends(round_=0):
    """One run as its two ends see it."""
    port = free_port()
    return (
        Run(round_, "rail0", SERVER, DEVICE, ONE, "spark2", TWO, port),
        Run(round_, "rail0", CLIENT, DEVICE, TWO, "spark1", ONE, port),
    )


def probe(root, *runs, seconds=60.0, wait=PATIENT, each=PATIENT, mode=SPEED):
    return Exchange(Limits(seconds, wait, each), 65536, mode, root=str(root)).probe(runs)


def together(root, *own, **limits):
    """Each node's runs at the same time."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda runs: probe(root, *runs, **limits)["runs"], own))


def test_two_ends_meet_and_both_have_the_figure(root, tool):
    folder = tool()
    server, client = both_ends()
    found = together(root, [server], [client])
    assert found == [[server.result(gbits=92.87)], [client.result(gbits=92.87)]]
    common = f"-d {DEVICE} -i 1 -x {{}} -p {server.port} -s 65536 -D 2 -F --report_gbits --bind_source_ip {{}}"
    sent = {" ".join(call) for call in fake_perftest.calls(folder)}
    assert sent == {common.format(3, ONE), common.format(5, f"{TWO} {ONE}")}


def test_in_the_mode_reach_there_is_no_figure(root, tool):
    folder = tool()
    server, client = both_ends()
    assert together(root, [server], [client], mode=REACH) == [[server.result()], [client.result()]]
    assert all(call[call.index("-n") + 1] == "100" for call in fake_perftest.calls(folder))


def test_a_client_waits_for_a_server_that_is_late(root, tool):
    folder = tool(server="late")
    server, client = both_ends()
    found = together(root, [server], [client])
    assert [run["ok"] for (run,) in found] == [True, True]
    assert len(fake_perftest.calls(folder)) > 2, "the client connected too early, and again"


def test_runs_are_made_in_the_order_of_their_rounds(root, tool):
    tool()
    (first, first_client), (second, second_client) = both_ends(), both_ends(round_=1)
    ones, twos = together(root, [second, first], [first_client, second_client])
    assert [(run["round"], run["ok"]) for run in ones + twos] == [(0, True), (1, True)] * 2


@pytest.mark.parametrize(
    ("behaviour", "reasons"),
    [
        (
            {"client": "rtr"},
            ["the other end gave up (", "the device found no way to the peer's GID (Failed to modify QP 1021 to RTR; "],
        ),
        (
            {"client": "retries"},
            ["the other end gave up (", "the peer acknowledged no write (Completion with error at client; "],
        ),
        (
            {"server": "rtr"},
            ["the device found no way to the peer's GID (", "the other end gave up (ethernet_read_keys: Couldn't read"],
        ),
        (
            {"server": "device"},
            ["libibverbs does not know the device (", "nobody listened there (Couldn't connect to 127.0.0.11:"],
        ),
        ({"client": "hang"}, ["the other end gave up (", "ib_write_bw had not ended"]),
        ({"client": "child"}, ["the other end gave up (", "ib_write_bw had not ended"]),
        (
            {"server": "hang", "client": "hang"},
            [f"ib_write_bw had not ended {2 * SHORT} s after the start", "ib_write_bw had not ended"],
        ),
    ],
    ids=["client RTR", "client retries", "server RTR", "no device", "hung client", "hung with a child", "both hang"],
)
def test_a_run_that_fails_is_told_by_both_ends_and_leaves_nothing_behind(root, tool, behaviour, reasons):
    tool(**behaviour)
    found = together(root, *([end] for end in both_ends()), wait=SHORT, each=SHORT)
    for (run,), reason in zip(found, reasons, strict=True):
        assert (run["ok"], run["gbits"]) == (False, None)
        assert reason in run["reason"]


def test_a_server_that_nobody_visits_is_ended(root, tool):
    tool()
    server, _ = both_ends()
    started = time.monotonic()
    (found,) = probe(root, server, wait=4)["runs"]
    assert found["reason"] == f"spark2 had not connected to port {server.port} 4 s after the start"
    assert time.monotonic() - started < PATIENT


def test_a_client_whose_server_never_listens_gives_up(root, tool):
    tool()
    _, client = both_ends()
    (found,) = probe(root, client, wait=1)["runs"]
    assert found["reason"].startswith(f"nobody listened there (Couldn't connect to {ONE}:{client.port}; ")


def test_a_peer_that_lost_time_in_an_earlier_round_is_waited_for(root, tool):
    """In round 0 nobody comes to the first node, which keeps it for as long as the second one waits in round 1."""
    tool()
    lonely, _ = both_ends()
    server, client = both_ends(round_=1)
    ones, twos = together(root, [lonely, server], [client], wait=1.5)
    assert [run["ok"] for run in ones + twos] == [False, True, True]


def test_a_run_without_a_table_has_no_figure_and_passed(root, tool):
    tool(client="quick", server="quick")
    found = together(root, *([end] for end in both_ends()))
    assert [(run["ok"], run["gbits"]) for (run,) in found] == [(True, None)] * 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": None}, "rail0 has no RDMA device"),
        ({"device": "mlx5_0"}, "there is no RDMA device mlx5_0"),
        (
            {"gid_address": "127.0.0.13"},
            f"{DEVICE} has no RoCE v2 GID of 127.0.0.13, only 3 RoCE v2 127.0.0.11, 5 RoCE v2 127.0.0.12",
        ),
    ],
    ids=["no device planned", "no device there", "no row"],
)
def test_what_is_missing_is_a_failure_in_words_and_nothing_is_run(root, tool, changes, reason):
    folder = tool()
    server, _ = both_ends()
    (found,) = probe(root, replace(server, **changes))["runs"]
    assert (found["ok"], found["reason"]) == (False, reason)
    assert fake_perftest.pids(folder) == []


def test_the_whole_ends_in_time_and_names_the_runs_that_had_no_turn(root, tool):
    tool()
    started = time.monotonic()
    found = probe(root, *(both_ends(round_)[0] for round_ in range(4)), seconds=2, wait=30)
    assert time.monotonic() - started < 6
    assert [run["reason"].split(" to port ")[0] for run in found["runs"]] == [
        "spark2 had not connected",
        *["its turn did not come within 2 s"] * 3,
    ]


def test_a_node_without_perftest_is_not_probed(root, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = "ib_write_bw is not installed (package perftest)"
    assert probe(root, *both_ends()) == {"available": False, "reason": reason, "runs": []}


def test_a_node_without_verbs_is_not_probed(root, tool):
    tool()
    (root / "dev/infiniband").rmdir()
    found = probe(root, *both_ends())
    assert found == {"available": False, "reason": "there is no /dev/infiniband", "runs": []}


def test_the_ports_that_listen():
    with socket.create_server((ONE, 0)) as server:
        port = server.getsockname()[1]
        assert listens(port)
        with socket.create_connection((ONE, port)):
            assert listens(port)
    assert not listens(port)


# --- the module -----------------------------------------------------------------------------------------------------


def at_once(*works):
    """The results of functions that run at the same time, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    results = context.Manager().dict()
    processes = [
        context.Process(target=lambda number=number, work=work: results.update({number: work()}))
        for number, work in enumerate(works)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [results[number] for number in range(len(works))]


def test_two_modules_at_once(root, tool, monkeypatch):
    tool()
    monkeypatch.setattr(rdma_probe, "Exchange", partial(Exchange, root=str(root)))
    ends = both_ends()
    found = at_once(*(partial(run_module, rdma_probe.main, runs=[end.as_data()]) for end in ends))
    for result, end in zip(found, ends, strict=True):
        assert result["changed"] is False
        assert result["rdma_probe"] == {"available": True, "reason": "", "runs": [end.result(gbits=92.87)]}


def test_in_check_mode_nothing_is_run_and_it_says_so(tool):
    folder = tool()
    server, _ = both_ends()
    found = run_module(rdma_probe.main, check_mode=True, runs=[server.as_data()])
    assert found["changed"] is False
    assert found["rdma_probe"] == {"available": False, "reason": "check mode runs nothing", "runs": []}
    assert fake_perftest.pids(folder) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_whoever_kills_the_module_ends_its_processes(root, tool, monkeypatch, number):
    """Even when it cannot act any more itself: then the time limit of the tool ends it."""
    folder = tool()
    monkeypatch.setattr(rdma_probe, "Exchange", partial(Exchange, root=str(root)))
    monkeypatch.setattr(rdma_exchange, "SPARE_SECONDS", 0)
    runs = [both_ends()[0].as_data()]

    def work():
        with suppress(ValueError):  # a module that is killed prints no result
            run_module(rdma_probe.main, runs=runs, wait=1, each=SHORT)

    module = multiprocessing.get_context("fork").Process(target=work)
    module.start()
    assert wait_for(lambda: fake_perftest.running(folder), seconds=10)
    os.kill(module.pid, number)
    module.join()
    assert wait_for(lambda: not fake_perftest.running(folder), SHORT + 5 if number == signal.SIGKILL else 1)
