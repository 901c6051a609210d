"""Serving, down, or in between."""

from __future__ import annotations

import pytest
from builders import GONE, cluster, engine_container, engine_rank, processes

from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import (
    State,
    Step,
    Unit,
    ours,
    outcome,
    start_commands,
    state_of,
    step_of,
    still_held,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_UNIT
from ansible_collections.sparkwright.cluster.plugins.module_utils.rank import new_end

CONTAINERS = ("runtime", "containers")
UNIT = ("serving", "unit")
UNLABELLED = {**engine_container("spark2"), "labels": {}}


@pytest.mark.parametrize(
    ("serving", "on_spark2", "state"),
    [
        (True, {}, State.RUNNING),
        (False, {}, State.DOWN),
        (False, {UNIT: "failed"}, State.DOWN),
        (False, {UNIT: "activating"}, State.PARTIAL),
        (False, {CONTAINERS: [engine_container("spark2", "exited")]}, State.PARTIAL),
        (False, {CONTAINERS: [engine_container("spark2")]}, State.PARTIAL),
        (False, {CONTAINERS: [engine_container("spark2")], UNIT: "active"}, State.PARTIAL),
        (False, {("serving",): GONE}, State.PARTIAL),
        (True, {CONTAINERS: [], UNIT: "inactive"}, State.PARTIAL),
        (True, {UNIT: "deactivating"}, State.PARTIAL),
        (True, {CONTAINERS: [engine_container("another configuration")]}, State.PARTIAL),
        (True, {CONTAINERS: [UNLABELLED]}, State.PARTIAL),
        (True, {("runtime",): GONE}, State.PARTIAL),
    ],
)
def test_the_state_of_the_cluster(serving, on_spark2, state):
    facts = {("spark2", *path): value for path, value in on_spark2.items()}
    assert state_of(cluster(serving=serving, facts=facts)) is state


def test_foreign_containers_do_not_count():
    foreign = {("spark2", *CONTAINERS): [{**engine_container("spark2"), "name": "db"}]}
    assert state_of(cluster(facts=foreign)) is State.DOWN


def test_an_unknown_configuration_is_never_the_wanted_one():
    assert state_of(cluster(serving=True, config_hashes={})) is State.PARTIAL
    unlabelled = {("spark2", *CONTAINERS): [UNLABELLED]}
    hashes = {f"spark{n}": f"config-spark{n}" for n in (1, 3, 4)}
    assert state_of(cluster(serving=True, facts=unlabelled, config_hashes=hashes)) is State.PARTIAL


# --- start and stop -------------------------------------------------------------------------------------------------

SHOWN = "LoadState={}\nActiveState={}\nNeedDaemonReload={}\n"
START = ["start", "--no-block", ENGINE_UNIT]
ENABLE = ["--no-reload", "enable", ENGINE_UNIT]


@pytest.mark.parametrize(
    ("shown", "serves", "asked", "commands"),
    [
        # A new node.
        (("not-found", "inactive", "", "no"), False, (True, True), [["daemon-reload"], ENABLE, START]),
        (("loaded", "inactive", "enabled", "no"), False, (True, True), [START]),
        (("loaded", "failed", "enabled", "no"), False, (True, True), [["reset-failed", ENGINE_UNIT], START]),
        (("loaded", "inactive", "enabled", "yes"), False, (True, True), [["daemon-reload"], START]),
        # While the engine serves systemd is never told to read its files again, not even by `enable`.
        (("loaded", "active", "enabled", "yes"), True, (False, True), []),
        (("loaded", "active", "enabled", "yes"), True, (True, True), []),
        (("loaded", "active", "disabled", "yes"), True, (False, True), [ENABLE]),
        (("loaded", "active", "enabled", "no"), True, (False, False), [["--no-reload", "disable", ENGINE_UNIT]]),
        (("loaded", "activating", "enabled", "no"), False, (True, True), []),
    ],
)
def test_what_systemd_is_told_for_a_start(shown, serves, asked, commands):
    loaded, active, enabled, stale = shown
    unit = Unit.parse(SHOWN.format(loaded, active, stale), f"{enabled}\n", serves)
    assert start_commands(unit, start=asked[0], at_boot=asked[1]) == commands


def test_containers_of_ours_are_known_by_name_and_by_label():
    renamed = {**engine_container("spark1"), "name": "old"}
    foreign = {**engine_container("spark1"), "name": "db", "labels": {}}
    unlabelled = {**engine_container("spark1"), "labels": {}}
    assert ours([renamed, foreign, unlabelled]) == [renamed, unlabelled]


HELD = processes() | {"gpu": [{"pid": 9, "name": "VLLM::Worker", "bytes": 5 * GIB}], "resident": []}


@pytest.mark.parametrize(
    ("available", "before", "text"),
    [
        (100, 0, ""),
        (100, 100, ""),
        (99, 100, ""),
        (
            80,
            100,
            "MemAvailable is 80.00 GiB; limit: 99.00 GiB, as before the launch; remedy: end what holds it: pid 9 "
            "(VLLM::Worker, 5.00 GiB)",
        ),
    ],
)
def test_memory_that_is_still_held_is_named(available, before, text):
    assert still_held(available * GIB, before * GIB, HELD) == text


# --- waiting --------------------------------------------------------------------------------------------------------

NOW = 1_796_057_541.0 + 180


def state(active="active", job="0", invocation="1d"):
    return f"Job={job}\nActiveState={active}\nInvocationID={invocation}\n"


def loading(**changes):
    return engine_rank(**{"ready": False, "stage": "weights", "detail": "2 of 47 shards", **changes})


@pytest.mark.parametrize(
    ("shown", "rank", "step"),
    [
        (state("inactive", job="77"), None, Step("the unit starts")),
        (state("activating"), engine_rank(invocation="an earlier one"), Step("the unit starts")),
        (state(), loading(), Step("weights: 2 of 47 shards, for 3 min")),
        (
            state(),
            loading(stage="roll call", detail="", missing=["spark3", "spark4"]),
            Step("roll call, waits for spark3, spark4, for 3 min"),
        ),
        (
            state(),
            loading(stage="roll call", detail="", missing=["spark3"], since=NOW - 1200),
            Step(
                "roll call, waits for spark3, for 20 min", fault="the roll call waited 20 minutes for spark3; limit: 15"
            ),
        ),
        (state(), engine_rank(), Step("ready", ready=True)),
        (state("failed"), loading(end=new_end("it was killed", 1.0)), Step("ended", fault="it was killed")),
        (
            state("failed", invocation="2e"),
            loading(end=new_end("it was killed", 1.0)),
            Step("ended", fault="the engine's unit is failed"),
        ),
        (state("inactive"), None, Step("ended", fault="the engine's unit is inactive")),
    ],
)
def test_one_step_of_waiting(shown, rank, step):
    assert step_of(shown, rank, NOW, 15) == step


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ({"spark1": Step("x"), "spark2": Step("x")}, "wait"),
        ({"spark1": Step("x"), "spark2": Step("x", ready=True)}, "wait"),
        ({"spark1": Step("x", ready=True), "spark2": Step("x")}, "ready"),
        ({"spark1": Step("x", ready=True), "spark2": Step("x", fault="dead")}, "failed"),
    ],
)
def test_the_outcome_of_a_step_on_all_nodes(steps, found):
    assert outcome(steps, "spark1") == found
