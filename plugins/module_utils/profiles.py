"""What several rules and plans ask of a serving profile. The profile has passed its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .capacity import CPU_BLOCK, KvLayout, layout_of
from .executors import service_bytes
from .meminfo import GIB
from .memory_need import MemoryNeed
from .model_shape import KEYS, ModelShape, shape_of
from .vllm_argv import engine_arguments

Profile = Mapping[str, Any]

# How a draft of the model's own layer is asked for.
MTP = "mtp"
# The engine's own names of the argument that bounds a request.
CONTEXT = ("max-model-len", "ctx-size")


def ranks(profile: Profile) -> int:
    """How many nodes the profile takes: TP x PP, one GPU a node."""
    return int(profile["parallel"]["tp"] * profile["parallel"]["pp"])


def speculative(profile: Profile) -> Mapping[str, Any]:
    """The speculative configuration with the draft's place in it; empty without one."""
    found: Mapping[str, Any] = engine_arguments(profile).get("speculative-config", {})
    return found


def draft_tokens(profile: Profile) -> int:
    """How many tokens are guessed ahead, 0 without speculation."""
    return int(speculative(profile).get("num_speculative_tokens", 0))


def drafts_with_own_layer(profile: Profile) -> bool:
    """Whether the draft is the checkpoint's own MTP layer and no directory of its own."""
    return speculative(profile).get("method") == MTP and "model" not in speculative(profile)


def context(profile: Profile) -> int:
    """Tokens of a request of full length; 0 where the engine takes the model's own."""
    arguments = profile.get("engine_args", {})
    return int(next((arguments[name] for name in CONTEXT if name in arguments), 0))


def overrides(profile: Profile) -> dict[str, Any]:
    """The engine's overrides of config.json, as far as they change the cache."""
    given = profile.get("engine_args", {}).get("hf-overrides", {})
    return {key: value for key, value in given.items() if key in KEYS}


def shape(profile: Profile) -> ModelShape | None:
    """The model that the profile states, or None. Raises ModelShapeError."""
    model = profile.get("model")
    return shape_of({**model, **overrides(profile)}) if model else None


def layout(profile: Profile) -> KvLayout | None:
    """A block of the profile's cache, or None without a model. Raises ModelShapeError and CapacityError."""
    found, arguments, parallel = shape(profile), profile.get("engine_args", {}), profile["parallel"]
    if found is None:
        return None
    return layout_of(
        found,
        arguments.get("kv-cache-dtype", "auto"),
        tp=parallel["tp"],
        pp=parallel["pp"],
        dcp=parallel["dcp"],
        block_size=arguments.get("block-size") or (CPU_BLOCK if profile["accelerator"] == "cpu" else None),
        drafts=speculative(profile).get("method") == MTP,
    )


def memory_need(profile: Profile, head: bool = False) -> MemoryNeed:
    """Bytes that one rank takes; `head` is whether it is rank 0. Raises ModelShapeError and CapacityError.

    Tensor and pipeline parallelism share the weights evenly but for what each rank repeats.
    """
    memory, parallel, weights = profile["memory"], profile["parallel"], profile["weights"]
    ways, repeated = ranks(profile), weights.get("repeated_bytes", 0)
    draft = -(-weights.get("draft", {}).get("bytes", 0) // ways)
    share = -(-(weights["bytes"] - repeated) // ways) + -(-repeated // parallel["pp"])
    return MemoryNeed(
        weights=share + draft,
        kv_cache=memory["kv_cache_bytes"],
        graphs=_bytes(memory.get("graphs_gib", 0)),
        activations=_bytes(memory.get("activations_gib", 0)),
        runtime=_bytes(memory["runtime_gib"]),
        floor=_bytes(memory["floor_gib"]),
        services=service_bytes(profile["executor"], head),
        utilization=float(memory.get("utilization", 0)),
        block=layout(profile),
        context=context(profile),
        ways=ways,
        pipeline=parallel["pp"],
        draft=draft,
    )


def _bytes(gib: float) -> int:
    return int(gib * GIB)
