"""From a config.json to what its attention keeps of a token."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.model_shape import (
    ModelShape,
    ModelShapeError,
    differences,
    shape_of,
    stages,
)

MLA = {"num_hidden_layers": 6, "num_nextn_predict_layers": 1, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
SPARSE = {**MLA, "index_head_dim": 128}
GQA = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32}


def letters(shape):
    return "".join("F" if indexed else "S" for indexed in shape.indexed)


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (MLA, ModelShape(6, 1, 512, 64)),
        (GQA, ModelShape(2, 0, kv_heads=4, head=32)),
        ({**GQA, "head_dim": None, "hidden_size": 512}, ModelShape(2, 0, kv_heads=4, head=64)),
        ({**GQA, "num_key_value_heads": None}, ModelShape(2, 0, kv_heads=8, head=32)),
        ({**GQA, "kv_lora_rank": None, "rope_theta": 1e6}, ModelShape(2, 0, kv_heads=4, head=32)),
    ],
    ids=str,
)
def test_the_kinds_of_attention(config, shape):
    assert shape_of(config) == shape
    assert shape_of(config).is_mla is ("kv_lora_rank" in config and bool(config["kv_lora_rank"]))
    assert not shape_of(config).is_sparse


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "FFFFFF"),
        ({"index_topk_pattern": "FFSSFS"}, "FFSSFS"),
        ({"indexer_types": ["full", "shared", "shared", "full", "shared", "shared"]}, "FSSFSS"),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, "FFFSSS"),
        ({"index_topk_freq": 2}, "FFSFSF"),
        ({"index_topk_pattern": None, "index_topk_freq": 1}, "FFFFFF"),
    ],
)
def test_the_layers_with_an_index(keys, expected):
    found = shape_of({**SPARSE, **keys})
    assert letters(found) == expected
    assert found.is_sparse


def test_the_two_ways_in_which_glm_is_written_agree():
    base = {**SPARSE, "num_hidden_layers": 78}
    by_letter = shape_of({**base, "index_topk_pattern": "FFFSSS" + 18 * "FSSS"})
    assert by_letter == shape_of({**base, "index_topk_freq": 4, "index_skip_topk_offset": 3})
    assert sum(by_letter.indexed) == 21


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({}, "num_hidden_layers is None, which is no number of a model"),
        ({**MLA, "num_hidden_layers": 0}, "num_hidden_layers is 0, which is no number of a model"),
        ({**MLA, "qk_rope_head_dim": "64"}, "qk_rope_head_dim is '64', which is no number of a model"),
        ({**MLA, "kv_lora_rank": True}, "kv_lora_rank is True, which is no number of a model"),
        ({**SPARSE, "index_topk_pattern": "FS"}, "the index pattern names 2 layers and the model has 6"),
        ({"num_hidden_layers": 2}, "hidden_size is None, which is no number of a model"),
    ],
)
def test_what_is_no_model(config, line):
    with pytest.raises(ModelShapeError) as error:
        shape_of(config)
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, []),
        ({"num_nextn_predict_layers": 0}, ["draft_layers 0 (1)"]),
        ({"index_topk_pattern": "FFFFFS"}, ["indexed 5 (6)"]),
        ({"kv_lora_rank": 256, "num_hidden_layers": 5}, ["layers 5 (6)", "latent 256 (512)", "indexed 5 (6)"]),
    ],
)
def test_what_differs_is_named(changes, lines):
    assert differences(shape_of({**SPARSE, **changes}), shape_of(SPARSE)) == lines


@pytest.mark.parametrize(
    ("layers", "count", "sizes"),
    [(78, 1, [78]), (8, 4, [2, 2, 2, 2]), (9, 4, [2, 2, 3, 2]), (10, 4, [2, 3, 3, 2]), (11, 4, [3, 3, 3, 2])],
)
def test_the_layers_of_the_pipeline_stages(layers, count, sizes):
    found = list(stages(layers, count))
    assert [len(stage) for stage in found] == sizes
    assert [layer for stage in found for layer in stage] == list(range(layers))
