"""Which rank failed first, and the words for it."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.first_failure import first_failure, message, why
from ansible_collections.sparkwright.cluster.plugins.module_utils.rank import new_end

LOST = "it ended with exit code 1: RuntimeError: Connection closed by peer [192.168.100.12]"
OWN = "it ended with exit code 1: ValueError: no such layer"
# What the program in the container of a Ray says.
NEVER = "spark2: rank 1 has not registered 10.0.0.2 with Ray at 10.0.0.1:26479"
GONE = "spark2: rank 1 is gone: nothing answers at 10.0.0.2:26480"
ENDED = "spark1: Ray of rank 0 ended with 3"


def end(at, text="it ended", **more):
    return new_end(text, at, **more)


def test_a_container_that_docker_cannot_start_is_told_in_its_words():
    said = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
    text = why(125, False, [said, "", "Run 'docker run --help' for more information"])
    assert text == f"it ended with exit code 125: {said}"


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ({}, ""),
        ({"spark1": end(5.0, ordered=True)}, ""),
        ({"spark1": end(5.0), "spark2": end(3.0), "spark3": end(1.0, ordered=True)}, "spark2"),
        # Clocks differ by seconds: a rank that only lost its peer is not the first one.
        ({"spark1": end(5.0, LOST), "spark3": end(7.0, OWN)}, "spark3"),
        ({"spark1": end(5.0, OWN), "spark3": end(7.0, OWN, exit_code=137)}, "spark3"),
        ({"spark1": end(5.0, OWN), "spark3": end(7.0, OWN, out_of_memory=True)}, "spark3"),
        ({"spark1": end(5.0, LOST), "spark3": end(17.0, OWN)}, "spark1"),
        ({"spark1": end(5.0, LOST), "spark2": end(6.0, LOST)}, "spark1"),
        ({"spark1": end(5.0, f"it ended with exit code 1: {GONE}"), "spark2": end(6.0, OWN)}, "spark2"),
    ],
)
def test_the_first_failure(ends, first):
    assert first_failure(ends) == first


@pytest.mark.parametrize(
    ("exit_code", "out_of_memory", "log", "said"),
    [
        (137, True, [], "the kernel ended it for lack of memory"),
        (137, False, [], "it was killed (exit code 137)"),
        (137, False, ["ValueError: x"], "it was killed (exit code 137); its log: ValueError: x"),
        (1, False, ["ValueError: x"], "it ended with exit code 1: ValueError: x"),
        (1, False, ["RpcError: x", f"{NEVER}; limit: all 4; remedy: look"], f"it ended with exit code 1: {NEVER}"),
        (1, False, ["ValueError: x", GONE], "it ended with exit code 1: ValueError: x"),
        (1, False, [f"{GONE}; limit: it runs"], f"it ended with exit code 1: {GONE}"),
        (1, False, [f"{ENDED}; limit: it runs"], f"it ended with exit code 1: {ENDED}"),
        (0, False, ["INFO bye"], "it ended with exit code 0 and its log names no cause"),
        (None, False, [], "its container is gone"),
    ],
)
def test_why_a_container_ended(exit_code, out_of_memory, log, said):
    assert why(exit_code, out_of_memory, log) == said


RANKS = {"spark1": 0, "spark2": 1, "spark3": 2}


def test_the_message_names_the_first_rank_and_where_to_look():
    ends = {"spark1": end(5.0, LOST), "spark3": end(4.0, OWN)}
    assert message(ends, RANKS) == (
        f"spark3: rank 2 failed first: {OWN}; limit: every rank runs until the model answers; remedy: see its last"
        " lines below and `journalctl -u sparkwright-engine` on spark3; all ranks were stopped"
    )


def test_what_start_up_checks_refused_is_the_message_of_all_of_them():
    ends = {"spark1": end(1.0), "spark2": end(5.0, "spark2: no; limit: yes", refused=True)}
    assert message(ends, RANKS) == "spark2: no; limit: yes"


def test_without_a_failure_there_is_no_message():
    assert message({"spark1": end(1.0, ordered=True)}, RANKS) == ""
