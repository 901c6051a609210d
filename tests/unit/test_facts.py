"""The small questions that checks ask of the facts."""

from __future__ import annotations

import pytest
from builders import DEVICE0, NETDEV0, engine_container, fabric, node_facts

from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import (
    device_of,
    engine_runs,
    gid_rows,
    own_container,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.gids import find_ipv4


@pytest.mark.parametrize(("netdev", "name"), [(NETDEV0, DEVICE0), ("enP7s7", None)])
def test_the_device_of_an_interface(netdev, name):
    found = device_of(fabric(), netdev)
    assert (found and found[0]) == name


def test_rows_keep_their_index():
    assert find_ipv4(gid_rows(fabric()["rdma"][DEVICE0]["port"]), "192.168.100.10").index == 3


@pytest.mark.parametrize(
    ("states", "runs"),
    [([], False), (["running"], True), (["exited"], False), (["created"], False), (["restarting"], False)],
)
def test_the_engine_runs(states, runs):
    facts = node_facts()
    facts["runtime"]["containers"] = [engine_container("spark1", state) for state in states]
    assert engine_runs(facts) is runs


def test_another_container_is_not_the_engine():
    facts = node_facts()
    facts["runtime"]["containers"] = [{**engine_container("spark1"), "name": "sparkwright-engine-2"}]
    assert not engine_runs(facts)
    assert own_container(facts["runtime"], "sparkwright-engine") is None


def test_an_unread_runtime_runs_nothing():
    assert not engine_runs({"reachable": False, "privileged": False})
