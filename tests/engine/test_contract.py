"""The rendered command lines against the real argument parser of stock vLLM, and our arithmetic against its own.

Run it with `pytest tests/engine`, about half a minute. It needs the engine environment of the lab, which `lab/build`
makes, and CPython 3.11, for which that is; without them it is skipped. No node and no engine is started.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.sparkwright.cluster.plugins.module_utils import profiles
from ansible_collections.sparkwright.cluster.plugins.module_utils.capacity import capacity, layout_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.model_shape import shape_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.plan_report import example_commands

REPO = Path(__file__).resolve().parents[2]
PROFILES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((REPO / "profiles").glob("*.yml"))}
VLLM = sorted(name for name, profile in PROFILES.items() if profile["executor"] != "llamacpp")
GLM = {
    "num_hidden_layers": 78,
    "num_nextn_predict_layers": 1,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "index_topk_pattern": "FFFSSS" + 18 * "FSSS",
}
DEEPSEEK = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
LLAMA = {"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
TINY = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32}
SPARSE = {"cache_dtype": "fp8", "tp": 4, "drafts": True}
# The published measurements, and one of each other kind of model: model, options, bytes a rank, context.
CACHES = {
    "131072 tokens": (GLM, {**SPARSE, "dcp": 4}, 1_810_000_000, 131_072),
    "120000 tokens": (GLM, {**SPARSE, "dcp": 4}, 1_680_000_000, 120_000),
    "16384 tokens": (GLM, {**SPARSE, "dcp": 4}, 1_900_000_000, 16_384),
    "16384 tokens without DCP": (GLM, {**SPARSE, "dcp": 1}, 1_900_000_000, 16_384),
    "32768 tokens without DCP": (GLM, {**SPARSE, "dcp": 1}, 1_810_000_000, 32_768),
    "three requests": (GLM, {**SPARSE, "dcp": 4}, 1_900_000_000, 46_080),
    "BF16": (GLM, {"cache_dtype": "bfloat16", "tp": 4, "dcp": 4, "drafts": True}, 1_810_000_000, 65_536),
    "plain MLA": (DEEPSEEK, {"cache_dtype": "bfloat16", "tp": 8}, 20_000_000_000, 100_001),
    "heads": (LLAMA, {"tp": 2}, 20_000_000_000, 32_768),
    "heads with more ranks than heads": (LLAMA, {"tp": 16}, 5_000_000_000, 8_191),
    "heads on a CPU": (LLAMA, {"tp": 4, "block_size": 128}, 5_000_000_000, 8_191),
    "the lab's model": (TINY, {"tp": 4, "block_size": 128}, 16_777_216, 128),
}


def layers(model, options):
    """The layers of a rank, one entry for each cache that the engine keeps."""
    shape, size = shape_of(model), layout_of(shape_of(model), **{**options, "dcp": 1}).block_tokens
    if not shape.is_mla:
        heads = {"heads": max(1, shape.kv_heads // options["tp"]), "head": shape.head, "dtype": "bfloat16"}
        return [{"kind": "heads", "block_size": size, **heads} for _ in range(shape.layers)]
    vector = {"kind": "packed"} if options["cache_dtype"] == "fp8" else {"kind": "plain", "dtype": "bfloat16"}
    drafts = shape.draft_layers if options.get("drafts") else 0
    indexes = sum(shape.indexed) + (drafts if shape.is_sparse else 0)
    kept = [vector] * (shape.layers + drafts) + [{"kind": "index"}] * indexes
    return [{**one, "block_size": size} for one in kept]


def command_line(name, rank):
    """What `vllm serve` is given, without these two words."""
    commands, _ = example_commands(PROFILES[name], rank)
    return (commands.serve or commands.container)[2:]


def lines():
    """A command line for each rank that runs `vllm serve`; under Ray that is the head alone."""
    for name in VLLM:
        for rank, role in enumerate(["head", "worker"][: 1 if PROFILES[name]["executor"] == "ray" else 2]):
            yield f"{name} {role}", command_line(name, rank)


@pytest.fixture(scope="module")
def stock(engine):
    """What stock vLLM answers to everything that is asked here."""
    caches = {
        name: {"layers": layers(model, options), "dcp": options.get("dcp", 1), "bytes": size, "context": context}
        for name, (model, options, size, context) in CACHES.items()
    }
    return engine.ask(Path(__file__).with_name("stock.py"), {"argvs": dict(lines()), "caches": caches})


@pytest.mark.parametrize("name", [name for name, _ in lines()])
def test_what_stock_vllm_does_not_know_is_listed_in_the_profile_and_nothing_else(stock, name):
    profile = PROFILES[name.split()[0]]
    assert sorted(stock["problems"][name]) == sorted(profile.get("image", {}).get("fork_only", []))


@pytest.mark.parametrize("name", [name for name, _ in lines()])
def test_the_parser_takes_the_whole_command_line(stock, name):
    assert stock["refused"][name] == ""


@pytest.mark.parametrize("name", CACHES)
def test_the_engine_counts_the_tokens_that_the_planner_says(stock, name):
    model, options, size, context = CACHES[name]
    found = capacity(size, layout_of(shape_of(model), **options), context)
    assert [found.blocks, found.tokens, found.concurrency] == stock["capacities"][name]


def test_every_profile_of_a_fixed_size_is_among_the_caches():
    """So that none of them is planned with figures that the engine was not asked for."""
    asked = {(size, context) for _, _, size, context in CACHES.values()}
    sizes = {
        (profile["memory"]["kv_cache_bytes"], profiles.context(profile))
        for profile in PROFILES.values()
        if profile.get("model") and profile["executor"] == "ray"
    }
    assert sizes <= asked
