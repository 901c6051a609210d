"""How many tokens fit into a KV cache, exactly as the engine computes and prints it, and the way back.

The engine (vLLM v1, kv_cache_utils.py) cuts the bytes of a rank into whole blocks. A block holds a number of tokens of
every layer of the rank; with decode context parallelism each rank keeps only its share of a request's tokens, so one
block stands for as many tokens more. What it prints as `GPU KV cache size` is no product of blocks and tokens but
blocks / blocks-per-request x max_model_len, cut to a whole number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .model_shape import ModelShape, stages

# Bytes of an element, by the engine's name of the cache type. `auto` is the model's own, bfloat16 for all that is here.
ELEMENT_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
# A sparse model keeps 8-bit vectors in one layout, whichever of these names is given (flashmla_sparse.py): 512 elements
# of a byte, a scale of 4 bytes for each 128 of them, and the rotary part in 16 bits, 656 bytes in all for GLM-5.2.
PACKED = ("fp8", "fp8_e4m3", "fp8_ds_mla")
SCALE_GROUP, SCALE_BYTES, ROPE_BYTES = 128, 4, 2
# Tokens of a block unless --block-size says otherwise: the MLA kernels of the GB10 images need 64; vLLM's own number is
# 16, and 128 on a CPU.
MLA_BLOCK, GQA_BLOCK, CPU_BLOCK = 64, 16, 128
# The engine keeps one block back for itself (BlockPool.null_block), and plans its requests without it.
NULL_BLOCKS = 1


class CapacityError(ValueError):
    """A cache that cannot be computed; the text is one plain line."""


@dataclass(frozen=True)
class KvLayout:
    """What one block is: `block_bytes` on the fullest rank, and `block_tokens` of a request over all its ranks."""

    block_bytes: int
    block_tokens: int

    def blocks_of(self, context: int) -> int:
        """Whole blocks that one request of that many tokens takes."""
        return -(-context // self.block_tokens)


@dataclass(frozen=True)
class Capacity:
    """The engine's figures: whole blocks, the tokens that it prints, and requests of full length at once."""

    blocks: int
    tokens: int
    concurrency: float

    def __str__(self) -> str:
        """In the words of the engine's log."""
        return f"{self.tokens:,} tokens, {self.concurrency:.2f}x"


def layout_of(
    shape: ModelShape,
    cache_dtype: str = "auto",
    *,
    tp: int = 1,
    pp: int = 1,
    dcp: int = 1,
    block_size: int | None = None,
    drafts: bool = False,
) -> KvLayout:
    """The block of the fullest rank; `drafts` is whether the MTP layers are used. Raises CapacityError.

    All ranks get as many blocks as the one with the largest block has, so the fullest pipeline stage decides.
    """
    size = block_size or (MLA_BLOCK if shape.is_mla else GQA_BLOCK)
    held = list(stages(shape.layers, pp))
    per_stage = [_token_bytes(shape, cache_dtype, tp, layers) for layers in held]
    if drafts:
        # The draft runs on the last stage.
        per_stage[-1] += shape.draft_layers * (_vector_bytes(shape, cache_dtype, tp) + _index_bytes(shape))
    return KvLayout(max(per_stage) * size, size * dcp)


def capacity(cache_bytes: int, layout: KvLayout, context: int) -> Capacity:
    """What the engine reports for that many bytes a rank and a max_model_len of `context` tokens.

    The division comes first and in floating point, as in the engine: in another order the printed number of tokens can
    differ by one.
    """
    blocks = cache_bytes // layout.block_bytes
    concurrency = blocks / layout.blocks_of(context)
    return Capacity(blocks, int(concurrency * context), concurrency)


def bytes_for(layout: KvLayout, context: int, sequences: int = 1) -> int:
    """The fewest bytes a rank in which that many requests of full length run at once."""
    return (sequences * layout.blocks_of(context) + NULL_BLOCKS) * layout.block_bytes


def largest_context(cache_bytes: int, layout: KvLayout, sequences: int = 1) -> int:
    """The most tokens that each of that many requests can have in that many bytes a rank; 0 when none fits."""
    blocks = cache_bytes // layout.block_bytes - NULL_BLOCKS
    return max(0, blocks // sequences) * layout.block_tokens


def _token_bytes(shape: ModelShape, cache_dtype: str, tp: int, layers: Sequence[int]) -> int:
    indexed = sum(shape.indexed[layer] for layer in layers) if shape.is_sparse else 0
    return len(layers) * _vector_bytes(shape, cache_dtype, tp) + indexed * _index_bytes(shape)


def _vector_bytes(shape: ModelShape, cache_dtype: str, tp: int) -> int:
    """Bytes of one token in one layer of one rank."""
    if shape.is_sparse and cache_dtype in PACKED:
        scales = -(-shape.latent // SCALE_GROUP) * SCALE_BYTES
        return shape.latent + scales + shape.rope * ROPE_BYTES
    if cache_dtype not in ELEMENT_BYTES:
        known = ", ".join([*ELEMENT_BYTES, "fp8_ds_mla for sparse models"])
        raise CapacityError(f"the size of the cache type {cache_dtype} is not known; limit: {known}")
    if shape.is_mla:
        # Every rank keeps the whole vector; there are no heads to share.
        return (shape.latent + shape.rope) * ELEMENT_BYTES[cache_dtype]
    # A key and a value; with more ranks than heads some heads are kept twice.
    return 2 * max(1, shape.kv_heads // tp) * shape.head * ELEMENT_BYTES[cache_dtype]


def _index_bytes(shape: ModelShape) -> int:
    """The indexer's key of one token: a byte an element and a scale for each 128, whatever the cache type."""
    return shape.index + shape.index // SCALE_GROUP * SCALE_BYTES
