"""What would suffice on a node that is short of memory, and that it really does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders import intent, memory, processes
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.capacity import KvLayout
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB, KIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.memory_need import MemoryNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.shortage import (
    Node,
    guard_remedy,
    most_share,
    named,
    remedy,
)

BLOCK = KvLayout(3_502_592, 256)
# 1,810,000,000 bytes of cache, as published; 131,072 tokens take 513 of its 516 blocks.
FIXED = replace(intent().memory, kv_cache=1_810_000_000, block=BLOCK, context=131_072)
SIZED = replace(FIXED, kv_cache=0, utilization=0.9)


def gpu(pid, gib):
    return {"pid": pid, "name": f"engine{pid}", "bytes": int(gib * GIB)}


def node(need, short_gib=None, **changes):
    """A node that is short of that many GiB, with changes of `memory`, `gpu` and the like."""
    figures = {**memory(), **changes.pop("memory", {})}
    if short_gib is not None:
        figures["MemAvailable"] = int((need.required(figures["MemTotal"] * KIB) - short_gib * GIB) // KIB)
    return Node(figures, {**processes(), **changes}, need)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        # What others hold.
        (node(FIXED, 90, gpu=[gpu(4711, 104)]), "stop pid 4711 (engine4711, 104.00 GiB)"),
        (
            node(FIXED, 90, gpu=[gpu(1, 60), gpu(2, 40), gpu(3, 1)]),
            "stop pid 1 (engine1, 60.00 GiB) and pid 2 (engine2, 40.00 GiB)",
        ),
        (node(FIXED, 5, resident=[gpu(77, 8)]), "stop pid 77 (engine77, 8.00 GiB)"),
        # Half of the low watermark is kept for 100,000 kB of mapped pages.
        (node(FIXED, 0.08), "drop the page cache, which gives back 0.14 GiB (serving_free_memory: true)"),
        # A node lives on dockerd, whatever it holds.
        (
            node(replace(FIXED, block=None), 5, resident=[{**gpu(812, 9), "name": "dockerd"}]),
            "free 5.00 GiB (largest: pid 812 (dockerd, 9.00 GiB)), or serve on more nodes",
        ),
        (node(replace(FIXED, block=None), 5, resident=[]), "free 5.00 GiB, or serve on more nodes"),
        # A smaller cache, as long as a request of full length fits.
        (node(replace(FIXED, context=65_536), 0.5), "set the profile's memory.kv_cache_bytes to at most 1271440896"),
        # 0.5 GiB less is 363 blocks, of which one is the engine's own.
        (
            node(FIXED, 0.5),
            "set the profile's memory.kv_cache_bytes to at most 1271440896 and its context to at most 92672 tokens",
        ),
        # More is missing than the cache has.
        (
            node(FIXED, 2),
            "free 2.00 GiB (largest: pid 812 (dockerd, 0.08 GiB), pid 640 (multipathd, 0.02 GiB)), or serve on more"
            " nodes",
        ),
        # A smaller share.
        (node(SIZED, 3), "set the profile's memory.utilization to at most 0.87"),
        # 0.80 of 121.68 GiB leave 1.34 GiB of cache, 411 blocks.
        (
            node(SIZED, 12),
            "set the profile's memory.utilization to at most 0.80 and its context to at most 104960 tokens",
        ),
        (node(replace(SIZED, block=None), 3), "set the profile's memory.utilization to at most 0.87"),
        (
            node(SIZED, 20, resident=[]),
            "free 20.00 GiB, or serve on more nodes",
        ),
    ],
)
def test_the_first_remedy_that_suffices(found, line):
    assert found.short > 0
    assert remedy(found) == line


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (node(FIXED, memory={"MemAvailable": 114_000_000}), "set the profile's memory.utilization to at most 0.89"),
        # The share that the guard would let pass is not the one with which the floor is left.
        (node(SIZED, memory={"MemAvailable": 114_000_000}), "set the profile's memory.utilization to at most 0.86"),
        (
            node(FIXED, memory={"MemAvailable": 9_000_000}, gpu=[gpu(4711, 104)]),
            "stop pid 4711 (engine4711, 104.00 GiB)",
        ),
        (
            node(FIXED, memory={"MemAvailable": 114_780_000}),
            "drop the page cache, which gives back 0.14 GiB (serving_free_memory: true)",
        ),
    ],
)
def test_what_lets_the_boot_guard_pass(found, line):
    assert found.short_of_guard > 0
    assert guard_remedy(found) == line


def test_mapped_pages_stay_when_the_page_cache_is_dropped():
    assert node(FIXED).drop_gain == 200_000_000 - 100_000 * KIB // 2
    assert node(FIXED, memory={"Mapped": 9_000_000}).drop_gain == 0
    assert node(FIXED, low_watermark=0).drop_gain == 0
    assert Node({"MemTotal": 1, "MemAvailable": 1}, processes(), FIXED).drop_gain == 0


@pytest.mark.parametrize(("free", "safe"), [(16_000_000, True), (0, True)])
def test_swap_that_fits_into_memory_can_be_drained(free, safe):
    assert node(FIXED, memory={"SwapFree": free}).can_drain is safe


@pytest.mark.parametrize(("available", "safe"), [(17_825_788, False), (17_825_789, True)])
def test_the_margin_of_draining(available, safe):
    """16,777,212 kB in use and a margin of 1 GiB."""
    assert node(FIXED, memory={"SwapFree": 0, "MemAvailable": available}).can_drain is safe


def test_a_process_is_named_with_what_it_holds():
    assert named(gpu(4711, 104)) == "pid 4711 (engine4711, 104.00 GiB)"


NEEDS = st.builds(
    MemoryNeed,
    weights=st.integers(GIB, 110 * GIB),
    kv_cache=st.integers(0, 20 * GIB),
    graphs=st.just(GIB),
    activations=st.just(2 * GIB),
    runtime=st.just(3 * GIB),
    floor=st.integers(0, 4 * GIB),
    utilization=st.sampled_from([0.8, 0.9, 0.93]),
    block=st.sampled_from([BLOCK, KvLayout(1_000_000, 64)]),
    context=st.integers(1, 300_000),
)


@given(NEEDS, st.integers(1_000_000, 127_000_000))
def test_what_the_remedy_names_makes_the_launch_fit(need, available):
    """Numbers are read from the line, put into the need, and the shortage is gone."""
    found = node(need, memory={"MemAvailable": available}, low_watermark=0, resident=[])
    assume(found.short > 0)
    line = remedy(found)
    numbers = {
        "utilization": re.search(r"utilization to at most ([\d.]+)", line),
        "kv_cache": re.search(r"kv_cache_bytes to at most (\d+)", line),
        "context": re.search(r"context to at most (\d+)", line),
    }
    given_ = {key: (float if key == "utilization" else int)(match[1]) for key, match in numbers.items() if match}
    if not given_:
        assert line.startswith("free ")
        return
    remedied = replace(found, need=replace(need, **given_))
    assert remedied.short <= 0
    assert remedied.short_of_guard <= 0 or not need.sizes_itself


@given(NEEDS, st.integers(1_000_000, 127_000_000))
def test_the_share_that_is_named_passes_the_guard(need, available):
    found = node(need, memory={"MemAvailable": available})
    share = most_share(found)
    assert replace(found, need=replace(need, utilization=share)).short_of_guard <= 0
