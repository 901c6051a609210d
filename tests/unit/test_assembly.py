"""A base and an overlay as one checkpoint: the index, the links, and in which order they are made."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.assembly import (
    AssemblyError,
    Part,
    PartShard,
    Step,
    assemble,
    expert_faults,
    steps,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.origin import ORIGIN_NAME, parse_origin
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import INDEX_NAME

LAYER0, LAYER1, MTP = "model.layers.0.w", "model.layers.1.w", "model.layers.2.w"
NEED = {"model.layers.2.": "guessing 3 tokens ahead"}


def part(path, shards, files=(), lost=(), short=(), **more):
    """A directory of shards, given as {shard: {tensor: bytes}}."""
    index = {name: shard for shard, tensors in shards.items() for name in tensors}
    there = {
        shard: PartShard(1000 - (shard in short), 1000, tensors)
        for shard, tensors in shards.items()
        if shard not in lost
    }
    return Part(path, index, there, files, **more)


BASE = {"one.safetensors": {LAYER0: 10, "lm_head.w": 5}, "two.safetensors": {LAYER1: 20}}
FILES = ["config.json", "tokenizer.json"]


def made(base=None, overlay=None, need=NEED):
    return assemble(
        base or part("/b", BASE, FILES), overlay or part("/o", {"mtp.safetensors": {MTP: 7}}, ["config.json"]), need
    )


def index_of(assembly):
    return json.loads(assembly.texts[INDEX_NAME])


def test_an_overlay_adds_its_layer():
    found = made()
    assert found.links == {
        "config.json": "/o/config.json",
        "mtp.safetensors": "/o/mtp.safetensors",
        "one.safetensors": "/b/one.safetensors",
        "tokenizer.json": "/b/tokenizer.json",
        "two.safetensors": "/b/two.safetensors",
    }
    one = "one.safetensors"
    weight_map = {"lm_head.w": one, LAYER0: one, LAYER1: "two.safetensors", MTP: "mtp.safetensors"}
    assert index_of(found) == {"metadata": {"total_size": 42}, "weight_map": weight_map}


def test_what_both_have_comes_from_the_overlay_and_is_read_last():
    base = part("/b", {"model-1.safetensors": BASE["one.safetensors"], "model-2.safetensors": {LAYER1: 20}})
    found = made(base, part("/o", {"layer.safetensors": {MTP: 7, "lm_head.w": 6}}))
    assert index_of(found)["weight_map"]["lm_head.w"] == "overlay-layer.safetensors"
    assert index_of(found)["metadata"]["total_size"] == 43
    assert found.links["overlay-layer.safetensors"] == "/o/layer.safetensors"
    assert max(found.links) == "overlay-layer.safetensors"


def test_a_shard_of_the_base_that_nothing_is_taken_from_is_left_out():
    found = made(overlay=part("/o", {"mtp.safetensors": {MTP: 7, LAYER1: 21}}))
    assert "two.safetensors" not in found.links
    assert found.links["mtp.safetensors"] == "/o/mtp.safetensors"
    assert index_of(found)["metadata"]["total_size"] == 10 + 5 + 7 + 21


def test_a_shard_of_the_same_name_hides_none_of_the_base():
    found = made(overlay=part("/o", {"one.safetensors": {MTP: 7}}))
    assert found.links["one.safetensors"] == "/b/one.safetensors"
    assert found.links["overlay-one.safetensors"] == "/o/one.safetensors"
    assert index_of(found)["weight_map"][MTP] == "overlay-one.safetensors"


def test_a_shard_of_the_same_name_replaces_one_that_is_not_needed():
    found = made(overlay=part("/o", {"two.safetensors": {MTP: 7, LAYER1: 21}}))
    assert found.links["two.safetensors"] == "/o/two.safetensors"


def test_other_words_of_the_index_are_kept():
    base = part("/b", BASE, metadata={"total_size": 35, "format": "pt", "by": "base"})
    overlay = part("/o", {"mtp.safetensors": {MTP: 7}}, metadata={"by": "overlay"})
    assert index_of(made(base, overlay))["metadata"] == {"total_size": 42, "format": "pt", "by": "overlay"}


def test_where_the_parts_came_from_goes_with_it():
    published = {"size": 1000, "sha256": "f" * 64}
    origins = [
        {"sources": ["a/base@1"], "include": [], "files": {"one.safetensors": published, "gone": published}},
        {"sources": ["b/layer@2"], "include": [], "files": {"mtp.safetensors": published}},
    ]
    base = part("/b", BASE, origin=origins[0])
    found = made(base, part("/o", {"mtp.safetensors": {MTP: 7}}, origin=origins[1]))
    origin = parse_origin(found.texts[ORIGIN_NAME])
    assert origin["sources"] == ["a/base@1", "b/layer@2"]
    assert origin["files"] == {"one.safetensors": published, "mtp.safetensors": published}


WHOLE = "limit: every shard of its index, whole; remedy: fetch it again"


@pytest.mark.parametrize(
    ("base", "overlay", "message"),
    [
        (part("/b", BASE, lost=["one.safetensors"]), None, f"/b: missing: one.safetensors; {WHOLE}"),
        (part("/b", BASE, short=["two.safetensors"]), None, f"/b: damaged: two.safetensors; {WHOLE}"),
        (
            Part("/b", {LAYER0: "one.safetensors"}, {"one.safetensors": PartShard(9, 9, {})}),
            None,
            f"/b: damaged: one.safetensors; {WHOLE}",
        ),
        (None, part("/o", {}), f"/o: it holds no tensors; {WHOLE}"),
        (None, part("/o", {"m.safetensors": {MTP: 7}}, lost=["m.safetensors"]), f"/o: missing: m.safetensors; {WHOLE}"),
        (
            None,
            part("/o", {"m.safetensors": {"model.layers.20.w": 7}}),
            "/b and /o: neither has tensors of model.layers.2.*; limit: those, which guessing 3 tokens ahead needs;"
            " remedy: name the overlay that has them in model_store_overlay",
        ),
        (
            part("/b", {"pack.safetensors": {LAYER0: 1, LAYER1: 1}}),
            part("/o", {"m.safetensors": {MTP: 7, LAYER1: 2}}),
            "/o/m.safetensors replaces tensors of shards that are still needed, and pack.safetensors would be read"
            " after it; limit: base shards named before overlay-*; remedy: use another base",
        ),
    ],
    ids=["lost", "short", "tensor gone", "empty", "overlay lost", "no layer", "read too early"],
)
def test_parts_that_give_no_checkpoint(base, overlay, message):
    with pytest.raises(AssemblyError) as error:
        made(base, overlay)
    assert str(error.value) == message


def test_the_index_is_written_last_and_strangers_go_first():
    wanted = made()
    found = steps(wanted, {"one.safetensors": True, "two.safetensors": False, "notes": False, INDEX_NAME: False})
    assert [(step.action, step.name) for step in found] == [
        ("remove", "notes"),
        ("link", "config.json"),
        ("link", "mtp.safetensors"),
        ("link", "tokenizer.json"),
        ("link", "two.safetensors"),
        ("write", ORIGIN_NAME),
        ("write", INDEX_NAME),
    ]
    assert found[1] == Step("link", "config.json", "/o/config.json")


def test_what_is_right_needs_no_step():
    wanted = made()
    assert steps(wanted, dict.fromkeys([*wanted.links, *wanted.texts], True)) == []


def experts(layer, numbers):
    return [f"model.layers.{layer}.mlp.experts.{n}.down_proj.weight" for n in numbers]


@pytest.mark.parametrize(
    ("names", "faults"),
    [
        ([*experts(3, range(4)), *experts(4, range(4)), "model.layers.0.mlp.down_proj.weight"], []),
        ([*experts(3, range(4)), *experts(4, range(6))], ["model.layers.4.mlp has 6"]),
        # Left out and not numbered anew.
        (experts(3, [0, 1, 2, 5]), ["model.layers.3.mlp has 4"]),
    ],
)
def test_the_experts_of_a_pruned_checkpoint(names, faults):
    assert expert_faults(names, 4) == faults
