"""Runs inside the environment of stock vLLM: asks its own parser and its own cache arithmetic.

Reads JSON from its standard input, {"argvs": {name: command line}, "caches": {name: cache}}, and writes JSON as the
last line of its output: for each command line the arguments, or keys inside of JSON, that stock vLLM does not know, and
what its parser says of the whole; for each cache blocks, tokens and concurrency. No model is loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
from types import SimpleNamespace

import torch
from vllm.config import CompilationConfig, SpeculativeConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SparseCacheRole

PARSER = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
KNOWN = {option for action in PARSER._actions for option in action.option_strings}
# The parser takes any text for these; what is right is known elsewhere.
VALUES = {
    "attention-backend": lambda value: value in AttentionBackendEnum.__members__,
    "quantization": lambda value: value in QUANTIZATION_METHODS,
    "reasoning-parser": lambda value: value in ReasoningParserManager.list_registered(),
    "tool-call-parser": lambda value: value in ToolParserManager.list_registered(),
}
KEYS = {
    "speculative-config": {field.name for field in dataclasses.fields(SpeculativeConfig)},
    "compilation-config": {field.name for field in dataclasses.fields(CompilationConfig)},
}


def pairs(argv: list[str]) -> list[tuple[str, str | None]]:
    """Every flag with its value, None without one."""
    found = []
    for word, following in zip(argv, [*argv[1:], "--"], strict=True):
        if word.startswith("--"):
            found.append((word, None if following.startswith("--") else following))
    return found


def problems(argv: list[str]) -> list[str]:
    """The arguments, or keys inside of JSON, that stock vLLM does not know."""
    found = []
    for flag, value in pairs(argv):
        name = flag.removeprefix("--")
        if flag not in KNOWN or (name in VALUES and not VALUES[name](value)):
            found.append(name)
        elif name in KEYS:
            found += [f"{name}.{key}" for key in json.loads(value) if key not in KEYS[name]]
    return found


def refusal(argv: list[str]) -> str:
    """What the parser says of the whole command line, empty when it takes it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            PARSER.parse_args(argv)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    return ""


def capacity(cache: dict) -> list:
    """Blocks, tokens and concurrency by the engine's own functions, for a rank with these layers."""
    specs = {f"layer.{number}": spec(one) for number, one in enumerate(cache["layers"])}
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=cache["context"]),
        parallel_config=SimpleNamespace(decode_context_parallel_size=cache["dcp"]),
        attention_config=SimpleNamespace(hisparse_config=None),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        speculative_config=None,
        kv_transfer_config=None,
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: kv_cache_utils.KVCacheLayout["BLHNC"],
        ),
    )
    groups = kv_cache_utils.get_kv_cache_groups(config, specs)
    found = kv_cache_utils.get_kv_cache_config_from_groups(config, groups, cache["bytes"])
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, found)
    return [found.num_blocks, tokens, concurrency]


def spec(layer: dict):
    """A layer's cache as the engine's layers describe it (mla_attention.py, deepseek_v2.py, attention.py)."""
    kind, size = layer["kind"], layer["block_size"]
    if kind == "heads":
        heads = {"num_kv_heads": layer["heads"], "head_size": layer["head"], "dtype": getattr(torch, layer["dtype"])}
        return FullAttentionSpec(block_size=size, **heads)
    shared = {"block_size": size, "num_kv_heads": 1, "max_tp_shards": 1}
    if kind == "index":
        return MLAAttentionSpec(**shared, head_size=132, dtype=torch.uint8, cache_role=SparseCacheRole.INDEXER)
    if kind == "packed":
        packed = {"cache_dtype_str": "fp8_ds_mla", "state_content_bytes": 656}
        return MLAAttentionSpec(**shared, head_size=576, dtype=torch.uint8, **packed)
    return MLAAttentionSpec(**shared, head_size=576, dtype=getattr(torch, layer["dtype"]))


def main() -> None:
    """Answer everything in one process, because the import takes longest."""
    asked = json.load(sys.stdin)
    answer = {
        "problems": {name: problems(argv) for name, argv in asked["argvs"].items()},
        "refused": {name: refusal(argv) for name, argv in asked["argvs"].items()},
        "capacities": {name: capacity(cache) for name, cache in asked["caches"].items()},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
