"""What contradicts itself in a profile: each case breaks a published row in one way and expects exactly its line."""

from __future__ import annotations

import copy

import pytest
import yaml
from builders import GONE, REPO
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.profile_rules import (
    captured,
    contradictions,
    weights_findings,
)


def shipped(name):
    return yaml.safe_load((REPO / f"profiles/{name}.yml").read_text())


MTP3 = shipped("glm52-nvfp4-dcp4-mtp3-128k")
AWQ = shipped("glm52-awq15-mtp3-256k")
TINY = shipped("lab-tiny-tp4")


def edited(profile, changes):
    """The profile with changes, {path with dots: value or GONE}."""
    whole = copy.deepcopy(profile)
    for path, value in changes.items():
        *parents, last = path.split("/")
        place = whole
        for key in parents:
            place = place[key]
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return whole


K = "engine_args/speculative-config/num_speculative_tokens"
CAPTURE = "engine_args/max-cudagraph-capture-size"
STOCK = "vllm/vllm-openai:latest"
LADDER = "is cut to 1, 2, 4, 8, 16, 24, ..."

CASES = {
    "MTP with DCP on an image without the draft patch": (
        MTP3,
        {"image/patches": ["dcp"]},
        "guesses 3 tokens with dcp 4 on an image without the patch draft-dcp; limit: 1 token, as the draft would run"
        " with DCP 1 on a sharded cache and all later guesses be wrong",
        "use an image with the patch and list draft-dcp in image.patches, or write num_speculative_tokens: 1",
    ),
    "MTP with DCP on an image that says nothing": (
        MTP3,
        {"image": GONE, K: 2},
        "guesses 2 tokens with dcp 4 on an image without the patch draft-dcp; limit: 1 token, as the draft would run"
        " with DCP 1 on a sharded cache and all later guesses be wrong",
        "use an image with the patch and list draft-dcp in image.patches, or write num_speculative_tokens: 1",
    ),
    "graphs for fewer tokens than a step has": (
        MTP3,
        {K: 4},
        f"captures graphs of up to 4 tokens (max-cudagraph-capture-size 4 {LADDER}); limit: at least 5, one step with 4"
        " guessed tokens",
        "write max-cudagraph-capture-size: 8 or more",
    ),
    "a maximum that the engine cuts": (
        MTP3,
        {K: 4, CAPTURE: 7},
        f"captures graphs of up to 4 tokens (max-cudagraph-capture-size 7 {LADDER}); limit: at least 5, one step with 4"
        " guessed tokens",
        "write max-cudagraph-capture-size: 8 or more",
    ),
    "MTP without the layer": (
        MTP3,
        {"model/num_nextn_predict_layers": 0},
        "guesses tokens with the MTP layer of a model that has none (model.num_nextn_predict_layers is 0)",
        "use a checkpoint with its MTP layer, name a draft in weights.draft, or remove speculative-config",
    ),
    "BF16 at 131,072 tokens": (
        MTP3,
        {"engine_args/kv-cache-dtype": "bfloat16"},
        "has a KV cache of 1810000000 bytes a rank in bfloat16; limit: 3083318784 bytes for one request of 131072"
        " tokens",
        "write memory.kv_cache_bytes: 3083318784, or a context of at most 76800 tokens",
    ),
    "a context too long for the cache": (
        MTP3,
        {"engine_args/max-model-len": 262144},
        "has a KV cache of 1810000000 bytes a rank in fp8; limit: 3590156800 bytes for one request of 262144 tokens",
        "write memory.kv_cache_bytes: 3590156800, or a context of at most 131840 tokens",
    ),
    "a share that the weakest node cannot give": (
        AWQ,
        {"memory/utilization": 0.96},
        "asks for 0.96 of the memory, 114.91 GiB of the weakest node's 119.69; limit: 0.94, which leaves it the"
        " system and the floor",
        "write memory.utilization: 0.94 or less",
    ),
    "a boot guard that the weakest node cannot pass": (
        MTP3,
        {"memory/utilization": 0.98},
        "asks for 0.98 of the memory, 117.30 GiB of the weakest node's 119.69; limit: 0.97, which leaves it the"
        " system and the floor",
        "write memory.utilization: 0.97 or less",
    ),
    "a share that leaves no room for a request": (
        AWQ,
        {"memory/utilization": 0.85},
        "leaves 6.57 GiB of KV cache at memory.utilization 0.85 on the weakest node; limit: 13.36 GiB for one request"
        " of 262144 tokens",
        "write memory.utilization: 0.91, or a context of at most 128704 tokens",
    ),
    "a share that no request fits into": (
        AWQ,
        {"memory/utilization": 0.9, "engine_args/max-model-len": 1_000_000},
        "leaves 12.55 GiB of KV cache at memory.utilization 0.9 on the weakest node; limit: 50.97 GiB for one request"
        " of 1000000 tokens",
        "choose a context of at most 246144 tokens",
    ),
    "no share to size the cache by": (
        AWQ,
        {"memory/utilization": GONE},
        "lets the engine size its cache without a share to size it by",
        "write memory.utilization",
    ),
    "shared memory of its own in the host's namespace": (
        AWQ,
        {"container/shm_size": "10gb"},
        "has container.shm_size 10gb with container.ipc host, where Docker ignores it and /dev/shm is the node's",
        "remove container.shm_size, or container.ipc",
    ),
    "earlyoom above the floor": (
        MTP3,
        {"memory/earlyoom_gib": 6},
        "has earlyoom end processes below 6 GiB; limit: less than the planned floor of 3 GiB, which a healthy launch"
        " reaches",
        "write memory.earlyoom_gib below 3",
    ),
    "earlyoom at the floor": (
        MTP3,
        {"memory/earlyoom_gib": 3},
        "has earlyoom end processes below 3 GiB; limit: less than the planned floor of 3 GiB, which a healthy launch"
        " reaches",
        "write memory.earlyoom_gib below 3",
    ),
    "several nodes under Ray with the broadcaster on": (
        MTP3,
        {"engine_env/VLLM_DISABLE_TP_MQ_BROADCASTER": GONE},
        "has VLLM_DISABLE_TP_MQ_BROADCASTER unset with the executor ray; limit: 1, as several nodes otherwise hang"
        " before the load",
        "write VLLM_DISABLE_TP_MQ_BROADCASTER: 1 in engine_env",
    ),
    "two nodes": (
        MTP3,
        {"parallel": {"tp": 2, "pp": 1, "dcp": 2}},
        "can never run on 2 nodes: a rank of tp 2 needs 202.07 GiB; limit: 118.68 GiB, by our estimate the most"
        " that a GB10 has available",
        "use 4 nodes, the fewest that can",
    ),
    "the variant of 465 GB on four nodes": (
        MTP3,
        {"weights/bytes": 465_000_000_000},
        "can never run on 4 nodes: a rank of tp 4 needs 119.43 GiB; limit: 118.68 GiB, by our estimate the most"
        " that a GB10 has available",
        "use 8 nodes, the fewest that can",
    ),
    "weights that no cluster holds": (
        MTP3,
        {"weights/bytes": 1_000_000_000_000},
        "can never run on 4 nodes: a rank of tp 4 needs 243.99 GiB; limit: 118.68 GiB, by our estimate the most"
        " that a GB10 has available",
        "choose smaller weights",
    ),
    "stages that no node holds": (
        AWQ,
        {"parallel": {"tp": 1, "pp": 2, "dcp": 1}},
        "can never run: a rank of pp 2 needs 187.35 GiB; limit: 118.68 GiB, by our estimate the most"
        " that a GB10 has available",
        "choose smaller weights or more nodes",
    ),
    "an index pattern of another model": (
        MTP3,
        {"engine_args/hf-overrides/index_topk_pattern": "FFS"},
        "describes a cache that cannot be computed: the index pattern names 3 layers and the model has 78",
        "correct model and engine_args",
    ),
    "a cache type nobody knows": (
        AWQ,
        {"engine_args/kv-cache-dtype": "fp6"},
        "describes a cache that cannot be computed: the size of the cache type fp6 is not known; limit: auto, bfloat16,"
        " float16, fp8, fp8_e4m3, fp8_e5m2, fp8_ds_mla for sparse models",
        "correct model and engine_args",
    ),
}


