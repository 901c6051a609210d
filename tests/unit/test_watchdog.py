"""When the watchdog finds a failure, and when it starts the ranks again."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.watchdog import (
    FORGIVEN_SECONDS,
    FROZEN_SECONDS,
    Decision,
    Look,
    Watch,
    decide,
    observed,
)

FROZEN = f"the token counters stood still for 960 s while 2 requests run; limit: {FROZEN_SECONDS} s"
FAILED = "2 generations in a row failed; limit: 1"


def idle(at, tokens, generated=True):
    return Look(at, tokens, 0, generated)


def busy(at, tokens, requests=2):
    return Look(at, tokens, requests)


SILENT = Look(0.0)


@pytest.mark.parametrize(
    ("looks", "reasons"),
    [
        ([idle(0, 1), idle(60, 2), idle(120, 3)], ["", "", ""]),
        ([idle(0, 1), SILENT, idle(120, 2), SILENT], ["", "", "", ""]),
        ([idle(0, 1), SILENT, SILENT], ["", "", FAILED]),
        ([idle(0, 1), idle(60, 1, False), idle(120, 1, False)], ["", "", FAILED]),
        # An answer that came while the engine was silent for us shows in the counter.
        ([idle(0, 1), idle(60, 1, False), idle(120, 9, False), idle(180, 9, False)], ["", "", "", ""]),
        # A long prompt moves no counter for minutes.
        ([idle(0, 1), busy(60, 1), busy(600, 1), busy(660, 2)], ["", "", "", ""]),
        ([idle(0, 1), busy(60, 1), busy(960, 1)], ["", "", FROZEN]),
        ([idle(0, 1), SILENT, busy(60, 1), SILENT], ["", "", "", ""]),
    ],
)
def test_what_is_a_failure(looks, reasons):
    watch, found = Watch(), []
    for look in looks:
        watch, reason = observed(watch, look)
        found.append(reason)
    assert found == reasons


NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("restarts", "was_ready", "enabled", "decision"),
    [
        ([], True, True, Decision.AGAIN),
        ([], False, True, Decision.STOP),
        ([], True, False, Decision.STOP),
        ([NOW - 60], True, True, Decision.STOP),
        ([NOW - FORGIVEN_SECONDS - 1], True, True, Decision.AGAIN),
    ],
)
def test_a_restart_is_allowed_once_a_day_and_never_before_the_first_answer(restarts, was_ready, enabled, decision):
    assert decide(restarts, NOW, was_ready=was_ready, enabled=enabled) is decision
