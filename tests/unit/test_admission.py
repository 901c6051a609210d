"""The table of the admission, word for word."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import GONE, cluster, engine_container, intent, memory

from ansible_collections.sparkwright.cluster.plugins.module_utils.admission import as_data, decide, summary, table
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB

ORPHAN = {"pid": 4711, "name": "VLLM::EngineCore", "bytes": 104 * GIB}
NEED = "101.00 GiB (weights 90.00, KV cache 2.00, graphs 1.00, activations 2.00, runtime 3.00, floor 3.00)"
GUARD = "109.51 GiB (0.9 of 121.68)"

HEALTHY = """\
node    rank  MemTotal  available  cache  swap used  needed   guard  verdict
----------------------------------------------------------------------------
spark1     0    121.68     114.44   2.00       0.00  101.00  109.51  fits, 4.93 to spare
spark2     1    121.68     114.44   2.00       0.00  101.00  109.51  fits, 4.93 to spare
spark3     2    121.68     114.44   2.00       0.00  101.00  109.51  fits, 4.93 to spare
spark4     3    121.68     114.44   2.00       0.00  101.00  109.51  fits, 4.93 to spare
cluster: admitted; the tightest node is spark1 with 4.93 GiB to spare"""

BROKEN = f"""\
node    rank  MemTotal  available  cache  swap used  needed   guard  verdict
----------------------------------------------------------------------------
spark1     0    121.68     114.44   2.00       0.00  101.00  109.51  fits, 4.93 to spare
spark2     1    119.69     114.44   2.00       0.00  101.00  107.72  fits, 6.72 to spare
spark3     2    121.68       9.54   2.00       0.00  101.00  109.51  99.97 short
spark4     3    121.68     114.44   2.00       1.50  101.00  109.51  refused
warn: [memory.class] spark2: MemTotal is 119.69 GiB; limit: the largest node's 121.68 GiB; remedy: set the same memory \
option in the firmware of all nodes
refuse: [memory.gpu-process] spark3: the GPU is held by pid 4711 (VLLM::EngineCore, 104.00 GiB); limit: at most 1.00 \
GiB each before a launch; remedy: stop pid 4711 (VLLM::EngineCore, 104.00 GiB)
refuse: [memory.headroom] spark3: MemAvailable is 9.54 GiB; limit: {NEED}; remedy: stop pid 4711 (VLLM::EngineCore, \
104.00 GiB)
refuse: [memory.boot-guard] spark3: MemAvailable is 9.54 GiB; limit: {GUARD}; remedy: stop pid 4711 (VLLM::EngineCore, \
104.00 GiB)
refuse: [memory.swap] spark4: 1.50 GiB lie in the swap; limit: 0.06 GiB before a launch; remedy: run `swapoff -a && \
swapon -a`, which takes 2.50 GiB, or set serving_free_memory: true
cluster: refused on spark3, spark4; the first rank that does not fit is 2 on spark3"""


def test_a_healthy_cluster_is_admitted():
    found = decide(cluster())
    assert table(found) == HEALTHY
    assert found.admitted


def test_every_unhealthy_node_has_its_line_its_number_and_its_remedy():
    facts = {
        ("spark2", "memory", "MemTotal"): 125_508_000,
        ("spark3", "memory", "MemAvailable"): 10_000_000,
        ("spark3", "processes", "gpu"): [ORPHAN],
        ("spark4", "memory", "SwapFree"): memory()["SwapFree"] - 1_572_864,
    }
    found = decide(cluster(facts=facts))
    assert table(found) == BROKEN
    assert not found.admitted


def test_a_serving_cluster_is_loaded_already():
    found = decide(cluster(serving=True))
    assert summary(found) == "cluster: admitted; every rank is loaded already"
    assert [line.split()[-2:] for line in table(found).splitlines()[2:6]] == [["loaded", "already"]] * 4


def test_a_node_that_does_not_answer_is_not_admitted():
    silent = {"reachable": False, "privileged": False, "reason": "No route to host"}
    found = decide(cluster(facts={("spark1",): silent}))
    assert summary(found) == "cluster: refused on spark1; the first rank that does not fit is 0 on spark1"
    assert table(found).splitlines()[2].split() == ["spark1", "0", *"------", "refused"]


def test_memory_that_was_not_read_is_no_admission():
    found = decide(cluster(facts={("spark2", "memory"): GONE}))
    assert not found.admitted
    assert {check.fact for check in found.refused} == {"its memory facts were not read"}


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_the_first_rank_that_does_not_fit_is_named_by_rank_and_not_by_name(ranks):
    """Intents come in the order of the ranks."""
    short = {(f"spark{n}", "memory", "MemAvailable"): 10_000_000 for n in (2, 3)}
    whole = cluster(facts=short)
    order = sorted(whole.intents, key=lambda host: ranks[int(host[-1]) - 1])
    intents = {host: replace(whole.intents[host], rank=rank) for rank, host in enumerate(order)}
    found = decide(replace(whole, intents=intents))
    first = order[min(order.index("spark2"), order.index("spark3"))]
    assert summary(found).endswith(f"the first rank that does not fit is {intents[first].rank} on {first}")


def test_the_decision_as_data():
    found = as_data(decide(cluster(facts={("spark2", "processes", "gpu"): [ORPHAN]})))
    assert json.loads(json.dumps(found)) == found
    assert found["admitted"] is False
    node = found["nodes"]["spark2"]
    assert sum(node["needed"].values()) == intent().memory.required(node["total"])
    assert (node["short"], node["gpu"]) == (0, ["pid 4711 (VLLM::EngineCore, 104.00 GiB)"])
    assert node["largest"] == ["pid 812 (dockerd, 0.08 GiB)", "pid 640 (multipathd, 0.02 GiB)"]


def test_a_container_on_its_way_out_is_a_warning_and_no_refusal():
    leaving = {("spark2", "runtime", "containers"): [engine_container("spark2", "removing")]}
    found = decide(cluster(facts=leaving))
    assert found.admitted
    assert "warn: [memory.stopping] spark2: still stopping: sparkwright-engine (removing)" in table(found)
