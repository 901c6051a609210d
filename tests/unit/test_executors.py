"""The commands of a rank under each executor."""

from __future__ import annotations

import pytest
from builders import intent

from ansible_collections.sparkwright.cluster.plugins.module_utils.executors import commands_of, service_bytes

RAY = {
    "executor": "ray",
    "weights": {"directory": "big", "bytes": 1000},
    "parallel": {"tp": 4, "pp": 1, "dcp": 1},
    "serve": {"name": "big", "port": 18089, "master_port": 26479},
    "memory": {"kv_cache_bytes": 0, "runtime_gib": 1, "floor_gib": 1},
}
LLAMACPP = {
    **RAY,
    "executor": "llamacpp",
    "weights": {"directory": "gguf", "file": "big-00001-of-00002.gguf", "bytes": 1000},
    "engine_args": {"ctx-size": 32768, "n-gpu-layers": 999},
}
PORTS = {"api_port": 18089, "master_port": 26479}


PROGRAM = ["python3", "/usr/local/lib/sparkwright", "ray"]
RANKS = "spark1=192.168.100.10,spark2=192.168.100.11,spark3=192.168.100.12,spark4=192.168.100.13"
SIZES = [
    *("--object-store-memory", "134217728", "--object-spilling-directory", "/var/tmp/ray-spill"),
    *("--num-cpus", "1", "--num-gpus", "1"),
    *("--node-manager-port", "26480", "--object-manager-port", "26481", "--runtime-env-agent-port", "26482"),
    *("--dashboard-agent-grpc-port", "26483", "--dashboard-agent-listen-port", "26484"),
    *("--metrics-export-port", "26485", "--min-worker-port", "26499", "--max-worker-port", "26598"),
    *("--include-log-monitor", "false"),
]


def ray_start(argv):
    """The part of a command line that starts Ray."""
    return argv[argv.index("--") + 1 :]


def test_the_head_of_a_trimmed_ray():
    found = commands_of(RAY, intent(0, executor="ray", **PORTS))
    assert found.container == [
        *(*PROGRAM, "--rank", "0", "--ranks", RANKS, "--port", "26479", "--seconds", "300", "--"),
        *("ray", "start", "--head", "--node-ip-address", "192.168.100.10", "--port", "26479"),
        *("--include-dashboard", "false", *SIZES, "--no-monitor", "--temp-dir", "/tmp/ray", "--disable-usage-stats"),
    ]
    assert found.serve == [
        *("vllm", "serve", "/models/big", "--served-model-name", "big", "--host", "10.0.0.11", "--port", "18089"),
        *("--tensor-parallel-size", "4", "--pipeline-parallel-size", "1", "--distributed-executor-backend", "ray"),
    ]
    assert found.argv == [*found.container, "--", *found.serve]
    assert (found.mounts, found.waits) == (("/usr/local/lib/sparkwright:/usr/local/lib/sparkwright:ro",), ())


def test_a_worker_of_ray_waits_for_the_head_joins_it_over_the_rail_and_serves_nothing():
    patient = {**RAY, "serve": {**RAY["serve"], "stage_minutes": {"container": 2}}}
    found = commands_of(patient, intent(2, executor="ray", **PORTS))
    assert found.argv == [
        *(*PROGRAM, "--rank", "2", "--ranks", RANKS, "--port", "26479", "--seconds", "60", "--"),
        *("ray", "start", "--node-ip-address", "192.168.100.12", "--address", "192.168.100.10:26479"),
        *(*SIZES, "--disable-usage-stats"),
    ]
    assert found.waits == (("spark1", "192.168.100.10", 26480),)


@pytest.mark.parametrize("rank", [0, 1])
def test_rays_memory_monitor_is_off_on_every_node(rank):
    assert commands_of(RAY, intent(rank)).environment == {
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_memory_usage_threshold": "0.99",
    }


def test_the_head_of_llamacpp_knows_every_worker():
    found = commands_of(LLAMACPP, intent(0, api_port=8080, master_port=50052))
    assert found.container == [
        *("llama-server", "--model", "/models/gguf/big-00001-of-00002.gguf", "--alias", "big"),
        *("--host", "10.0.0.11", "--port", "8080"),
        *("--rpc", "192.168.100.11:50052,192.168.100.12:50052,192.168.100.13:50052", "--metrics"),
        *("--ctx-size", "32768", "--n-gpu-layers", "999"),
    ]
    assert (found.argv, dict(found.environment)) == (found.container, {})
    assert found.waits == tuple((f"spark{n + 1}", f"192.168.100.{10 + n}", 50052) for n in (1, 2, 3))


def test_a_worker_of_llamacpp_listens_on_its_rail_alone():
    found = commands_of(LLAMACPP, intent(3, master_port=50052))
    assert (found.argv, found.waits) == (["ggml-rpc-server", "--host", "192.168.100.13", "--port", "50052"], ())


def test_in_a_ring_ranks_meet_where_everyone_speaks_tcp():
    peers = {f"spark{n}": f"10.0.0.{10 + n}" for n in (2, 3, 4)}
    ring = {"topology": "ring", "head_address": "10.0.0.11", "master_port": 26479}
    head = intent(0, socket_address="10.0.0.11", socket_peers=peers, **ring)
    worker = intent(2, socket_address="10.0.0.13", **ring)
    assert ray_start(commands_of(RAY, head).container)[3:5] == ["--node-ip-address", "10.0.0.11"]
    assert ray_start(commands_of(RAY, worker).container)[2:6] == [
        *("--node-ip-address", "10.0.0.13"),
        *("--address", "10.0.0.11:26479"),
    ]
    workers = "10.0.0.12:26479,10.0.0.13:26479,10.0.0.14:26479"
    assert workers in commands_of(LLAMACPP, head).container
    assert commands_of(LLAMACPP, worker).container == ["ggml-rpc-server", "--host", "10.0.0.13", "--port", "26479"]


@pytest.mark.parametrize(
    ("executor", "head", "mib"),
    [("mp", True, 0), ("mp", False, 0), ("llamacpp", True, 0), ("ray", True, 444), ("ray", False, 278)],
)
def test_what_an_executor_takes_besides_the_rank(executor, head, mib):
    assert service_bytes(executor, head) == mib * 1024**2
