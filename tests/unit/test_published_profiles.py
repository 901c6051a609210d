"""The shipped profiles have the published parameters, every one of them and no other."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import yaml
from builders import IMAGE_ID, REPO, fabric, intent

from ansible_collections.sparkwright.cluster.plugins.module_utils import profiles
from ansible_collections.sparkwright.cluster.plugins.module_utils.capacity import capacity, largest_context
from ansible_collections.sparkwright.cluster.plugins.module_utils.launch import HostPaths, render
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import nccl_env
from ansible_collections.sparkwright.cluster.plugins.module_utils.profile_rules import contradictions

NVFP4 = {
    "glm52-nvfp4-dcp4-mtp1-128k": {"--speculative-config": 1},
    "glm52-nvfp4-dcp4-mtp3-128k": {"--speculative-config": 3},
    "glm52-nvfp4-dcp4-mtp4-128k": {"--speculative-config": 4, "--max-cudagraph-capture-size": "10"},
    "glm52-nvfp4-dcp4-mtp3-bs3": {
        "--speculative-config": 3,
        "--max-num-seqs": "3",
        "--max-model-len": "46080",
        "--kv-cache-memory-bytes": "1900000000",
    },
    "glm52-nvfp4-dcp1-mtp3-32k": {
        "--speculative-config": 3,
        "--max-model-len": "32768",
        "--decode-context-parallel-size": None,
        "--dcp-comm-backend": None,
        "--dcp-kv-cache-interleave-size": None,
    },
}
AWQ = {
    "glm52-awq15-mtp3-256k": {"--max-model-len": "262144", "--gpu-memory-utilization": "0.93"},
    "glm52-awq15-mtp3-128k": {"--max-model-len": "131072", "--gpu-memory-utilization": "0.9"},
}
ALL = [*NVFP4, *AWQ, "llamacpp-rpc-fallback"]


def shipped(name):
    return yaml.safe_load((REPO / f"profiles/{name}.yml").read_text())


def launch(name, rank=0):
    profile = shipped(name)
    ports = {"api_port": profile["serve"]["port"], "master_port": profile["serve"]["master_port"]}
    return render(profile, intent(rank, **ports), HostPaths("/models-here", "/cache-here"), {}, IMAGE_ID)


def pairs(argv):
    """{flag: value} of a command line; a flag without a value has True."""
    found = {}
    for word, following in zip(argv, [*argv[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = True if following.startswith("--") else following
    return found


def container_flags(found):
    return found.argv[: found.argv.index(IMAGE_ID)]


def repeated(argv, flag):
    return [following for word, following in pairwise(argv) if word == flag]


# --- NVFP4 on Ray ---------------------------------------------------------------------------------------------------

NVFP4_FLAGS = {
    "--served-model-name": "glm-5.2",
    "--host": "10.0.0.11",
    "--port": "18089",
    "--tensor-parallel-size": "4",
    "--pipeline-parallel-size": "1",
    "--decode-context-parallel-size": "4",
    "--dcp-comm-backend": "ag_rs",
    "--dcp-kv-cache-interleave-size": "1",
    "--gpu-memory-utilization": "0.9",
    "--kv-cache-memory-bytes": "1810000000",
    "--kv-cache-dtype": "fp8",
    "--max-model-len": "131072",
    "--max-num-seqs": "1",
    "--max-num-batched-tokens": "1024",
    "--max-cudagraph-capture-size": "4",
    "--attention-backend": "B12X_MLA_SPARSE",
    "--moe-backend": "flashinfer_cutlass",
    "--quantization": "modelopt_fp4",
    "--distributed-executor-backend": "ray",
    "--load-format": "auto",
    "--generation-config": "vllm",
    "--trust-remote-code": True,
    "--no-enable-log-requests": True,
}
NVFP4_ENVIRONMENT = {
    "VLLM_DISABLE_TP_MQ_BROADCASTER": "1",
    "VLLM_DCP_GLOBAL_TOPK": "1",
    "VLLM_DCP_SHARD_DRAFT": "1",
    "VLLM_USE_B12X_SPARSE_INDEXER": "1",
    "VLLM_KZ_TRIM_AFTER_LOAD": "1",
    "VLLM_MTP_RECOMPUTE_TOPK_FROM_STEP": "1",
    "VLLM_ENABLE_PCIE_ALLREDUCE": "0",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_USE_B12X_MOE": "0",
    "VLLM_USE_B12X_FP8_GEMM": "0",
    "B12X_MOE_FORCE_A16": "0",
    "B12X_W4A16_TC_DECODE": "0",
    "USES_B12X": "True",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_USE_FLASHINFER_SAMPLER": "1",
    "CUTE_DSL_ARCH": "sm_121a",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    "SAFETENSORS_FAST_GPU": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_memory_usage_threshold": "0.99",
}
CACHES = {"HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"}


@pytest.mark.parametrize("name", NVFP4)
def test_the_nvfp4_rows_have_the_published_flags(name):
    changes = dict(NVFP4[name])
    guessed = changes.pop("--speculative-config")
    argv = launch(name).argv
    engine = argv[argv.index("vllm") :]
    assert engine[:3] == ("vllm", "serve", "/models/glm52-nvfp4-mtp")
    found = pairs(engine)
    assert json.loads(found.pop("--hf-overrides")) == {
        "use_index_cache": True,
        "index_topk_pattern": "FFFSSS" + 18 * "FSSS",
    }
    assert json.loads(found.pop("--speculative-config")) == {
        "method": "mtp",
        "num_speculative_tokens": guessed,
        "moe_backend": "flashinfer_cutlass",
        "draft_attention_backend": "B12X_MLA_SPARSE",
        "draft_sample_method": "probabilistic",
        "use_local_argmax_reduction": True,
    }
    assert found == {flag: value for flag, value in {**NVFP4_FLAGS, **changes}.items() if value is not None}


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("name", NVFP4)
def test_the_nvfp4_rows_have_the_published_environment(name, rank):
    found = launch(name, rank).environment
    assert {key: value for key, value in found.items() if key not in CACHES} == NVFP4_ENVIRONMENT


@pytest.mark.parametrize("name", NVFP4)
def test_the_nvfp4_rows_have_the_published_container(name):
    argv = container_flags(launch(name))
    assert pairs(argv).items() >= {"--network": "host", "--ipc": "host", "--gpus": "all"}.items()
    assert repeated(argv, "--ulimit") == ["memlock=-1:-1", "stack=67108864"]
    assert "/models-here:/models:ro" in argv
    # Not in the published list, but without them NCCL drops to TCP.
    assert (repeated(argv, "--device"), repeated(argv, "--cap-add")) == (["/dev/infiniband"], ["IPC_LOCK"])


# --- AWQ on vLLM's own executor -------------------------------------------------------------------------------------

AWQ_FLAGS = {
    "--served-model-name": "glm-5.2-15pct",
    "--host": "10.0.0.11",
    "--port": "8210",
    "--trust-remote-code": True,
    "--reasoning-parser": "glm45",
    "--tool-call-parser": "glm47",
    "--enable-auto-tool-choice": True,
    "--enable-prefix-caching": True,
    "--tensor-parallel-size": "4",
    "--pipeline-parallel-size": "1",
    "--max-num-seqs": "1",
    "--max-num-batched-tokens": "4096",
    "--kv-cache-dtype": "fp8_ds_mla",
    "--distributed-executor-backend": "mp",
    "--compilation-config": '{"cudagraph_mode":"FULL"}',
    "--nnodes": "4",
    "--node-rank": "0",
    "--master-addr": "192.168.100.10",
    "--master-port": "29501",
}
AWQ_ENVIRONMENT = {
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",
    "LD_PRELOAD": "/usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib/libnccl.so.2",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": "256",
    "GLM52_BIND_HOST_TRITON": "1",
    "GLM52_MQA_LOGITS_TRITON": "1",
    "GLM52_PAGED_MQA_TRITON": "1",
    "GLM52_PAGED_MQA_TOPK_CHUNK_SIZE": "8192",
    "GLM52_B12X_MLA": "1",
    "TORCH_CUDA_ARCH_LIST": "12.1a",
}
AWQ_NCCL = {"NCCL_NET": "IB", "NCCL_CROSS_NIC": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_IGNORE_CPU_AFFINITY": "1"}


@pytest.mark.parametrize("name", AWQ)
def test_the_awq_rows_have_the_published_flags(name):
    argv = launch(name).argv
    engine = argv[argv.index("vllm") :]
    assert engine[:3] == ("vllm", "serve", "/cache/huggingface/glm52-awq-15pct")
    found = pairs(engine)
    assert json.loads(found.pop("--speculative-config")) == {
        "method": "mtp",
        "model": "/cache/huggingface/glm52-awq-15pct-draft",
        "num_speculative_tokens": 3,
        "attention_backend": "FLASHMLA_SPARSE",
    }
    assert found == AWQ_FLAGS | AWQ[name]


@pytest.mark.parametrize("name", AWQ)
def test_the_awq_rows_have_the_published_environment(name):
    found = launch(name).environment
    assert {key: value for key, value in found.items() if key not in CACHES} == AWQ_ENVIRONMENT
    variables = {key: str(value) for key, value in shipped(name)["nccl_env"].items()}
    assert nccl_env(intent(0, nccl_env=variables), fabric(0)).items() >= AWQ_NCCL.items()


@pytest.mark.parametrize("name", AWQ)
def test_the_awq_rows_have_the_published_container_but_for_what_docker_ignores(name):
    argv = container_flags(launch(name))
    wanted = {"--network": "host", "--ipc": "host", "--gpus": "all", "--device": "/dev/infiniband"}
    assert pairs(argv).items() >= wanted.items()
    assert (repeated(argv, "--ulimit"), repeated(argv, "--cap-add")) == (["memlock=-1:-1"], ["IPC_LOCK"])
    assert "/models-here:/cache/huggingface:ro" in argv
    assert "--shm-size" not in argv


# --- all of them ----------------------------------------------------------------------------------------------------


def test_every_published_row_is_shipped():
    assert {path.stem for path in (REPO / "profiles").glob("*.yml")} >= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_no_row_contradicts_itself(name):
    assert contradictions(shipped(name)) == []


@pytest.mark.parametrize("name", NVFP4)
def test_the_nvfp4_rows_take_the_published_95_5_gib_a_rank(name):
    assert round(profiles.memory_need(shipped(name)).weights / GIB, 1) == 95.5


@pytest.mark.parametrize("name", [name for name in NVFP4 if "128k" in name])
def test_the_planner_says_what_the_engine_printed(name):
    profile = shipped(name)
    found = capacity(profile["memory"]["kv_cache_bytes"], profiles.layout(profile), profiles.context(profile))
    assert (found.tokens, round(found.concurrency, 2)) == (
        profile["published"]["kv_tokens"],
        profile["published"]["concurrency"],
    )


def test_the_row_of_three_requests_has_the_longest_context_that_fits():
    profile = shipped("glm52-nvfp4-dcp4-mtp3-bs3")
    need = profiles.memory_need(profile)
    assert largest_context(need.kv_cache, need.block, 3) == need.context


@pytest.mark.parametrize("name", AWQ)
def test_the_awq_draft_is_part_of_the_weights(name):
    need = profiles.memory_need(shipped(name))
    assert (need.weights, need.draft) == (383_000_000_000 // 4, 5_000_000_000 // 4)
