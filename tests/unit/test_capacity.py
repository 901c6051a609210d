"""Tokens in a KV cache: the published measurements to the token, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.capacity import (
    Capacity,
    CapacityError,
    KvLayout,
    bytes_for,
    capacity,
    largest_context,
    layout_of,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.model_shape import shape_of

GLM52 = {
    "num_hidden_layers": 78,
    "num_nextn_predict_layers": 1,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "index_topk_pattern": "FFFSSS" + 18 * "FSSS",
}
LLAMA_70B = {"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192}
DEEPSEEK_V3 = {"num_hidden_layers": 61, "num_nextn_predict_layers": 1, "kv_lora_rank": 512, "qk_rope_head_dim": 64}


def glm52(dcp, **options):
    return layout_of(shape_of(GLM52), **{"cache_dtype": "fp8", "tp": 4, "dcp": dcp, "drafts": True, **options})


@pytest.mark.parametrize(
    ("cache_bytes", "dcp", "context", "tokens", "shown"),
    [
        (1_810_000_000, 4, 131_072, 132_096, "132,096 tokens, 1.01x"),
        (1_680_000_000, 4, 120_000, 122_558, "122,558 tokens, 1.02x"),
        (1_900_000_000, 4, 16_384, 138_752, "138,752 tokens, 8.47x"),
        (1_900_000_000, 1, 16_384, 34_688, "34,688 tokens, 2.12x"),
    ],
)
def test_the_published_measurements(cache_bytes, dcp, context, tokens, shown):
    found = capacity(cache_bytes, glm52(dcp), context)
    assert (found.tokens, str(found)) == (tokens, shown)


def test_the_published_block_by_hand():
    """79 layers of 512 + 16 + 128 bytes, 22 of them with an index of 132 bytes, 64 tokens."""
    assert glm52(4) == KvLayout((79 * 656 + 22 * 132) * 64, 256)
    assert glm52(1) == KvLayout(3_502_592, 64)


@pytest.mark.parametrize(
    ("options", "token_bytes"),
    [
        ({}, 79 * 656 + 22 * 132),
        ({"cache_dtype": "fp8_ds_mla"}, 79 * 656 + 22 * 132),
        ({"cache_dtype": "bfloat16"}, 79 * 1152 + 22 * 132),
        ({"cache_dtype": "auto"}, 79 * 1152 + 22 * 132),
        ({"drafts": False}, 78 * 656 + 21 * 132),
        # 39 layers each; layers 0 to 38 have 12 indexes, 39 to 77 have 9 and the draft one more layer and index.
        ({"pp": 2}, max(39 * 656 + 12 * 132, 40 * 656 + 10 * 132)),
    ],
    ids=str,
)
def test_a_sparse_model(options, token_bytes):
    assert glm52(1, **options).block_bytes == token_bytes * 64


@pytest.mark.parametrize(
    ("config", "options", "layout"),
    [
        (DEEPSEEK_V3, {"cache_dtype": "auto"}, KvLayout(61 * 576 * 2 * 64, 64)),
        (DEEPSEEK_V3, {"cache_dtype": "fp8", "drafts": True}, KvLayout(62 * 576 * 64, 64)),
        (DEEPSEEK_V3, {"cache_dtype": "fp8", "dcp": 2, "tp": 2}, KvLayout(61 * 576 * 64, 128)),
        (LLAMA_70B, {"tp": 2}, KvLayout(80 * 2 * 4 * 128 * 2 * 16, 16)),
        (LLAMA_70B, {"tp": 2, "cache_dtype": "fp8"}, KvLayout(80 * 2 * 4 * 128 * 16, 16)),
        (LLAMA_70B, {"tp": 16}, KvLayout(80 * 2 * 1 * 128 * 2 * 16, 16)),
        (LLAMA_70B, {"tp": 2, "block_size": 32}, KvLayout(80 * 2 * 4 * 128 * 2 * 32, 32)),
        (LLAMA_70B, {"pp": 4}, KvLayout(20 * 2 * 8 * 128 * 2 * 16, 16)),
    ],
    ids=str,
)
def test_plain_mla_and_heads(config, options, layout):
    assert layout_of(shape_of(config), **options) == layout


def test_bf16_does_not_hold_the_context_that_fp8_holds():
    """BF16 KV at 131,072 tokens was published as one that does not fit."""
    assert bytes_for(glm52(4), 131_072) <= 1_810_000_000 < bytes_for(glm52(4, cache_dtype="bfloat16"), 131_072)


@pytest.mark.parametrize("dtype", ["fp4", "fp8_ds_mla"])
def test_an_unknown_cache_type_is_named(dtype):
    with pytest.raises(CapacityError, match=f"the size of the cache type {dtype} is not known; limit: auto, bfloat16"):
        layout_of(shape_of(LLAMA_70B), dtype)


SMALL = KvLayout(100, 16)


@pytest.mark.parametrize(
    ("context", "sequences", "size"),
    [(1, 1, 200), (16, 1, 200), (17, 1, 300), (32, 3, 700)],
)
def test_bytes_for_a_context(context, sequences, size):
    assert bytes_for(SMALL, context, sequences) == size


@pytest.mark.parametrize(
    ("size", "sequences", "context"),
    [(0, 1, 0), (99, 1, 0), (100, 1, 0), (199, 1, 0), (200, 1, 16), (700, 3, 32), (699, 3, 16), (300, 3, 0)],
)
def test_the_largest_context(size, sequences, context):
    assert largest_context(size, SMALL, sequences) == context


def test_the_three_requests_of_a_refitted_cache():
    """542 blocks less the engine's own make 180 for each of three requests."""
    assert largest_context(1_900_000_000, glm52(4), 3) == 180 * 256


def test_too_few_bytes_are_no_block():
    assert capacity(99, SMALL, 16) == Capacity(0, 0, 0.0)


LAYOUTS = st.builds(KvLayout, st.integers(1, 10**7), st.sampled_from([16, 64, 128, 256, 512]))
BYTES, CONTEXTS, SEQUENCES = st.integers(0, 10**11), st.integers(1, 10**6), st.integers(1, 64)


@given(LAYOUTS, CONTEXTS, SEQUENCES)
def test_what_is_asked_for_fits_and_nothing_less_does(layout, context, sequences):
    size = bytes_for(layout, context, sequences)
    assert largest_context(size, layout, sequences) >= context
    assert largest_context(size - 1, layout, sequences) < context
    assert capacity(size, layout, context).concurrency >= sequences


@given(LAYOUTS, BYTES, SEQUENCES)
def test_the_largest_context_fits_and_a_token_more_does_not(layout, size, sequences):
    context = largest_context(size, layout, sequences)
    assert context == 0 or bytes_for(layout, context, sequences) <= size
    assert bytes_for(layout, context + 1, sequences) > size


@given(LAYOUTS, BYTES, BYTES, CONTEXTS)
def test_more_bytes_never_hold_less(layout, one, other, context):
    less, more = sorted((one, other))
    assert capacity(less, layout, context).tokens <= capacity(more, layout, context).tokens
    assert largest_context(less, layout) <= largest_context(more, layout)


@given(LAYOUTS, BYTES, CONTEXTS)
def test_a_printed_token_is_never_more_than_the_blocks_hold(layout, size, context):
    found = capacity(size, layout, context)
    assert found.tokens <= found.blocks * layout.block_tokens
    assert found.blocks * layout.block_bytes <= size