@pytest.mark.parametrize(("profile", "changes", "what", "remedy"), CASES.values(), ids=CASES)
def test_one_contradiction(profile, changes, what, remedy):
    assert contradictions(edited(profile, changes)) == [(what, remedy)]


@pytest.mark.parametrize(
    ("profile", "changes"),
    [
        (MTP3, {"image/patches": ["dcp"], K: 1}),
        (MTP3, {K: 4, CAPTURE: 10}),
        (MTP3, {K: 4, CAPTURE: GONE}),
        (MTP3, {"image/patches": [], "parallel/dcp": 1, "engine_args/max-model-len": 32768}),
        (MTP3, {"memory/earlyoom_gib": 2.9}),
        (MTP3, {"memory/earlyoom_gib": 0}),
        (MTP3, {"model": GONE, "engine_args/hf-overrides": GONE}),
        (MTP3, {"memory/utilization": 0.97}),
        (AWQ, {"memory/utilization": 0.94}),
        (AWQ, {"container/ipc": "private", "container/shm_size": "10gb"}),
        (AWQ, {"parallel": {"tp": 2, "pp": 2, "dcp": 1}}),
        (TINY, {"memory/utilization": 0.99}),
    ],
    ids=str,
)
def test_what_is_close_and_right(profile, changes):
    assert contradictions(edited(profile, changes)) == []


