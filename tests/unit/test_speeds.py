"""Speeds from the times of answers, and what is expected of them."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import Answer, Counters, Streamed
from ansible_collections.sparkwright.cluster.plugins.module_utils.proofs import (
    NEEDLE,
    Proof,
    acceptance,
    applying,
    has_number,
    haystack,
    same_twice,
    wrote_code,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.speeds import (
    Sizes,
    decode_rate,
    line,
    prefill_rate,
    sizes,
    together_rate,
    too_slow,
)

ANSWER = Streamed((2.0, 2.5, 3.0), 21, 950, True)


def test_rates():
    assert decode_rate(ANSWER) == 20.0
    assert prefill_rate(ANSWER) == 475.0
    assert together_rate([ANSWER, ANSWER], 6.0) == 7.0


@pytest.mark.parametrize("at", [(), (1.0,)])
def test_an_answer_in_one_piece_has_no_rate(at):
    assert decode_rate(Streamed(at, 21, 950, True)) == 0.0


@pytest.mark.parametrize(
    ("context", "found"),
    [
        (0, Sizes(16, 32768, 256, 2)),
        (131072, Sizes(16, 32768, 256, 2)),
        (16384, Sizes(16, 14515, 256, 2)),
        (128, Sizes(16, 86, 32, 2)),
    ],
)
def test_sizes_are_cut_to_the_context(context, found):
    assert sizes(context, 32768, 256, 2) == found


EXPECTED = {"decode": 22.0, "prefill": 475.0, "concurrent": 48.0}


@pytest.mark.parametrize(
    ("measured", "lines"),
    [
        ({"decode": 22.0, "prefill": 475.0}, []),
        ({"decode": 18.8, "prefill": 900.0}, []),
        (
            {"decode": 18.0, "decode_long": 1.0, "prefill": 475.0},
            ["decode after a short prompt is 18.0 tok/s; limit: 18.7 tok/s, the expected 22 less 15%"],
        ),
    ],
)
def test_a_speed_that_stays_behind_is_named(measured, lines):
    assert too_slow(measured, EXPECTED, 0.15) == lines


def test_all_speeds_in_one_line():
    measured = {"decode": 21.04, "decode_long": 13.0}
    assert line(measured, EXPECTED) == (
        "decode after a short prompt 21.0 tok/s (expected 22), decode after a long prompt 13.0 tok/s"
    )


# --- proofs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "wanted", "found"),
    [("It is 391.", "391", True), ("1,391", "391", False), ("3910", "391", False), ("= **327**", "327", True)],
)
def test_a_number_stands_by_itself(answer, wanted, found):
    assert has_number(answer, wanted) is found


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ("def is_prime(n):\n    return n > 1 and all(n % d for d in range(2, n))\n", "ok"),
        ("Sure:\n```python\ndef is_prime(n):\n    return n % 2\n```", "ok"),
        ("def is_prime(n):\n    return True\n", "failed"),
        ("def is_prime():\n    return 1 % 2\n", "failed"),
        ("def is_prime(n)\n    return n % 2", "failed"),
        ("\x00", "failed"),
    ],
)
def test_code_is_read(answer, good):
    assert wrote_code(answer).outcome == good


@pytest.mark.parametrize(
    ("second", "generated", "outcome"),
    [
        ((1, 2), 4, "ok"),
        ((1, 2), 90, "ok"),
        ((1, 3), 4, "failed"),
        # Others were served meanwhile.
        ((1, 3), 5, "skipped"),
        # What is missing is no matter of rounding.
        ((1,), 90, "failed"),
    ],
)
def test_two_answers_are_equal_unless_others_share_their_batches(second, generated, outcome):
    answers = [Answer("", len(ids), 1, ids) for ids in ((1, 2), second)]
    assert same_twice(*answers, 2, generated).outcome == outcome


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_needle_stands_where_it_should(depth):
    text = haystack(5160, depth, 25.0)
    assert text.count(NEEDLE) == 1
    assert text.index(NEEDLE) / text.rindex("\nQuestion") == pytest.approx(depth, abs=0.01)


def test_acceptance_is_that_of_the_drafts_between_two_looks():
    before, after = Counters(0, 0, 0, 10.0, (9.0, 8.0)), Counters(0, 0, 0, 20.0, (18.0, 15.0))
    assert acceptance(before, after) == [0.9, 0.7]
    assert acceptance(after, after) == []


def test_what_applies_is_the_profiles_to_say():
    found = dict(applying({"proofs": ["deterministic", "acceptance"]}, guesses=False))
    assert found[Proof.DETERMINISTIC] == ""
    assert found[Proof.ACCEPTANCE] == "the engine guesses no tokens"
    assert found[Proof.ARITHMETIC] == "the profile does not expect it"
    assert dict(applying({}, guesses=True))[Proof.NEEDLE] == ""
