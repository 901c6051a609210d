"""Checkpoints: the index, the headers of the shards, and what is missing, damaged or equal."""

from __future__ import annotations

import json
import struct

import pytest
from builders import GONE, SHARD1, SHARD2, cluster, shard_bytes, weights

from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import (
    MAX_HEADER_BYTES,
    Header,
    Measures,
    complete,
    damaged,
    fingerprint,
    header_length,
    missing,
    parse_header,
    parse_index,
    prefix_of,
    surplus,
    total_bytes,
)


def changed(changes):
    """The weights of a node with changes, as a path to a value."""
    facts = {("spark1", "weights", *path): value for path, value in changes.items()}
    return cluster(facts=facts).facts["spark1"]["weights"]


def head(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return struct.pack("<Q", len(text)), text


def test_an_index_names_the_tensors_of_each_shard():
    text = json.dumps({"weight_map": {"a": "one", "b": "two", "c": "one"}})
    assert parse_index(text) == {"one": {"a", "c"}, "two": {"b"}}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": ["a"]}', "null"])
def test_what_is_no_index_is_refused(text):
    with pytest.raises(ValueError, match=r"weight_map|Expecting"):
        parse_index(text)


@pytest.mark.parametrize(
    ("first", "length"),
    [
        (struct.pack("<Q", 2), 2),
        (struct.pack("<Q", MAX_HEADER_BYTES), MAX_HEADER_BYTES),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1), None),
        (struct.pack("<Q", 1), None),
        (b"", None),
        (b"1234567", None),
    ],
)
def test_the_length_of_a_header(first, length):
    assert header_length(first) == length


@pytest.mark.parametrize("tensors", [0, 1, 5])
def test_a_header_tells_the_size_of_its_file(tensors):
    whole = shard_bytes(tensors)
    length = struct.unpack("<Q", whole[:8])[0]
    sizes = [(f"t{n}", "U8", 64) for n in range(tensors)]
    assert parse_header(whole[:8], whole[8 : 8 + length]) == Header(len(whole), sizes)


@pytest.mark.parametrize(
    "header",
    [
        head(b"{]"),
        head([1, 2]),
        head({"t": 5}),
        head({"t": {"dtype": "U8", "data_offsets": [0]}}),
        head({"t": {"dtype": "U8", "data_offsets": [0, None]}}),
        head({"t": {"dtype": "U8", "data_offsets": [0, "x"]}}),
        head({"t": {"data_offsets": [0, 1]}}),
        head({"t": {}}),
        (struct.pack("<Q", 9), b"{}"),
        (b"", b""),
    ],
)
def test_a_damaged_header_is_none(header):
    assert parse_header(*header) is None


@pytest.mark.parametrize(
    ("changes", "lost", "broken"),
    [
        ({}, [], []),
        ({("shards", SHARD1): GONE}, [SHARD1], []),
        ({("shards", SHARD2, "size"): 4_999_999_999}, [], [SHARD2]),
        ({("shards", SHARD2, "expected"): None}, [], [SHARD2]),
        ({("shards", SHARD2, "tensors"): 6}, [], [SHARD2]),
        ({("shards", "stray.safetensors"): {"size": 1, "expected": None, "tensors": 0}}, [], []),
    ],
    ids=["whole", "missing", "short", "no header", "other tensors", "a file that the index does not name"],
)
def test_what_is_missing_and_what_is_damaged(changes, lost, broken):
    found = changed(changes)
    assert (missing(found), damaged(found)) == (lost, broken)
    assert complete(found) is not bool(lost or broken)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        (
            {("shards", "stray.safetensors"): {"size": 1, "expected": 1, "tensors": 0, "header": ""}},
            ["stray.safetensors"],
        ),
    ],
)
def test_a_surplus_shard_is_one_that_the_index_does_not_name(changes, found):
    assert surplus(changed(changes)) == found


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("model.layers.78.mlp.experts.3.down_proj.weight", "model.layers.78."),
        ("language_model.model.layers.0.input_layernorm.weight", "language_model.model.layers.0."),
        ("model.embed_tokens.weight", "model.embed_tokens."),
        ("lm_head.weight", "lm_head."),
        ("weight", "weight"),
    ],
)
def test_where_a_tensor_belongs(name, prefix):
    assert prefix_of(name) == prefix