@pytest.mark.parametrize("path", sorted((REPO / "profiles").glob("*.yml")), ids=lambda path: path.stem)
def test_no_shipped_profile_contradicts_itself(path):
    assert contradictions(yaml.safe_load(path.read_text()), "built-here:1") == []


@pytest.mark.parametrize("image", [STOCK, "docker.io/vllm/vllm-openai:v0.33.0", "vllm/vllm-openai"])
def test_the_stock_image_lacks_what_the_weights_need(image):
    patches = "spark-sm121, dcp, b12x-sparse-mla, flashinfer-cutlass-moe, draft-dcp"
    assert contradictions(MTP3, image) == [
        (
            f"needs an image with {patches} and engine_image_ref is {image}, the stock image",
            "build or load such an image and name it in engine_image_ref",
        )
    ]


def test_a_profile_without_patches_runs_on_the_stock_image():
    assert contradictions(TINY, STOCK) == []


@pytest.mark.parametrize(
    ("executor", "first", "roll"), [("ray", 29300, 29400), ("mp", 29501, 29501), ("mp", 29501, 8000)]
)
def test_the_port_of_the_roll_call_is_nobody_elses(executor, first, roll):
    serve = {"serve/master_port": first, "serve/roll_port": roll, "serve/port": 8000, "executor": executor}
    ((what, remedy),) = contradictions(edited(TINY, {**serve, "engine_env/VLLM_DISABLE_TP_MQ_BROADCASTER": 1}))
    assert what.endswith(f"the API on 8000 and the roll call on {roll}; limit: each port once")
    assert remedy == "choose another serve.roll_port"


@pytest.mark.parametrize(
    ("executor", "first", "api", "said"),
    [
        ("mp", 29501, 8000, ""),
        ("mp", 8000, 8000, "has serve.master_port 8000 and the API on 8000; limit: each port once"),
        ("llamacpp", 50052, 8080, ""),
        ("ray", 26479, 26478, ""),
        ("ray", 26479, 26599, ""),
        ("ray", 26479, 26598, "has serve.master_port 26479, from which on ray takes 120 ports and the API on 26598;"),
        ("ray", 32648, 8000, ""),
        ("ray", 32649, 8000, "has serve.master_port 32649, from which on ray takes 120 ports; limit: below 32768,"),
    ],
)
def test_the_ports_of_the_ranks_are_nobody_elses(executor, first, api, said):
    serve = {"serve/master_port": first, "serve/port": api, "executor": executor}
    found = contradictions(edited(TINY, {**serve, "engine_env/VLLM_DISABLE_TP_MQ_BROADCASTER": 1}))
    assert [what.startswith(said) for what, _ in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("count", "size", "fewest"),
    [
        (1, 410, "4 nodes"),
        (2, 410, "4 nodes"),
        (3, 410, "4 nodes"),
        (4, 410, None),
        (5, 410, None),
        (4, 465, "8 nodes"),
        (8, 465, None),
    ],
)
def test_the_fewest_nodes_that_can_hold_the_weights(count, size, fewest):
    """Tensor parallel sizes are powers of two, so three nodes hold no more than two."""
    found = list(weights_findings(edited(MTP3, {"weights/bytes": size * 10**9}), count))
    assert [remedy for _, remedy in found] == ([f"use {fewest}, the fewest that can"] if fewest else [])


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 8))
def test_smaller_weights_never_need_more_nodes(one, other, count):
    less, more = sorted((one, other))
    refused = [
        bool(list(weights_findings(edited(MTP3, {"weights/bytes": w, "weights/repeated_bytes": 0}), count)))
        for w in (less, more)
    ]
    assert refused != [True, False]


@pytest.mark.parametrize(
    ("largest", "size"),
    [
        (0, 0),
        (1, 1),
        (3, 2),
        (4, 4),
        (7, 4),
        (8, 8),
        (10, 8),
        (16, 16),
        (23, 16),
        (24, 24),
        (255, 248),
        (256, 256),
        (300, 288),
    ],
)
def test_the_ladder_of_captured_batches(largest, size):
    assert captured(largest) == size
