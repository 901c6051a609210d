"""Work in a process of its own: it answers, fails, or is left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.bounded import TimedOut, bounded

# More than a pipe holds, so that a writer waits for a reader.
LARGE = bytes(1_000_000)


def test_the_answer_comes_back():
    assert bounded(lambda: {"a": [1, None]}, 5) == {"a": [1, None]}


def test_a_large_answer_comes_back():
    assert bounded(lambda: LARGE, 5) == LARGE


def test_what_it_raises_comes_back_as_text():
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError: division by zero$"):
        bounded(lambda: 1 / 0, 5)


def test_an_answer_that_cannot_travel_is_an_error():
    with pytest.raises(RuntimeError, match="pickle"):
        bounded(lambda: lambda: None, 5)


@pytest.mark.parametrize("end", [lambda: os._exit(3), lambda: sys.exit(3)], ids=["killed", "exit"])
def test_a_process_that_ends_without_an_answer_is_an_error(end):
    with pytest.raises(RuntimeError, match=r"^its process ended without an answer$"):
        bounded(end, 5)


def test_work_that_never_answers_is_left_behind():
    started = time.monotonic()
    with pytest.raises(TimedOut, match=r"^no answer within 0.2 s$"):
        bounded(lambda: time.sleep(3), 0.2)
    assert time.monotonic() - started < 2


def test_a_late_process_is_killed():
    children = children_of_this_process()
    with pytest.raises(TimedOut):
        bounded(lambda: time.sleep(60), 0.1)
    (child,) = children_of_this_process() - children
    assert wait_for(child, seconds=5)


def children_of_this_process():
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def wait_for(child, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.05)
    return False