@pytest.mark.parametrize(
    ("name", "size", "repeated"),
    [
        ("model.layers.1.mlp.experts.3.down_proj.weight", 100, False),
        ("model.layers.1.mlp.experts.3.down_proj.weight_scale", 100, False),
        ("model.layers.1.mlp.experts.3.down_proj.weight_scale_2", 4, True),
        ("model.layers.1.mlp.shared_experts.down_proj.weight", 100, False),
        ("model.layers.1.mlp.gate_proj.weight", 100, False),
        ("model.layers.1.mlp.gate.weight", 100, True),
        ("model.layers.1.mlp.gate.e_score_correction_bias", 100, True),
        ("model.layers.1.self_attn.q_a_proj.weight", 100, True),
        ("model.layers.1.self_attn.q_a_layernorm.weight", 100, True),
        ("model.layers.1.self_attn.q_b_proj.weight", 100, False),
        ("model.layers.1.self_attn.kv_a_proj_with_mqa.weight", 100, True),
        ("model.layers.1.self_attn.kv_b_proj.weight", 100, False),
        ("model.layers.1.self_attn.o_proj.weight", 100, False),
        ("model.layers.1.self_attn.indexer.wq_b.weight", 100, True),
        ("model.layers.78.eh_proj.weight", 100, True),
        ("model.layers.78.shared_head.norm.weight", 100, True),
        ("model.norm.weight", 100, True),
        ("model.embed_tokens.weight", 100, False),
        ("lm_head.weight", 100, False),
    ],
)
def test_what_every_rank_repeats(name, size, repeated):
    found = Measures()
    assert found.add(Header(0, [(name, "BF16", size)]), {name}) == 1
    assert (found.repeated, found.split) == ((size, 0) if repeated else (0, size))


def test_the_measures_of_several_shards_add_up():
    found = Measures()
    found.add(
        Header(0, [("model.layers.0.norm.weight", "BF16", 10), ("model.layers.0.up.weight", "U8", 100)]),
        {"model.layers.0.norm.weight", "model.layers.0.up.weight"},
    )
    # The index takes the second tensor of this shard from elsewhere.
    found.add(
        Header(0, [("model.layers.1.up.weight", "U8", 200), ("lm_head.weight", "U8", 999)]),
        {"model.layers.1.up.weight"},
    )
    assert (found.split, found.repeated) == (300, 10)
    assert found.prefixes == {"model.layers.0.": 110, "model.layers.1.": 200}
    assert found.dtypes == {"BF16": 10, "U8": 300}


def test_an_unreadable_index_is_never_complete():
    assert not complete({**weights(), "error": "it has no weight_map", "tensors": {}, "shards": {}})


def test_only_the_shards_of_the_index_are_counted():
    stray = {("shards", "stray.safetensors"): {"size": 1, "expected": 1, "tensors": 0}}
    assert total_bytes(changed(stray)) == 10_000_000_000


def test_several_damaged_shards_come_in_order():
    torn = {("shards", shard, "size"): 1 for shard in (SHARD2, SHARD1)}
    found = changed(torn)
    found["shards"] = dict(reversed(found["shards"].items()))
    assert damaged(found) == [SHARD1, SHARD2]


def test_a_fingerprint_does_not_depend_on_the_order_of_a_directory():
    one = weights()
    assert fingerprint({**one, "shards": dict(reversed(one["shards"].items()))}) == fingerprint(one)


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ({("path",): "/elsewhere"}, True),
        ({("disk_free",): 1}, True),
        ({("config_sha256",): "other"}, False),
        ({("shards", SHARD1, "size"): 1}, False),
        ({("shards", SHARD1, "header"): "f"}, False),
        ({("split",): 1}, True),
        ({("shards", SHARD1): GONE}, False),
    ],
)
def test_equal_checkpoints_have_equal_fingerprints(changes, equal):
    assert (fingerprint(changed(changes)) == fingerprint(weights())) is equal
