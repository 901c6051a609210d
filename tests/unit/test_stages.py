"""How far a rank has come, from lines as real engines print them."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_log import Figures, cause, kept, noticed
from ansible_collections.sparkwright.cluster.plugins.module_utils.stages import (
    LoadStage,
    Progress,
    advanced,
    at,
    overdue,
)

WORKER = "(Worker_TP0 pid=27079) INFO 11-30 16:52:15 "
CORE = "(EngineCore pid=26382) INFO 11-30 16:52:19 "
# What ranks of vLLM 0.32 printed on the CPU, in this order, and what its GPU runner prints by its sources.
LINES = [
    ("INFO 11-30 16:51:03 [model.py:2152] Using max model len 128", "container"),
    (
        "(Worker pid=27079) INFO 11-30 16:52:05 [parallel_state.py:1906] world_size=2 rank=0 local_rank=0 "
        "distributed_init_method=tcp://127.0.0.1:29511 backend=gloo",
        "rendezvous: meets 2 ranks",
    ),
    (f"{WORKER}[parallel_state.py:2350] rank 0 in world size 2 is assigned as DP rank 0", "rendezvous: meets 2 ranks"),
    (f"{WORKER}[cpu_model_runner.py:68] Starting to load model /models/tiny...", "weights"),
    (
        "Loading safetensors checkpoint shards:   0% Completed | 0/47 [00:00<?, ?it/s]",
        "weights: 0 of 47 shards",
    ),
    (
        "(Worker_TP0 pid=9) Loading safetensors checkpoint shards:  38% Completed | 18/47 [03:40<05:55, 12.26s/it]",
        "weights: 18 of 47 shards",
    ),
    (f"{WORKER}[default_loader.py:501] Loading weights took 539.01 seconds", "weights: loaded"),
    (
        "(Worker_TP0 pid=9) INFO 11-30 16:52:16 [gpu_model_runner.py:5150] Model loading took 95.5 GiB memory and 549.2"
        " seconds",
        "weights: loaded",
    ),
    (f"{WORKER}[gpu_worker.py:760] Available KV cache memory: 1.69 GiB", "KV cache: 1.69 GiB"),
    (f"{CORE}[kv_cache_utils.py:2327] GPU KV cache size: 132,096 tokens", "KV cache: 132,096 tokens"),
    ("Capturing CUDA graphs (PIECEWISE):  50%|█████     | 2/4 [00:01<00:01,  1.9it/s]", "graphs: 2 of 4 graphs"),
    (f"{WORKER}[gpu_model_runner.py:6582] Graph capturing finished in 25 secs, took 0.61 GiB", "graphs: captured"),
    (f"{CORE}[core.py:402] init engine (profile, create kv cache, warmup model) took 612.22 s", "API"),
    (
        "(APIServer pid=1) INFO 11-30 16:52:22 [entry.py:140] Starting vLLM server on http://10.0.0.11:8011",
        "API: listens",
    ),
    ("INFO:     Application startup complete.", "API: listens"),
    ("(Worker_TP0 pid=9) INFO [x.py:1] Starting to load model /models/draft...", "API: listens"),
]


def test_the_stages_of_a_launch_follow_the_log():
    progress = Progress(LoadStage.CONTAINER, 0.0)
    seen = []
    for number, (line, _) in enumerate(LINES):
        progress = advanced(progress, line, float(number))
        seen.append(str(progress))
    assert seen == [shown for _, shown in LINES]
    assert progress.since == 12.0


def test_the_stages_of_a_head_of_llamacpp():
    lines = {
        "main: HTTP server is listening, hostname: 10.0.0.11, port: 8080, http threads: 19": "container",
        "load_tensors: loading model tensors, this can take a while... (mmap = true)": "weights",
        "llama_kv_cache_unified: size =  384.00 MiB (  4096 cells,  48 layers,  1/1 seqs)": "KV cache: 384.00 MiB",
        "main: server is listening on http://10.0.0.11:8080 - starting the main loop": "API: listens",
    }
    progress = Progress(LoadStage.CONTAINER, 0.0)
    for line, shown in lines.items():
        progress = advanced(progress, line, 1.0)
        assert str(progress) == shown


@pytest.mark.parametrize(
    ("stage", "minutes", "head", "limits", "late"),
    [
        ("weights", 29, True, {}, ""),
        ("weights", 31, True, {}, "stage weights: 2 of 47 shards for 31 minutes; limit: 30 minutes"),
        ("weights", 31, False, {}, "stage weights: 2 of 47 shards for 31 minutes; limit: 30 minutes"),
        ("weights", 31, True, {"weights": 60}, ""),
        ("rendezvous", 11, False, {}, "stage rendezvous: 2 of 47 shards for 11 minutes; limit: 10 minutes"),
        # A rank above 0 says nothing while the head captures graphs, and the roll call may take hours.
        ("KV cache", 500, False, {}, ""),
        ("KV cache", 500, True, {}, "stage KV cache: 2 of 47 shards for 500 minutes; limit: 15 minutes"),
        ("roll call", 500, True, {}, ""),
        ("ready", 50_000, True, {}, ""),
    ],
)
def test_a_stage_that_takes_too_long_is_named(stage, minutes, head, limits, late):
    progress = Progress(LoadStage(stage), 0.0, "2 of 47 shards")
    assert overdue(progress, minutes * 60.0, limits, head) == late


def test_a_worker_that_has_its_weights_waits_for_the_head_without_a_limit_of_its_own():
    loaded = Progress(LoadStage.WEIGHTS, 0.0, "loaded")
    assert overdue(loaded, 31 * 60.0, {}, head=False) == ""
    assert overdue(loaded, 31 * 60.0, {}, head=True) == "stage weights: loaded for 31 minutes; limit: 30 minutes"


def test_a_stage_that_something_else_tells_begins_once():
    ready = at(LoadStage.READY, Progress(LoadStage.API, 5.0, "listens"), 9.0)
    assert ready == Progress(LoadStage.READY, 9.0)
    assert at(LoadStage.READY, ready, 11.0) == ready


NCCL = (
    "spark1:312:987 [0] NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [1]roceP2p1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:1<0>"
)


@pytest.mark.parametrize(
    ("lines", "figures"),
    [
        (
            [
                f"{CORE}[kv_cache_utils.py:2327] CPU KV cache size: 32,768 tokens, Maximum concurrency for 128 tokens"
                " per request: 256.00x"
            ],
            Figures(kv_tokens=32768, context=128, concurrency=256.0),
        ),
        (
            [
                "INFO 10-01 09:00:00 [kv_cache_utils.py:1087] GPU KV cache size: 132,096 tokens",
                "INFO 10-01 [kv_cache_utils.py:1091] Maximum concurrency for 131,072 tokens per request: 1.01x",
            ],
            Figures(kv_tokens=132096, context=131072, concurrency=1.01),
        ),
        ([LINES[1][0]], Figures(backend="gloo", meets="tcp://127.0.0.1:29511")),
        ([NCCL], Figures(network="IB", devices=("rocep1s0f0", "roceP2p1s0f0"))),
        (
            ["spark1:312:987 [0] NCCL INFO NET/Socket : Using [0]enP7s7:10.0.0.11<0>"],
            Figures(network="Socket", devices=("enP7s7",)),
        ),
        (["INFO nothing of the kind"], Figures()),
    ],
    ids=["0.32", "before 0.32", "gloo", "NCCL over RoCE", "NCCL over TCP", "nothing"],
)
def test_the_figures_of_a_log(lines, figures):
    found = Figures()
    for line in lines:
        found = noticed(found, line)
    assert found == figures


DIED = (
    "(MainProcess pid=24179) ERROR 11-30 17:03:35 [multiproc_executor.py:315] Worker proc VllmWorker-1 died"
    " unexpectedly (exit code: None), shutting down executor."
)
P = "(EngineCore pid=26382) ERROR 11-30 17:03:40 [core.py:1512] "
PEER = (
    "RuntimeError: Worker failed with error '[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]."
    " This is typically caused by a remote worker crashing'"
)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], ""),
        (["INFO all is well"], ""),
        (
            [f"{P}Traceback (most recent call last):", f"{P}ValueError: no such layer", "INFO bye"],
            "ValueError: no such layer",
        ),
        (
            [f"{P}ValueError: no such layer", f"{P}torch.OutOfMemoryError: CUDA out of memory. Tried"],
            "torch.OutOfMemoryError: CUDA out of memory. Tried",
        ),
        # What it says of another rank is said last, and counts only when there is nothing else.
        ([f"{P}{PEER}"], PEER),
        ([f"{P}ValueError: mine", f"{P}{PEER}"], "ValueError: mine"),
        (
            [DIED],
            "Worker proc VllmWorker-1 died unexpectedly (exit code: None), shutting down executor.",
        ),
    ],
)
def test_the_line_that_names_the_cause(lines, said):
    assert cause(lines) == said


def test_the_lines_that_are_kept_are_the_last_ones():
    assert kept(["", *[f"line {n}  " for n in range(50)], "  "]) == [f"line {n}" for n in range(10, 50)]
