"""The modules that ask a serving engine on the head, against a server that answers like one."""

from __future__ import annotations

import pytest
from engine_server import LLAMACPP_COUNTERS, Engine, serve
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.modules import engine_bench, engine_verify

# Port 9 of loopback (discard): nobody listens.
NOBODY = "http://127.0.0.1:9"
ANSWERS = ("It is 391.", "877 from 1,204 leaves 327", "168 eggs")
PRIME = "```python\ndef is_prime(n):\n    return n > 1 and all(n % d for d in range(2, n))\n```"


def verify(url, **arguments):
    return run_module(engine_verify.main, url=url, model="tiny", timeout=5, tokens=4, **arguments)


def outcomes(found):
    return {one["proof"]: one["outcome"] for one in found["proofs"]}


def test_a_good_engine_passes_every_proof():
    texts = ["four sparks"] * 4 + ["the boat is", "58213."]
    engine = Engine(texts=texts, chats=(*ANSWERS, PRIME), guesses=(0.9, 0.8))
    with serve(engine) as url:
        found = verify(url, expect={"acceptance": [0.9, 0.79]}, context=4096)
    assert set(outcomes(found).values()) == {"ok"}, found
    assert len(found["proofs"]) == 7


def test_what_the_profile_does_not_expect_is_said_to_be_skipped():
    with serve(Engine()) as url:
        found = verify(url, expect={"proofs": ["deterministic"]})
    assert outcomes(found) == {
        "deterministic": "ok",
        **dict.fromkeys(("counter", "streaming", "arithmetic", "code", "needle", "acceptance"), "skipped"),
    }


def test_the_executor_says_which_counter_is_looked_at():
    with serve(Engine(counters=LLAMACPP_COUNTERS)) as url:
        found = [verify(url, quick=True, executor=executor) for executor in ("llamacpp", "ray")]
    assert outcomes(found[0]) == {"deterministic": "ok", "counter": "ok"}
    assert "has no count of generated tokens" in found[1]["msg"]


def test_quick_proves_tokens_and_counter_and_no_more():
    with serve(Engine()) as url:
        found = verify(url, quick=True)
    assert outcomes(found) == {"deterministic": "ok", "counter": "ok"}


BROKEN = {
    "deterministic": (Engine(texts=("four", "five")), "4 and 4 tokens, texts different"),
    "counter": (Engine(counts=False), "the engine counted 0 tokens"),
    "streaming": (Engine(), "4 tokens in 4 pieces, without an end"),
    "arithmetic": (Engine(chats=("391", "328", "168")), "2 of 3 sums are right"),
    "code": (Engine(chats=("I cannot",)), "the answer has no function is_prime(n) that divides and returns"),
    "needle": (Engine(texts=("the sea",)), "not found at 50% of "),
    "acceptance": (Engine(guesses=(0.9, 0.0)), "acceptance 0.90, 0.00"),
}


@pytest.mark.parametrize("proof", BROKEN)
def test_each_proof_can_fail_and_says_why(proof):
    engine, fact = BROKEN[proof]
    engine.whole = False
    with serve(engine) as url:
        found = verify(url, expect={"proofs": [proof]}, needle_tokens=400)
    assert found["failed"]
    (line,) = found["msg"].splitlines()
    assert line.startswith(f"{url}: {proof}: {fact}")
    assert "; remedy: " in line


def test_an_engine_that_refuses_fails_the_proof_that_asked():
    engine = Engine()
    engine.broken = True
    with serve(engine) as url:
        found = verify(url, quick=True)
    assert "deterministic: no answer: HTTP 500 " in found["msg"]


def test_the_key_of_the_api_is_read_from_its_file(tmp_path, monkeypatch):
    file = tmp_path / "api.env"
    file.write_text("VLLM_API_KEY=s3cret=with=signs\nLLAMA_API_KEY=other\n")
    with serve(Engine(key="s3cret=with=signs")) as url:
        assert "HTTP 401" in verify(url, quick=True)["msg"]
        key = engine_verify.key_of(str(file))
        monkeypatch.setattr(engine_verify, "key_of", lambda: key)
        assert "failed" not in verify(url, quick=True)


def test_nobody_answers():
    found = verify(NOBODY)
    assert found["msg"].startswith(f"{NOBODY} does not answer: ")
    assert "remedy: look at `journalctl -u sparkwright-engine` on the head" in found["msg"]


def test_a_bench_measures_all_and_repeats_no_beginning():
    engine = Engine()
    with serve(engine) as url:
        found = run_module(
            engine_bench.main, url=url, model="tiny", context=512, long_tokens=300, requests=3, timeout=5
        )
    assert set(found["measured"]) == {"decode", "decode_long", "prefill", "concurrent"}
    assert all(rate > 0 for rate in found["measured"].values())
    assert found["sizes"]["answer"] == 128
    assert found["sizes"]["short"] <= 16 < 200 < found["sizes"]["long"] <= 300
    beginnings = [request["prompt"].split()[0] for request in engine.asked[1:]]
    assert len(set(beginnings)) == len(beginnings) == 5


def test_a_bench_without_an_engine():
    found = run_module(engine_bench.main, url=NOBODY, model="tiny", timeout=5)
    assert found["msg"].startswith(f"{NOBODY} does not answer: ")
