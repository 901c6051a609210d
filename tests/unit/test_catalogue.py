"""The catalogue as a whole."""

from __future__ import annotations

import pytest
from builders import GONE, cluster

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import CATALOGUE, run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Stage, Status, refusals

SECTIONS = (
    "platform",
    "memory",
    "processes",
    "fabric",
    "runtime",
    "image",
    "weights",
    "serving",
    "tuning",
    "software",
    "share",
)


@pytest.mark.parametrize("section", SECTIONS)
def test_facts_that_were_not_read_are_no_pass(section):
    found = run_checks(cluster(facts={("spark2", section): GONE}))
    unread = [check for check in refusals(found) if check.fact == f"its {section} facts were not read"]
    assert {check.id for check in unread} == {rule.id for rule in CATALOGUE if rule.needs == section}
    assert unread
    assert {(check.host, check.status) for check in unread} == {("spark2", Status.UNKNOWN)}


def test_a_node_that_does_not_answer_is_named_once():
    silent = {("spark2", section): GONE for section in SECTIONS}
    silent |= {("spark2", "reachable"): False, ("spark2", "reason"): "No route to host"}
    assert [check.id for check in refusals(run_checks(cluster(facts=silent), Stage.LAUNCH))] == ["node.reachable"]


def test_every_check_looks_at_a_section_that_exists():
    assert {rule.needs for rule in CATALOGUE} <= {"", *SECTIONS}
    assert sorted(rule.id for rule in CATALOGUE if not rule.needs) == [
        "fabric.rdma-write",
        "node.reachable",
        "ray.order",
        "weights.hash",
        "weights.source",
    ]
