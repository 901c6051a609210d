"""The module hands its arguments on, and its action reads a node by one execution of it and no more."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleConnectionFailure
from module_runner import run_module
from wiring import planned

from ansible_collections.sparkwright.cluster.plugins.action.node_facts import (
    ActionModule,
    path_probes,
    wire_probes,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import Rail
from ansible_collections.sparkwright.cluster.plugins.module_utils.share_reader import ShareAsked
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
    ((_, _, _, probes, *_),) = asked
    assert (list(probes.pings), probes.neighbours, list(probes.arp)) == ([], False, [])


def test_the_module_hands_its_probes_on(asked):
    run_module(node_facts.main, pings=[PING], neighbours=True, arp=[{"address": "192.168.100.10"}])
    ((_, _, _, probes, *_),) = asked
    assert (probes.pings, probes.neighbours) == ([PING], True)
    assert probes.arp == [{"netdev": None, "address": "192.168.100.10"}]


def test_the_module_hands_on_what_is_asked_about_the_weights(asked):
    run_module(node_facts.main, subsets=["share"])
    run_module(node_facts.main, share={"path": "/models", "server": "192.168.100.10", "folders": ["big"]})
    assert [arguments[-1] for arguments in asked] == [
        ShareAsked("", "", [], ""),
        ShareAsked("/models", "192.168.100.10", ["big"], ""),
    ]


def test_every_far_end_of_every_rail_is_pinged_with_a_full_frame():
    assert path_probes(planned(3)["spark2"]) == {
        "pings": [
            {"address": f"192.168.10{rail}.11", "peer": f"192.168.10{rail}.{peer}", "size": 8972}
            for rail in (0, 1)
            for peer in (10, 12)
        ]
    }


def test_in_a_ring_only_neighbours_are_pinged():
    pings = path_probes(planned(4, "ring")["spark1"])["pings"]
    assert [(ping["address"], ping["peer"]) for ping in pings] == [
        ("192.168.100.0", "192.168.100.1"),
        ("192.168.100.7", "192.168.100.6"),
        ("192.168.101.0", "192.168.101.1"),
        ("192.168.101.7", "192.168.101.6"),
    ]


@pytest.mark.parametrize(("topology", "count", "asked"), [("switch", 4, False), ("direct", 2, True), ("ring", 3, True)])
def test_who_is_at_the_other_end_is_asked_where_that_tells_a_cable(topology, count, asked):
    probes = wire_probes(planned(count, topology)["spark1"])
    assert probes["neighbours"] is asked
    assert {probe["address"] for probe in probes["arp"]} >= {
        "192.168.100.10" if topology != "ring" else "192.168.100.0"
    }
    assert {probe["netdev"] for probe in probes["arp"]} == {None}


def test_an_interface_that_the_inventory_names_is_the_one_to_ask_on():
    rails = [Rail("rail0", "192.168.100.0/24", "eth1")]
    assert wire_probes(planned(2, rails=rails)["spark2"])["arp"] == [{"netdev": "eth1", "address": "192.168.100.11"}]


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
