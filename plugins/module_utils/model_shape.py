"""What a model's config.json says about the cache of its attention: how many layers keep how many bytes of a token.

The keys are those of the checkpoint's own config.json, so a profile states a model in the same words and the two can be
compared once the weights are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

# All keys that are looked at; any other one of a config.json does not change the cache.
KEYS = (
    "num_hidden_layers",
    "num_nextn_predict_layers",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "index_topk",
    "index_head_dim",
    "index_topk_pattern",
    "index_topk_freq",
    "index_skip_topk_offset",
    "indexer_types",
    "num_key_value_heads",
    "num_attention_heads",
    "head_dim",
    "hidden_size",
)

# How a config.json writes a layer that computes its own top-k index: a letter of index_topk_pattern (vLLM), or a word
# of indexer_types (transformers, GlmMoeDsaConfig).
FULL = ("F", "full")
# vLLM's own default (deepseek_v2.py).
SKIP_OFFSET = 2


class ModelShapeError(ValueError):
    """A config.json whose cache cannot be computed; the text is one plain line."""


@dataclass(frozen=True)
class ModelShape:
    """The attention of a model.

    Attributes:
        layers: Layers of the model itself.
        draft_layers: MTP layers, which exist in the cache only when they are used.
        latent: Elements of the compressed vector of a token in MLA; 0 means ordinary heads (GQA).
        rope: Elements of its rotary part, in MLA.
        indexed: For each layer whether it keeps an index of its own; empty without a sparse indexer.
        index: Elements of the indexer's key, 0 without one.
        kv_heads: Key and value heads of a layer, in GQA.
        head: Elements of one head, in GQA.
    """

    layers: int
    draft_layers: int
    latent: int = 0
    rope: int = 0
    indexed: tuple[bool, ...] = ()
    index: int = 0
    kv_heads: int = 0
    head: int = 0

    @property
    def is_mla(self) -> bool:
        """Whether all heads share one compressed vector."""
        return self.latent > 0

    @property
    def is_sparse(self) -> bool:
        """Whether an indexer chooses the tokens that are attended to."""
        return self.index > 0


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """The shape from a config.json, with the engine's overrides laid over it by the caller. Raises ModelShapeError."""
    layers, drafts = _number(config, "num_hidden_layers"), _number(config, "num_nextn_predict_layers", 0)
    if not config.get("kv_lora_rank"):
        heads = _number(config, "num_key_value_heads", _number(config, "num_attention_heads", 0))
        return ModelShape(layers, drafts, kv_heads=heads, head=_head(config))
    latent, rope = _number(config, "kv_lora_rank"), _number(config, "qk_rope_head_dim")
    if not config.get("index_head_dim"):
        return ModelShape(layers, drafts, latent, rope)
    return ModelShape(layers, drafts, latent, rope, _indexed(config, layers), _number(config, "index_head_dim"))


def differences(found: ModelShape, wanted: ModelShape) -> list[str]:
    """What differs, as `name found (wanted)`; many layers are named by how many keep an index."""
    pairs = ((field.name, _shown(found, field.name), _shown(wanted, field.name)) for field in fields(ModelShape))
    return [f"{name} {one} ({other})" for name, one, other in pairs if one != other]


def _shown(shape: ModelShape, name: str) -> object:
    return sum(shape.indexed) if name == "indexed" else getattr(shape, name)


def _indexed(config: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """Which layers compute an index; GLM-5.2 says it as every fourth from the third on, or letter by letter."""
    words = config.get("index_topk_pattern") or config.get("indexer_types")
    if words:
        if len(words) != layers:
            raise ModelShapeError(f"the index pattern names {len(words)} layers and the model has {layers}")
        return tuple(word in FULL for word in words)
    every = _number(config, "index_topk_freq", 1)
    offset = _number(config, "index_skip_topk_offset", SKIP_OFFSET)
    return tuple(max(layer - offset + 1, 0) % every == 0 for layer in range(layers))


def _head(config: Mapping[str, Any]) -> int:
    if config.get("head_dim"):
        return _number(config, "head_dim")
    return _number(config, "hidden_size") // _number(config, "num_attention_heads")


def _number(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (value == 0 and default is None):
        raise ModelShapeError(f"{key} is {value!r}, which is no number of a model")
    return value


def stages(layers: int, count: int) -> Iterator[range]:
    """The layers of each pipeline stage, as vLLM divides them (get_pp_indices).

    What is left over goes to the stages before the last one, from the back.
    """
    sizes = [layers // count] * count
    for place in range(2, layers % count + 2):
        sizes[-place] += 1
    start = 0
    for size in sizes:
        yield range(start, start + size)
        start += size
