"""Checks of an engine that serves: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import cluster, engine_rank, findings, intent, listeners

from ansible_collections.sparkwright.cluster.plugins.module_utils.capacity import KvLayout
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_serving import kv_capacity

# What a log of NCCL_DEBUG=INFO and one without look like.
FIGURES = engine_rank()["figures"]
INFO = {"*": {"nccl_env": {"NCCL_DEBUG": "INFO"}}}
LISTENERS = listeners(0, serving=True)


def with_figures(**changes):
    return {("spark3", "serving", "rank"): engine_rank(figures={**FIGURES, **changes})}


def heard(port, *addresses):
    kept = [row for row in LISTENERS if row["port"] != port]
    return {
        ("spark1", "serving", "listeners"): [*kept, *({"address": a, "port": port, "process": "p"} for a in addresses)]
    }


def watched(restarts=(), last="", stopped=""):
    return {("spark1", "serving", "watchdog"): {"restarts": list(restarts), "last": last, "stopped": stopped}}


LOOK = "look at `journalctl -u sparkwright-engine`"
AGAIN = "run playbooks/stop.yml, then playbooks/start.yml"
RAILS = "NET/IB with roceP2p1s0f0, rocep1s0f0"
NOTHING = "limit: no failure since somebody started the engine; remedy: remove the cause"

CASES = {
    "NCCL fell back to TCP": (
        {"facts": with_figures(network="Socket", devices=["enP7s7"])},
        f"refuse serving.transport spark3: rank 2 uses NET/Socket with enP7s7; limit: {RAILS}; remedy: {LOOK}, then run"
        " playbooks/doctor.yml",
    ),
    "one rail alone": (
        {"facts": with_figures(devices=["rocep1s0f0"])},
        f"refuse serving.transport spark3: rank 2 uses NET/IB with rocep1s0f0; limit: {RAILS}; remedy: {LOOK}, then run"
        " playbooks/doctor.yml",
    ),
    "nobody asked NCCL": (
        {"facts": with_figures(network="", devices=[])},
        f"warn serving.transport spark3: the log of rank 2 does not tell its transport; limit: {RAILS}; remedy: write"
        " NCCL_DEBUG: INFO in the profile's nccl_env",
    ),
    "NCCL was asked and is silent": (
        {"facts": with_figures(network="", devices=[]), "intents": INFO},
        f"refuse serving.transport spark3: the log of rank 2 does not tell its transport; limit: {RAILS};"
        f" remedy: {LOOK}, then run playbooks/doctor.yml",
    ),
    "the API on all addresses": (
        {"facts": heard(8210, "0.0.0.0")},
        f"refuse serving.listeners spark1: port 8210 listens on 0.0.0.0; limit: 10.0.0.11 alone; remedy: {AGAIN}",
    ),
    "the API on another address, too": (
        {"facts": heard(8210, "10.0.0.11", "192.168.1.5")},
        "refuse serving.listeners spark1: port 8210 listens on 10.0.0.11 and 192.168.1.5; limit: 10.0.0.11 alone;"
        f" remedy: {AGAIN}",
    ),
    "no roll call": (
        {"facts": heard(29400)},
        "refuse serving.listeners spark1: port 29400 listens on no address; limit: 192.168.100.10 alone;"
        f" remedy: {AGAIN}",
    ),
    "a restart": (
        {"facts": watched([1.0], "rank 1 on spark2: it was killed")},
        "warn serving.watchdog spark1: it started the ranks again once, the last time because of this: rank 1 on"
        f" spark2: it was killed; {NOTHING}; the next failure within 24 hours stops all ranks",
    ),
    "it gave up": (
        {"facts": watched([1.0], "x", "rank 1 on spark2: it was killed")},
        "refuse serving.watchdog spark1: it started the ranks again once, and gave up: rank 1 on spark2: it was killed;"
        f" {NOTHING}, then run playbooks/start.yml",
    ),
}


@pytest.mark.parametrize(("changes", "line"), CASES.values(), ids=CASES)
def test_one_thing_is_wrong(changes, line):
    found = findings(cluster(serving=True, **{"intents": {}, **changes}))
    # What a profile adds to NCCL's environment must be in its file, too; that is another check's.
    assert [one for one in found if "fabric.nccl-env" not in one] == [line]


def test_a_cpu_meets_over_gloo_on_the_rail():
    cpu = {"intents": {"*": {"accelerator": "cpu"}}}
    gloo = {"backend": "gloo", "meets": "tcp://192.168.100.10:29501", "network": "", "devices": []}
    ranks = {(f"spark{n}", "serving", "rank"): engine_rank(figures={**FIGURES, **gloo}) for n in range(1, 5)}
    good = [one for one in findings(cluster(serving=True, facts=ranks, **cpu)) if "serving.transport" in one]
    assert good == []
    ranks["spark4", "serving", "rank"]["figures"]["meets"] = "tcp://10.0.0.11:29501"
    (bad,) = [one for one in findings(cluster(serving=True, facts=ranks, **cpu)) if "serving.transport" in one]
    assert "spark4: rank 3 uses gloo at tcp://10.0.0.11:29501; limit: gloo at tcp://192.168.100.10:29501" in bad


def test_ranks_of_ray_meet_at_any_port_of_the_head():
    changes = {"accelerator": "cpu", "executor": "ray"}
    for meets, count in (("tcp://192.168.100.10:41234", 0), ("tcp://10.0.0.11:41234", 4)):
        figures = {**FIGURES, "backend": "gloo", "meets": meets, "network": "", "devices": []}
        ranks = {(f"spark{n}", "serving", "rank"): engine_rank(figures=figures) for n in range(1, 5)}
        found = findings(cluster(serving=True, facts=ranks, intents={"*": changes}))
        assert len([one for one in found if "serving.transport" in one]) == count


def test_llamacpp_says_nothing_of_its_transport_and_is_not_asked():
    silent = {(f"spark{n}", "serving", "rank"): engine_rank(figures={**FIGURES, "network": ""}) for n in range(1, 5)}
    found = findings(cluster(serving=True, facts=silent, intents={"*": {"executor": "llamacpp"}}))
    assert [one for one in found if "serving.transport" in one] == []


def planned(tokens, kv_cache=1_000_000, **need):
    """The one check, for a head with a cache of 100 blocks of 64 tokens, or one that sizes itself."""
    memory = replace(intent().memory, kv_cache=kv_cache, block=KvLayout(10_000, 64), context=640, **need)
    facts = {("spark1", "serving", "rank"): engine_rank(figures={**FIGURES, "kv_tokens": tokens, "concurrency": 1.5})}
    found = cluster(serving=True, facts=facts, intents={"*": {"memory": memory}})
    return [f"{one.status} {one}" for one in kv_capacity(found)]


@pytest.mark.parametrize(
    ("tokens", "status"), [(6400, "ok"), (6340, "ok"), (6336, "ok"), (6300, "refuse"), (6500, "refuse")]
)
def test_a_cache_of_a_given_size_holds_the_planned_tokens(tokens, status):
    (line,) = planned(tokens)
    assert line.startswith(
        f"{status} spark1: the engine has {tokens:,} tokens of KV cache, 1.50x; limit: 6,400 tokens, "
    )


def test_a_log_without_the_size_is_a_warning():
    assert planned(None)[0].startswith(
        "warn spark1: the engine's log does not tell the size of its cache; limit: 6,400 "
    )


@pytest.mark.parametrize(("share", "status"), [(2.0, "ok"), (0.92, "ok"), (0.8, "refuse")])
def test_a_cache_that_sizes_itself_may_be_larger_and_a_little_smaller(share, status):
    head = replace(intent().memory, kv_cache=0)
    size = head.cache(127_590_000 * 1024) // 10_000 * 64
    (line,) = planned(int(size * share), kv_cache=0)
    assert line.startswith(f"{status} spark1: ")


def test_without_a_model_in_the_profile_there_is_nothing_to_compare():
    assert list(kv_capacity(cluster(serving=True))) == []
