"""What a rank takes of a node, part by part."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import yaml
from builders import REPO, SHARD1, node_facts
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.capacity import KvLayout
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.memory_need import NFS_SERVER, MemoryNeed, need_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.profiles import memory_need

FIXED = MemoryNeed(weights=90, kv_cache=5, graphs=1, activations=2, runtime=3, floor=4, services=1, utilization=0.9)
SIZED = replace(FIXED, kv_cache=0)
TOTAL = 200
AWQ = yaml.safe_load((REPO / "profiles/glm52-awq15-mtp3-256k.yml").read_text())


@pytest.mark.parametrize(
    ("need", "parts"),
    [
        (FIXED, {"weights": 90, "KV cache": 5, "graphs": 1, "activations": 2, "runtime": 3, "services": 1, "floor": 4}),
        # 0.9 of 200 less 90 + 1 + 2 + 3.
        (
            SIZED,
            {"weights": 90, "KV cache": 84, "graphs": 1, "activations": 2, "runtime": 3, "services": 1, "floor": 4},
        ),
        (
            replace(SIZED, utilization=0.4),
            {"weights": 90, "graphs": 1, "activations": 2, "runtime": 3, "services": 1, "floor": 4},
        ),
        (MemoryNeed(1, 0, 0, 0, 0, 0), {"weights": 1}),
    ],
    ids=["a cache of a fixed size", "a cache that fills the share", "a share that leaves nothing", "only weights"],
)
def test_the_parts_and_their_sum(need, parts):
    assert need.parts(TOTAL) == parts
    assert need.required(TOTAL) == sum(parts.values())


def test_the_boot_guard_rounds_up():
    assert replace(FIXED, utilization=0.93).asked(101) == 94


def test_the_measured_weights_count_once_the_checkpoint_is_whole():
    facts = node_facts()
    facts["weights"] |= {"split": 1000, "repeated": 7}
    need = replace(FIXED, ways=4, pipeline=2, draft=10)
    assert need_of(need, facts).weights == 250 + 4 + 10
    del facts["weights"]["shards"][SHARD1]
    assert need_of(need, facts).weights == 90


def test_a_node_that_serves_its_weights_to_others_needs_more():
    facts = {"processes": {**node_facts()["processes"], "nfs_threads": 8}}
    assert need_of(FIXED, facts).services == 1 + NFS_SERVER


def test_nothing_is_known_about_a_node_that_was_not_read():
    assert need_of(FIXED, {}) == FIXED


@pytest.mark.parametrize(
    ("tp", "pp", "weights", "share"),
    [
        (4, 1, {"bytes": 1000}, 250),
        (2, 2, {"bytes": 1000}, 250),
        (1, 3, {"bytes": 1000}, 334),
        (4, 1, {"bytes": 1000, "repeated_bytes": 200}, 400),
        (2, 2, {"bytes": 1000, "repeated_bytes": 200}, 300),
        (4, 1, {"bytes": 1000, "draft": {"directory": "d", "bytes": 40}}, 260),
    ],
)
def test_the_weights_are_shared_by_tp_and_pp(tp, pp, weights, share):
    profile = {**AWQ, "parallel": {"tp": tp, "pp": pp, "dcp": 1}, "weights": {"directory": "w", **weights}}
    assert memory_need(profile).weights == share


def test_a_profile_becomes_a_need():
    found = memory_need(AWQ)
    assert (found.graphs, found.activations, found.runtime, found.floor) == (GIB, 2 * GIB, 3 * GIB, 3 * GIB)
    assert (found.kv_cache, found.utilization, found.context) == (0, 0.93, 262144)
    assert found.block == KvLayout((79 * 656 + 22 * 132) * 64, 64)
    assert found.sizes_itself


def test_a_profile_without_a_boot_guard_asks_for_nothing():
    bare = copy.deepcopy(AWQ)
    bare["memory"] = {"kv_cache_bytes": 1, "runtime_gib": 0.5, "floor_gib": 0}
    del bare["model"]
    found = memory_need(bare)
    assert (found.utilization, found.runtime, found.graphs, found.block) == (0.0, GIB // 2, 0, None)
    assert not found.sizes_itself


BYTES = st.integers(0, 2**40)


@given(st.builds(MemoryNeed, *[BYTES] * 6, utilization=st.floats(0, 1)), BYTES, BYTES)
def test_a_larger_node_never_needs_less_and_weights_add_up(need, one, other):
    less, more = sorted((one, other))
    assert need.required(less) <= need.required(more)
    assert replace(need, weights=need.weights + 1).required(less) >= need.required(less)
