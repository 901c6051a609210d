"""Checks of a node's memory: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import cluster, engine_container, findings, intent, memory

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_memory import earlyoom_line
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB, KIB

SPARK2 = "spark2"
ORPHAN = {"pid": 4711, "name": "VLLM::EngineCore", "bytes": 104 * GIB}
NEED = "101.00 GiB (weights 90.00, KV cache 2.00, graphs 1.00, activations 2.00, runtime 3.00, floor 3.00)"
GUARD = "limit: 109.51 GiB (0.9 of 121.68)"
LARGEST = "largest: pid 812 (dockerd, 0.08 GiB), pid 640 (multipathd, 0.02 GiB)"


def on_spark2(*path, value, **more):
    return {"facts": {(SPARK2, *path): value}, **more}


def of_spark2(**changes):
    return {"facts": {(SPARK2, "memory"): {**memory(), **changes}}}


CASES = {
    "the smaller class of memory": (
        of_spark2(MemTotal=125_508_000),
        "warn memory.class spark2: MemTotal is 119.69 GiB; limit: the largest node's 121.68 GiB; remedy: set the same"
        " memory option in the firmware of all nodes",
    ),
    "kho": (
        of_spark2(CmaFree=9_740_000),
        "refuse memory.cma-trap spark2: CmaFree is 9740000 kB with CmaTotal 65536 kB; limit: CmaFree at most CmaTotal;"
        " remedy: boot kernel 6.17, or add kho=off by a drop-in under /etc/default/grub.d and reboot",
    ),
    "another process on the GPU": (
        on_spark2("processes", "gpu", value=[ORPHAN, {"pid": 99, "name": "Xorg", "bytes": GIB // 16}]),
        "refuse memory.gpu-process spark2: the GPU is held by pid 4711 (VLLM::EngineCore, 104.00 GiB), pid 99 (Xorg,"
        " 0.06 GiB); limit: at most 1.00 GiB each before a launch; remedy: stop pid 4711 (VLLM::EngineCore, 104.00"
        " GiB)",
    ),
    "a container that is being removed": (
        on_spark2("runtime", "containers", value=[engine_container(SPARK2, "removing")]),
        "warn memory.stopping spark2: still stopping: sparkwright-engine (removing); limit: nothing of ours; remedy:"
        " wait a minute, or `docker rm --force` it",
    ),
    "a swap that is in use": (
        of_spark2(SwapFree=16_777_212 - 1_572_864),
        "refuse memory.swap spark2: 1.50 GiB lie in the swap; limit: 0.06 GiB before a launch; remedy: run `swapoff"
        " -a && swapon -a`, which takes 2.50 GiB, or set serving_free_memory: true",
    ),
    "below the boot guard": (
        of_spark2(MemAvailable=114_000_000),
        f"refuse memory.boot-guard spark2: MemAvailable is 108.72 GiB; {GUARD}; remedy: set the profile's"
        " memory.utilization to at most 0.89",
    ),
    "an earlyoom above the floor": (
        on_spark2("processes", "earlyoom", value=["/usr/bin/earlyoom", "-m", "5"]),
        "refuse memory.earlyoom spark2: earlyoom ends processes below 5.76 GiB; limit: less than the planned floor of"
        " 3.00 GiB; remedy: start it with -M 1572864 in /etc/default/earlyoom",
    ),
    "an earlyoom that is told nothing": (
        on_spark2("processes", "earlyoom", value=["/usr/bin/earlyoom", "-r", "3600"]),
        "refuse memory.earlyoom spark2: earlyoom ends processes below 11.53 GiB; limit: less than the planned floor of"
        " 3.00 GiB; remedy: start it with -M 1572864 in /etc/default/earlyoom",
    ),
}


@pytest.mark.parametrize(("changes", "line"), CASES.values(), ids=CASES)
def test_one_thing_is_wrong(changes, line):
    assert findings(cluster(**changes)) == [line]


def test_too_little_memory_is_summed_up():
    assert findings(cluster(**of_spark2(MemAvailable=104_000_000))) == [
        f"refuse memory.headroom spark2: MemAvailable is 99.18 GiB; limit: {NEED}; remedy: free 1.82 GiB ({LARGEST}),"
        f" or serve on more nodes",
        f"refuse memory.boot-guard spark2: MemAvailable is 99.18 GiB; {GUARD}; remedy: set the profile's"
        " memory.utilization to at most 0.81",
    ]


def test_an_orphan_engine_is_named_by_every_line_about_it():
    facts = {(SPARK2, "memory", "MemAvailable"): 10_000_000, (SPARK2, "processes", "gpu"): [ORPHAN]}
    stop = "remedy: stop pid 4711 (VLLM::EngineCore, 104.00 GiB)"
    assert findings(cluster(facts=facts)) == [
        "refuse memory.gpu-process spark2: the GPU is held by pid 4711 (VLLM::EngineCore, 104.00 GiB); limit: at most"
        f" 1.00 GiB each before a launch; {stop}",
        f"refuse memory.headroom spark2: MemAvailable is 9.54 GiB; limit: {NEED}; {stop}",
        f"refuse memory.boot-guard spark2: MemAvailable is 9.54 GiB; {GUARD}; {stop}",
    ]


@pytest.mark.parametrize(("kb", "lines"), [(0, 0), (-1, 1)], ids=["exactly enough", "1 kB less"])
def test_the_limit_of_the_headroom(kb, lines):
    need = replace(intent().memory, utilization=0.0)
    facts = {(SPARK2, "memory", "MemAvailable"): need.required(0) // KIB + kb}
    found = findings(cluster(facts=facts, intents={"*": {"memory": need}}))
    assert [line.split()[1] for line in found] == ["memory.headroom"] * lines


@pytest.mark.parametrize(("kb", "lines"), [(0, 0), (1, 1)], ids=["exactly enough", "1 kB more"])
def test_the_limit_of_the_swap(kb, lines):
    changes = of_spark2(SwapFree=16_777_212 - 64 * 1024 - kb)
    assert [line.split()[1] for line in findings(cluster(**changes))] == ["memory.swap"] * lines


def test_a_swap_that_cannot_be_drained_says_who_must_go_first():
    resident = [{"pid": 77, "name": "python3", "bytes": 100 * GIB}]
    facts = {
        (SPARK2, "memory", "SwapFree"): 0,
        (SPARK2, "memory", "MemAvailable"): 17_000_000,
        (SPARK2, "processes", "resident"): resident,
    }
    assert findings(cluster(facts=facts))[0] == (
        "refuse memory.swap spark2: 16.00 GiB lie in the swap; limit: 0.06 GiB before a launch; remedy: stop pid 77"
        " (python3, 100.00 GiB): draining takes 17.00 GiB and 16.21 are available"
    )
    facts[SPARK2, "processes", "resident"] = []
    assert "remedy: reboot the node: draining takes" in findings(cluster(facts=facts))[0]


@pytest.mark.parametrize(("asked", "status"), [(False, "refuse"), (True, "warn")])
def test_what_the_run_may_free_itself_is_only_warned_about(asked, status):
    """The guard is 0.13 GiB short, and dropping the page cache gives 0.14."""
    changes = {**of_spark2(MemAvailable=114_700_000), "intents": {"*": {"free_memory": asked}}}
    (line,) = findings(cluster(**changes))
    assert line.startswith(
        f"{status} memory.boot-guard spark2: MemAvailable is 109.39 GiB; {GUARD}; remedy: drop the page"
    )


def test_the_measured_weights_decide_once_they_are_there():
    """Twelve GiB more than the profile states, on four nodes."""
    facts = {(f"spark{n}", "weights", "split"): 4 * 102 * GIB for n in range(1, 5)}
    changes = {"facts": {**facts, (SPARK2, "memory", "MemAvailable"): 118_000_000}}
    found = findings(cluster(**changes))
    assert found == [
        "refuse memory.headroom spark2: MemAvailable is 112.53 GiB; limit: 113.00 GiB (weights 102.00, KV cache 2.00,"
        f" graphs 1.00, activations 2.00, runtime 3.00, floor 3.00); remedy: free 0.47 GiB ({LARGEST}), or serve on"
        f" more nodes"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        of_spark2(MemTotal=127_580_000),
        of_spark2(CmaFree=65_536),
        of_spark2(SwapTotal=0, SwapFree=0),
        on_spark2("processes", "gpu", value=[{"pid": 99, "name": "Xorg", "bytes": GIB}]),
        on_spark2("processes", "earlyoom", value=["earlyoom", "-M", "1048576,524288"]),
        on_spark2("processes", "earlyoom", value=["earlyoom", "-m", "2"]),
        on_spark2(
            "runtime", "containers", value=[{**engine_container("x", "removing"), "name": "other", "labels": {}}]
        ),
        {"serving": True, **of_spark2(MemAvailable=5_000_000, SwapFree=0)},
        {"serving": True, **on_spark2("processes", "gpu", value=[ORPHAN])},
    ],
    ids=str,
)
def test_what_is_close_to_a_limit_and_right(changes):
    assert findings(cluster(**changes)) == []


def test_a_unit_that_ends_still_has_its_container():
    changes = on_spark2("serving", "unit", value="deactivating", serving=True)
    assert findings(cluster(**changes))[0] == (
        "warn memory.stopping spark2: still stopping: sparkwright-engine (running); limit: nothing of ours; remedy:"
        " wait a minute, or `docker rm --force` it"
    )


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["earlyoom"], 10_000_000 * KIB // 10),
        (["earlyoom", "-m", "5"], 10_000_000 * KIB // 20),
        (["earlyoom", "-m", "5,2"], 10_000_000 * KIB // 20),
        (["earlyoom", "-m", "2.5"], 10_000_000 * KIB // 40),
        (["earlyoom", "-M", "1000"], 1000 * KIB),
        (["earlyoom", "-M", "1000,500", "-m", "5"], 1000 * KIB),
        (["earlyoom", "-M", "900000", "-m", "5"], 10_000_000 * KIB // 20),
        (["earlyoom", "-m"], 10_000_000 * KIB // 10),
        (["earlyoom", "-m", "-r"], 10_000_000 * KIB // 10),
    ],
    ids=str,
)
def test_the_line_of_an_earlyoom(argv, line):
    """In percent of the memory that processes can have, available and anonymous."""
    assert earlyoom_line(argv, {"MemTotal": 99_000_000, "MemAvailable": 9_000_000, "AnonPages": 1_000_000}) == line
