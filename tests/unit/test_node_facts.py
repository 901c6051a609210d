"""The module hands its arguments on, and its action reads a node by one execution of it and no more."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleConnectionFailure
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.action.node_facts import ActionModule
from ansible_collections.sparkwright.cluster.plugins.modules import node_facts

PING = {"address": "192.168.100.10", "peer": "192.168.100.11", "size": 8972}
NODE = {"node": {"schema": 1, "reachable": True}, "_ansible_parsed": True}


@pytest.fixture
def asked(monkeypatch):
    """What the module asked its reader for."""
    calls = []
    monkeypatch.setattr(node_facts.NodeReader, "read", lambda self, *arguments: calls.append(arguments) or {})
    return calls


def test_the_module_asks_for_nothing_on_the_wire_unless_told_to(asked):
    run_module(node_facts.main, subsets=["fabric"])
    ((_, _, _, probes),) = asked
    assert (list(probes.pings), probes.neighbours, list(probes.arp)) == ([], False, [])


def test_the_module_hands_its_probes_on(asked):
    run_module(node_facts.main, pings=[PING], neighbours=True, arp=[{"address": "192.168.100.10"}])
    ((_, _, _, probes),) = asked
    assert (probes.pings, probes.neighbours) == ([PING], True)
    assert probes.arp == [{"netdev": None, "address": "192.168.100.10"}]


class Task:
    """As much of a task as the action looks at."""

    async_val = 0

    def __init__(self, **arguments):
        self.args = arguments


class CountingAction(ActionModule):
    """The action with a connection that answers, or raises, what the test says."""

    def __init__(self, answer, **arguments):
        self._task = Task(**arguments)
        self.answer = answer
        self.executed = []

    def planned_arguments(self, task_vars):
        return {"pings": [PING]}

    def _execute_module(self, module_name, module_args, task_vars):
        self.executed.append((module_name, module_args))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "reachable"),
    [
        (NODE, True),
        ({"msg": "sudo: a password is required", "_ansible_parsed": False}, False),
        (AnsibleConnectionFailure("No route to host"), False),
    ],
    ids=["a node that answers", "no sudo", "no connection"],
)
def test_a_node_is_read_by_one_execution(monkeypatch, answer, reachable):
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda self, tmp, task_vars: {})
    action = CountingAction(answer, subsets=["fabric"], probe_paths=True, neighbours=True)
    result = action.run(task_vars={})
    assert result["node"]["reachable"] is reachable
    assert [name for name, _ in action.executed] == ["sparkwright.cluster.node_facts"]
    assert action.executed[0][1] == {
        "pings": [PING],
        "subsets": ["fabric"],
        "probe_paths": True,
        "neighbours": True,
    }
