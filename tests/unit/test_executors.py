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


def test_the_head_of_a_trimmed_ray():
    found = commands_of(RAY, intent(0, **PORTS))
    assert found.container == [
        *("ray", "start", "--head", "--node-ip-address", "192.168.100.10", "--port", "26479"),
        *("--object-store-memory", "134217728", "--object-spilling-directory", "/var/tmp/ray-spill"),
        *("--num-cpus", "1", "--num-gpus", "1", "--include-dashboard", "false", "--include-log-monitor", "false"),
        *("--disable-usage-stats", "--temp-dir", "/var/cache/sparkwright/ray", "--block"),
    ]
    assert found.serve == [
        *("vllm", "serve", "/models/big", "--served-model-name", "big", "--host", "10.0.0.11", "--port", "18089"),
        *("--tensor-parallel-size", "4", "--pipeline-parallel-size", "1", "--distributed-executor-backend", "ray"),
    ]


def test_a_worker_of_ray_joins_the_head_over_the_rail_and_serves_nothing():
    found = commands_of(RAY, intent(2, **PORTS))
    assert found.container == [
        *("ray", "start", "--node-ip-address", "192.168.100.12", "--address", "192.168.100.10:26479"),
        *("--object-store-memory", "134217728", "--object-spilling-directory", "/var/tmp/ray-spill"),
        *("--num-cpus", "1", "--num-gpus", "1", "--include-log-monitor", "false", "--disable-usage-stats", "--block"),
    ]
    assert found.serve == []


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
        *("--rpc", "192.168.100.11:50052,192.168.100.12:50052,192.168.100.13:50052"),
        *("--ctx-size", "32768", "--n-gpu-layers", "999"),
    ]
    assert (found.serve, dict(found.environment)) == ([], {})


def test_a_worker_of_llamacpp_listens_on_its_rail_alone():
    found = commands_of(LLAMACPP, intent(3, master_port=50052))
    assert found.container == ["rpc-server", "--host", "192.168.100.13", "--port", "50052"]


def test_in_a_ring_ranks_meet_where_everyone_speaks_tcp():
    peers = {f"spark{n}": f"10.0.0.{10 + n}" for n in (2, 3, 4)}
    ring = {"topology": "ring", "head_address": "10.0.0.11", "master_port": 26479}
    head = intent(0, socket_address="10.0.0.11", socket_peers=peers, **ring)
    worker = intent(2, socket_address="10.0.0.13", **ring)
    assert commands_of(RAY, head).container[3:5] == ["--node-ip-address", "10.0.0.11"]
    assert commands_of(RAY, worker).container[2:6] == [
        *("--node-ip-address", "10.0.0.13"),
        *("--address", "10.0.0.11:26479"),
    ]
    workers = "10.0.0.12:26479,10.0.0.13:26479,10.0.0.14:26479"
    assert workers in commands_of(LLAMACPP, head).container
    assert commands_of(LLAMACPP, worker).container == ["rpc-server", "--host", "10.0.0.13", "--port", "26479"]


@pytest.mark.parametrize(
    ("executor", "head", "mib"),
    [("mp", True, 0), ("mp", False, 0), ("llamacpp", True, 0), ("ray", True, 351), ("ray", False, 266)],
)
def test_what_an_executor_takes_besides_the_rank(executor, head, mib):
    assert service_bytes(executor, head) == mib * 1024**2
