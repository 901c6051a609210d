"""A node whose engine is stopped, and one whose engine is started: what is done, and what is left alone."""

from __future__ import annotations

import pytest
from builders import engine_container, engine_rank, node_facts
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB, KIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.rank import new_end
from ansible_collections.sparkwright.cluster.plugins.modules import engine_started, engine_stopped

NEIGHBOUR = {**engine_container("spark2"), "id": "n", "name": "neighbour", "labels": {}}
LABELLED = {**engine_container("spark2", "exited"), "id": "l", "name": "old"}


class Node:
    """A node that obeys systemctl and docker, as far as a test lets it."""

    def __init__(self):
        self.facts, self.calls = node_facts(1, serving=True), []
        self.facts["runtime"]["containers"].append(NEIGHBOUR)
        # Containers that do not go.
        self.stuck = set()

    def read(self, subsets, **_):
        return {name: self.facts[name] for name in subsets}

    def runtime(self):
        return self.facts["runtime"]

    def run(self, argv, **_):
        self.calls.append(" ".join(argv))
        containers = self.facts["runtime"]["containers"]
        if argv[:2] == ["systemctl", "stop"]:
            self.facts["serving"]["unit"] = "inactive"
        elif argv[:2] == ["docker", "rm"]:
            gone = set(argv[3:]) - self.stuck
            self.facts["runtime"]["containers"] = [one for one in containers if one["name"] not in gone]
        elif argv[:2] == ["systemctl", "show"]:
            return 0, "LoadState=loaded\nActiveState=inactive\nNeedDaemonReload=no\n", ""
        elif argv[:2] == ["systemctl", "is-enabled"]:
            return 0, "enabled\n", ""
        return 0, "", ""


@pytest.fixture
def node(monkeypatch):
    found = Node()
    for module in (engine_stopped, engine_started):
        monkeypatch.setattr(module, "NodeReader", lambda *_: found)
        monkeypatch.setattr(module.AnsibleModule, "run_command", lambda self, argv, **more: found.run(argv, **more))
    monkeypatch.setattr(engine_stopped.time, "sleep", lambda seconds: None)
    return found


def stop(check_mode=False, seconds=0):
    return run_module(
        engine_stopped.main, check_mode=check_mode, host="spark2", ports=[8210, 29501], memory_seconds=seconds
    )


def test_the_unit_is_stopped_and_what_outlives_it_is_taken_away(node):
    node.facts["runtime"]["containers"].append(LABELLED)
    found = stop()
    assert node.calls == ["systemctl stop sparkwright-engine.service", "docker rm --force sparkwright-engine old"]
    assert found["changed"]
    assert (found["removed"], found["others"]) == (["sparkwright-engine", "old"], ["neighbour"])
    assert [one["name"] for one in node.facts["runtime"]["containers"]] == ["neighbour"]


def test_where_nothing_is_left_nothing_is_done(node):
    node.facts["serving"] |= {"unit": "inactive", "rank": None}
    node.facts["runtime"]["containers"] = [NEIGHBOUR]
    found = stop()
    assert (found["changed"], node.calls) == (False, [])


def test_check_mode_says_so_and_does_nothing(node):
    assert stop(check_mode=True)["changed"]
    assert node.calls == []


def test_a_container_that_stays_is_a_failure_with_its_name(node):
    node.stuck = {"sparkwright-engine"}
    found = stop()
    assert found["failed"]
    assert found["msg"].startswith("spark2: the container sparkwright-engine is still there after docker rm --force; ")


def test_memory_that_does_not_come_back_is_named_with_its_holder(node):
    available = node.facts["memory"]["MemAvailable"] * KIB
    node.facts["serving"]["rank"] = engine_rank(available=available + 3 * GIB)
    node.facts["processes"]["gpu"] = [{"pid": 9, "name": "VLLM::Worker", "bytes": 5 * GIB}]
    node.facts["serving"]["listeners"].append({"address": "0.0.0.0", "port": 29501, "process": "python3"})
    found = stop()
    assert found["changed"]
    assert "remedy: end what holds it: pid 9 (VLLM::Worker, 5.00 GiB)" in found["memory"]
    assert found["listeners"] == ["port 29501 is held by python3"]


def test_how_the_rank_ended_is_returned(node):
    node.facts["serving"] |= {"unit": "failed", "rank": engine_rank(end=new_end("it was killed", 5.0))}
    node.facts["runtime"]["containers"] = []
    assert stop()["rank"]["end"]["why"] == "it was killed"


def test_a_start_forgets_earlier_launches_first(node, monkeypatch):
    node.facts["runtime"]["containers"] = []
    monkeypatch.setattr(engine_started, "forget_launches", lambda: node.calls.append("forget"))
    found = run_module(engine_started.main, start=True, at_boot=True)
    assert found["acted"] == ["systemctl start --no-block sparkwright-engine.service"]
    # After the two looks.
    assert node.calls[2:] == ["forget", *found["acted"]]


def test_a_second_start_changes_nothing(node):
    found = run_module(engine_started.main, start=False, at_boot=True)
    assert (found["changed"], found["acted"]) == (False, [])
