"""Checks of Ray: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

import pytest
from builders import cluster, findings, intent

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Stage, refusals
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_ports import filter_rules
from ansible_collections.sparkwright.cluster.plugins.module_utils.ray_plan import node_id

PORT = {"executor": "ray", "master_port": 26479}
RESTART = "remedy: run playbooks/stop.yml, then playbooks/start.yml"
PLANNED = "192.168.100.10 (rank 0), 192.168.100.11 (rank 1), 192.168.100.12 (rank 2), 192.168.100.13 (rank 3) alone;"
NAMES = {f"192.168.100.{10 + rank}": node_id(rank, "ab" * 28) for rank in range(4)}


def said(version="2.60.0", nodes=None, error=None):
    return {"version": version, "nodes": nodes, "error": error}


def serving(intents=None, **changed):
    """A cluster that serves under Ray; `changed` has what Ray says on some nodes."""
    rays = {"spark1": said(nodes=NAMES), "spark2": said(), "spark3": said(), "spark4": said(), **changed}
    facts = {(host, "serving", "ray"): ray for host, ray in rays.items()}
    facts |= {(f"spark{n + 1}", "serving", "filter"): filter_rules(intent(n, **PORT)) for n in range(4)}
    return cluster(serving=True, facts=facts, intents={"*": PORT, **(intents or {})})


def test_a_healthy_ray_has_nothing_to_report():
    assert findings(serving()) == []
    assert {"ray.nodes", "ray.version", "ray.order"} <= {check.id for check in run_checks(serving())}


def test_without_ray_nothing_is_said():
    assert not {check.id for check in run_checks(cluster(serving=True)) if check.id.startswith("ray.")}


CASES = {
    "a rank registered the address of its LAN": (
        serving(spark1=said(nodes={**{a: NAMES[a] for a in list(NAMES)[:3]}, "10.0.0.14": node_id(3, "ab" * 28)})),
        "refuse ray.nodes spark1: 192.168.100.10 (rank 0), 192.168.100.11 (rank 1), 192.168.100.12 (rank 2), 10.0.0.14"
        f" (rank 3) are registered with Ray; limit: {PLANNED} {RESTART}",
    ),
    "a rank is lost": (
        serving(spark1=said(nodes={a: NAMES[a] for a in list(NAMES)[:3]})),
        "refuse ray.nodes spark1: 192.168.100.10 (rank 0), 192.168.100.11 (rank 1), 192.168.100.12 (rank 2) are"
        f" registered with Ray; limit: {PLANNED} {RESTART}",
    ),
    "two ranks are swapped": (
        serving(
            spark1=said(
                nodes={**NAMES, "192.168.100.11": NAMES["192.168.100.12"], "192.168.100.12": NAMES["192.168.100.11"]}
            )
        ),
        "refuse ray.nodes spark1: 192.168.100.10 (rank 0), 192.168.100.12 (rank 1), 192.168.100.11 (rank 2),"
        f" 192.168.100.13 (rank 3) are registered with Ray; limit: {PLANNED} {RESTART}",
    ),
    "nobody registered": (
        serving(spark1=said(nodes={})),
        f"refuse ray.nodes spark1: nobody is registered with Ray; limit: {PLANNED} {RESTART}",
    ),
    "Ray does not answer": (
        serving(spark1=said(error="Ray at 192.168.100.10:26479 does not answer: RpcError")),
        "refuse ray.nodes spark1: Ray at 192.168.100.10:26479 does not answer: RpcError; limit: a Ray in the engine's"
        f" container that answers; {RESTART}",
    ),
    "a container without Ray": (
        serving(spark3=said(version=None, error="the image has no Ray")),
        "refuse ray.version spark3: the image has no Ray; limit: a Ray in the engine's container that answers;"
        f" {RESTART}",
    ),
    "a container that runs no Ray of ours": (
        serving(spark3=None),
        "refuse ray.version spark3: no Ray of ours runs; limit: a Ray in the engine's container that answers;"
        f" {RESTART}",
    ),
    "another release": (
        serving(spark3=said(version="2.55.1")),
        "refuse ray.version spark3: its container has Ray 2.55.1; limit: 2.60.0, as on the others; remedy: use one"
        " image on all nodes and run site.yml",
    ),
}


@pytest.mark.parametrize(("found", "line"), CASES.values(), ids=CASES)
def test_one_thing_is_wrong(found, line):
    assert findings(found) == [line]


def test_addresses_that_do_not_ascend_as_text_are_a_warning():
    others = {f"spark{n + 1}": {"socket_address": f"192.168.100.{8 + n}"} for n in range(1, 4)}
    warned = run_checks(cluster(intents={"*": PORT, **others}), Stage.PREFLIGHT)
    assert [str(check) for check in warned if check.id == "ray.order"] == [
        "spark1: the workers' addresses in the order of their ranks are 192.168.100.9, 192.168.100.10, 192.168.100.11;"
        " limit: ascending as text (192.168.100.10, 192.168.100.11, 192.168.100.9), or an older vLLM gives them other"
        " ranks; remedy: give the ranks in that order in the inventory, if the image's vLLM has no"
        " v1/executor/ray_executor_v2.py"
    ]
    assert refusals(warned) == []
