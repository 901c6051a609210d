"""The calls between the ranks, over loopback."""

from __future__ import annotations

import socket

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils import roll_call
from ansible_collections.sparkwright.cluster.plugins.module_utils.roll_call import HeadCall, WorkerCall, others

RANKS = {"spark2": 1, "spark3": 2}


@pytest.fixture
def head():
    call = HeadCall("127.0.0.1", 0, RANKS, "d1")
    yield call
    call.close()


@pytest.fixture
def joined(head):
    """A rank that has called, and what the head heard of it."""
    worker = call(head)
    assert heard(head, worker) == [("joined", "spark2")]
    yield worker
    worker.close()


def call(head, host="spark2", rank=1, deployment="d1"):
    return WorkerCall("127.0.0.1", head.port, {"host": host, "rank": rank, "deployment": deployment})


def heard(head, *workers):
    """What the head hears within some turns."""
    events = []
    for _ in range(10):
        for worker in workers:
            worker.step(0.01)
        events += head.step(0.02)
    return [(event.kind, event.host) for event in events]


def told(worker):
    return [(event.kind, dict(event.data)) for _ in range(5) for event in worker.step(0.02)]


def test_a_rank_that_calls_is_not_missing_any_more(head, joined):
    assert head.missing == ["spark3"]
    head.send("go")
    assert told(joined) == [("go", {"kind": "go"})]
    joined.send("failed", why="x")
    (event,) = head.step(0.5)
    assert (event.kind, event.host, event.data["why"]) == ("failed", "spark2", "x")


def test_a_rank_that_was_refused_and_says_more_at_once_is_heard_no_more(head):
    with socket.create_connection(("127.0.0.1", head.port)) as stranger:
        stranger.sendall(b'{"kind": "hello", "host": "spark9", "rank": 1}\n{"kind": "beat"}\n')
        assert heard(head) == [("refused", "spark9")]


def test_a_host_that_nobody_knows_is_refused_without_a_rank_too(head):
    with socket.create_connection(("127.0.0.1", head.port)) as stranger:
        stranger.sendall(b'{"kind": "hello", "host": "spark9", "deployment": "d1"}\n')
        assert heard(head) == [("refused", "spark9")]


def test_the_longest_words_of_a_rank_that_failed_come_through(head, joined):
    log = ["\N{FULL BLOCK}" * 300] * 40
    joined.send("failed", why="x", end={"log": log})
    events = [event for _ in range(10) for event in head.step(0.05)]
    assert [(event.kind, event.data["end"]["log"] == log) for event in events] == [("failed", True)]


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (
            {"deployment": "d2"},
            "spark2 was set up for deployment d2; limit: d1, as on the head; remedy: run site.yml",
        ),
        ({"rank": 2}, "spark2 calls as rank 2; limit: spark2 as 1, spark3 as 2; remedy: run site.yml"),
        ({"host": "spark9"}, "spark9 calls as rank 1; limit: spark2 as 1, spark3 as 2; remedy: run site.yml"),
    ],
)
def test_a_rank_that_does_not_belong_is_told_so(head, hello, why):
    worker = call(head, **hello)
    worker.step(0.01)
    events = [event for _ in range(10) for event in head.step(0.02)]
    assert [(event.kind, event.data["why"]) for event in events] == [("refused", why)]
    (said, *_) = told(worker)
    assert said == ("end", {"kind": "end", "again": False, "why": why, "first": why})
    assert head.missing == ["spark2", "spark3"]


def test_a_rank_that_hangs_up_is_lost(head, joined):
    joined.close()
    assert heard(head) == [("lost", "spark2")]
    assert head.missing == ["spark2", "spark3"]


def test_a_node_that_comes_back_after_a_power_cut_replaces_what_it_was(head, joined):
    again = call(head)
    assert heard(head, again) == [("lost", "spark2"), ("joined", "spark2")]
    assert head.missing == ["spark3"]
    again.close()


def test_a_rank_that_is_silent_is_lost(head, joined, monkeypatch):
    monkeypatch.setattr(roll_call, "SILENCE", 0.0)
    assert heard(head) == [("lost", "spark2")]


def test_signs_of_life_are_no_events(head, joined, monkeypatch):
    monkeypatch.setattr(roll_call, "BEAT", 0.0)
    assert heard(head, joined) == []
    assert head.missing == ["spark3"]


def test_a_head_that_hangs_up_is_lost_and_called_again(head, joined, monkeypatch):
    monkeypatch.setattr(roll_call, "RETRY", 0.0)
    head.close()
    assert [kind for kind, _ in told(joined)] == ["lost"]
    assert not joined.connected


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"x" * 200_000])
def test_a_stranger_disturbs_nobody(head, joined, noise):
    with socket.create_connection(("127.0.0.1", head.port)) as stranger:
        stranger.sendall(noise)
        assert heard(head, joined) == []
    assert heard(head, joined) == []
    assert head.missing == ["spark3"]


def test_the_ranks_above_the_head():
    assert others(["spark1", "spark2", "spark3"]) == RANKS
