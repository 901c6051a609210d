"""Whether the engine serves: the client, the probe, and one step of waiting."""

from __future__ import annotations

import pytest
from engine_server import LLAMACPP_COUNTERS, VLLM_COUNTERS, Engine, serve
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import generate, generated_tokens
from ansible_collections.sparkwright.cluster.plugins.modules import engine_probe, engine_wait

# Port 9 of loopback (discard): nobody listens.
NOBODY = "http://127.0.0.1:9"


def probe(url, **arguments):
    return run_module(engine_probe.main, url=url, model="tiny", tokens=4, timeout=5, **arguments)


def test_an_answer_has_its_text_and_its_number_of_tokens():
    engine = Engine()
    with serve(engine) as url:
        answer = generate(url, "tiny", "hello", tokens=3, timeout=5)
    assert (answer.text, answer.tokens) == ("four sparks", 3)
    assert engine.asked == [{"model": "tiny", "prompt": "hello", "max_tokens": 3, "temperature": 0, "ignore_eos": True}]


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{"text": "x"}]}, []])
def test_what_is_no_completion_is_an_error(body):
    with serve(Engine(body=body)) as url, pytest.raises(ValueError, match="is no completion"):
        generate(url, "tiny", "hello", tokens=3, timeout=5)


@pytest.mark.parametrize("counters", [VLLM_COUNTERS, LLAMACPP_COUNTERS])
def test_the_counter_is_that_of_generated_tokens(counters):
    with serve(Engine(counters=counters)) as url:
        assert generated_tokens(url, timeout=5) == 100


def test_an_engine_that_generates_and_counts_passes():
    with serve(Engine()) as url:
        found = probe(url)
    assert (found["text"], found["tokens"], found["counted"]) == ("four sparks", 4, 8)


def test_a_counter_that_stands_still_is_a_failure():
    with serve(Engine(counts=False)) as url:
        found = probe(url)
    assert found["failed"]
    assert "the engine counted 0 tokens; limit: at least 8" in found["msg"]


def test_two_answers_that_differ_are_a_failure():
    with serve(Engine(texts=("four", "five"))) as url:
        found = probe(url)
    assert "two answers to one prompt differ; limit: equal, as nothing is sampled" in found["msg"]


def test_nobody_answers():
    found = probe(NOBODY)
    assert found["msg"].startswith(f"{NOBODY} does not generate: ")
    assert "remedy: look at `journalctl -u sparkwright-engine` on the head" in found["msg"]


@pytest.fixture
def rank(monkeypatch):
    """The unit's state, the minutes since its start and its log, as a test sets them."""
    state = {"unit": ("active", 1.0), "log": ["loading shard 1 of 3"]}
    monkeypatch.setattr(engine_wait.Rank, "unit", lambda self: state["unit"])
    monkeypatch.setattr(engine_wait.Rank, "log", lambda self, lines: state["log"][-lines:])
    return state


def wait(url, seconds=1):
    return run_module(engine_wait.main, host="spark2", url=url, model="tiny", seconds=seconds, limit_minutes=10)


def test_a_generated_token_is_ready(rank):
    with serve(Engine()) as url:
        found = wait(url)
    assert (found["ready"], found["stage"]) == (True, "serving")


def test_an_engine_that_loads_is_not_ready_and_says_where_it_is(rank):
    found = wait(NOBODY)
    assert (found["ready"], found["stage"]) == (False, "loading shard 1 of 3")


@pytest.mark.parametrize("state", ["failed", "inactive", "deactivating"])
def test_a_rank_that_is_gone_ends_the_launch_at_once(rank, state):
    rank["unit"] = (state, 1.0)
    found = wait(NOBODY, seconds=600)
    assert found["failed"]
    assert found["msg"].startswith(f"spark2: the engine's unit is {state}; limit: active until the model answers; ")
    assert found["log"] == ["loading shard 1 of 3"]


def test_what_the_start_up_check_refused_is_the_message(rank):
    rank["unit"] = ("failed", 0.0)
    line = "spark2: the MTU of enp1s0f0np0 is 1500; limit: 9000; remedy: run site.yml"
    rank["log"] = ["Starting ...", f"refused: {line}", "Failed with result 'exit-code'."]
    assert wait(NOBODY, seconds=600)["msg"] == line


def test_a_launch_that_takes_too_long_is_a_failure(rank):
    rank["unit"] = ("active", 11.2)
    found = wait(NOBODY, seconds=600)
    assert found["msg"].startswith("spark2: no answer 11 minutes after the start; limit: 10 minutes; ")
