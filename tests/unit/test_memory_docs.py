"""The figures of docs/memory.md are those of the code."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils import executors, memory_need, profiles
from ansible_collections.sparkwright.cluster.plugins.module_utils.capacity import (
    bytes_for,
    capacity,
    largest_context,
    layout_of,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import CLASSES_KB, GIB, KIB, shown_parts

PAGE = (REPO / "docs/memory.md").read_text(encoding="utf-8")
# Without line breaks, for what stands in a paragraph.
FLAT = " ".join(PAGE.split())
LARGER = max(CLASSES_KB) * KIB
NUMBER = r"([\d,]+)"
ROWS = re.findall(
    rf"^\| {NUMBER} \| (\d) \| {NUMBER} \| (\d+) \| (\d+) \| {NUMBER} \| ([\d.]+)x \|$", PAGE, re.MULTILINE
)


def shipped(name):
    return yaml.safe_load((REPO / f"profiles/{name}.yml").read_text())


NVFP4, THREE, AWQ = (
    shipped(name) for name in ("glm52-nvfp4-dcp4-mtp3-128k", "glm52-nvfp4-dcp4-mtp3-bs3", "glm52-awq15-mtp3-256k")
)


def block(dcp=4, dtype="fp8"):
    return layout_of(profiles.shape(NVFP4), dtype, tp=4, dcp=dcp, drafts=True)


def test_the_table_of_measurements():
    assert len(ROWS) == 4
    for size, dcp, context, blocks, each, tokens, concurrency in ROWS:
        layout, length = block(int(dcp)), int(context.replace(",", ""))
        found = capacity(int(size.replace(",", "")), layout, length)
        assert (found.blocks, layout.blocks_of(length)) == (int(blocks), int(each))
        assert (f"{found.tokens:,}", f"{found.concurrency:.2f}") == (tokens, concurrency)


def test_the_way_back():
    assert f"{bytes_for(block(), 131_072):,} bytes. 1,810,000,000" in FLAT
    assert f"a context of {largest_context(1_810_000_000, block()):,} tokens at the most" in FLAT
    assert f"{largest_context(1_900_000_000, block(), 3):,} fit into 1,900,000,000" in FLAT
    assert f"need {bytes_for(block(dtype='bfloat16'), 131_072):,}" in FLAT


@pytest.mark.parametrize(
    ("label", "profile"),
    [
        ("NVFP4, DCP 4, 131,072 tokens", NVFP4),
        ("AWQ, 262,144 tokens", AWQ),
        ("AWQ, 131,072 tokens", shipped("glm52-awq15-mtp3-128k")),
    ],
)
def test_the_needs_of_the_published_rows(label, profile):
    need = profiles.memory_need(profile, head=True)
    total, parts = shown_parts(need.parts(LARGER))
    words = {"KV cache": "cache", "services": "Ray"}
    whole = ", ".join(f"{words.get(name, name)} {size.removesuffix('.00')}" for name, size in parts.items())
    guard = f"{need.asked(LARGER) / GIB:.2f} at {need.utilization:.2f}"
    assert f"| {label} | {total}: {whole} | {guard} |" in FLAT


def test_the_constants():
    mib = 1024**2
    assert f"{executors.RAY_OBJECT_STORE // mib} MiB of object store" in FLAT
    assert f"{executors.RAY_HEAD // mib} (head) or {executors.RAY_WORKER // mib} MiB (worker)" in FLAT
    assert f"{memory_need.NFS_SERVER / GIB} GiB where an NFS server runs" in FLAT
    assert ", ".join(f"{kb * KIB / GIB:.2f}" for kb in CLASSES_KB).replace(", ", " and ") + " GiB" in FLAT


def test_the_published_message_of_the_guard():
    need = replace(profiles.memory_need(NVFP4), utilization=0.91)
    assert f"0.91 of 121.69 GiB are {need.asked(int(121.69 * GIB)) / GIB:.2f}" in FLAT
