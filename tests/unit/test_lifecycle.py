"""Serving, down, or in between."""

from __future__ import annotations

import pytest
from builders import GONE, cluster, engine_container

from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import State, state_of

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
