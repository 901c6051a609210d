"""The lines that the Molecule scenario `admission` expects of real nodes are those of the code."""

from __future__ import annotations

import os
import sys

import pytest
import yaml
from builders import REPO, cluster

sys.path.insert(0, str(REPO / "molecule/admission/tests"))

from cases import ADMITTED, CASES, HEALTHY, PROFILE, meminfo

from ansible_collections.sparkwright.cluster.plugins.module_utils.admission import decide, summary
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import parse_meminfo
from ansible_collections.sparkwright.cluster.plugins.module_utils.memory_reader import (
    low_watermark,
    parse_gpu_processes,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.profiles import memory_need

NEED = memory_need(yaml.safe_load((REPO / f"profiles/{PROFILE}.yml").read_text()))


def admission(host="spark1", changes=None, gpu="", free_memory=False):
    """The decision over four nodes of which one is changed."""
    zoneinfo = (HEALTHY / "zoneinfo").read_text()
    facts = {}
    for node in ("spark1", "spark2", "spark3", "spark4"):
        own = changes if node == host and changes else {}
        facts[node, "memory"] = parse_meminfo(meminfo(own))
        facts[node, "processes", "gpu"] = list(parse_gpu_processes(gpu)) if node == host else []
        facts[node, "processes", "low_watermark"] = low_watermark(zoneinfo)
        facts[node, "weights", "error"] = "model.safetensors.index.json is not there"
    return decide(cluster(facts=facts, intents={"*": {"memory": NEED, "free_memory": free_memory}}))


def test_healthy_nodes_are_admitted():
    assert summary(admission()) == ADMITTED


@pytest.mark.skipif(os.sysconf("SC_PAGE_SIZE") != 4096, reason="the figures of the zones are in pages of 4 KiB")
@pytest.mark.parametrize(("host", "changes", "gpu", "lines"), CASES.values(), ids=CASES)
def test_the_refusal_of_a_broken_node(host, changes, gpu, lines):
    found = admission(host, changes, gpu)
    assert [str(check) for check in found.refused] == lines


def test_a_swap_that_the_run_may_drain_is_admitted():
    host, changes, gpu, _ = CASES["the swap is in use"]
    assert admission(host, changes, gpu, free_memory=True).admitted
