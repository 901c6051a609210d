"""How the ranks are started and find each other: vLLM's own executor, Ray, or llama.cpp's RPC.

Each is one function from profile and intent to the commands of one rank, so that the unit, the doctor and the
documentation show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .intent import Intent
from .vllm_argv import CACHE, flags, model_path, serve_argv

# Bytes of Ray's object store: the smallest that it accepts is 75 MiB, and vLLM passes no tensors through it.
RAY_OBJECT_STORE = 134_217_728
# Bytes of Ray's processes, proportional share (PSS) of an idle Ray 2.60 with the flags below.
RAY_HEAD, RAY_WORKER = 223 * 1024**2, 138 * 1024**2
# Ray's monitor counts the memory of the whole node and kills the loader at 95 %, although the load then succeeds.
RAY_ENVIRONMENT = {"RAY_memory_monitor_refresh_ms": "0", "RAY_memory_usage_threshold": "0.99"}


@dataclass(frozen=True)
class Commands:
    """The commands of one rank.

    Attributes:
        container: What the container runs.
        serve: What is run inside of it once all ranks are there; empty where the container itself serves.
        environment: What the executor wants in the environment.
    """

    container: list[str]
    serve: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)


def commands_of(profile: Mapping[str, Any], intent: Intent) -> Commands:
    """The commands of one rank, by the executor that the profile names."""
    return EXECUTORS[profile["executor"]](profile, intent)


def service_bytes(executor: str, head: bool) -> int:
    """Bytes that an executor takes on a node besides the rank itself."""
    if executor != "ray":
        return 0
    return RAY_OBJECT_STORE + (RAY_HEAD if head else RAY_WORKER)


def _mp(profile: Mapping[str, Any], intent: Intent) -> Commands:
    """VLLM's native executor: one `vllm serve` a node, and no other process."""
    ranks = {
        "distributed-executor-backend": "mp",
        "nnodes": intent.world_size,
        "node-rank": intent.rank,
        "master-addr": intent.head_address,
        "master-port": intent.master_port,
    }
    argv = serve_argv(profile, intent, ranks)
    return Commands(argv if intent.is_head else [*argv, "--headless"])


def _ray(profile: Mapping[str, Any], intent: Intent) -> Commands:
    """A trimmed Ray in every container, and one `vllm serve` on the head.

    Ray registers the LAN address when it is told none. A temporary directory can be chosen on the head alone; the other
    nodes take over the same path.
    """
    address = intent.socket_address
    sizes = {
        "object-store-memory": RAY_OBJECT_STORE,
        "object-spilling-directory": "/var/tmp/ray-spill",
        "num-cpus": 1,
        "num-gpus": 1,
    }
    if intent.is_head:
        start = ["--head", *flags({"node-ip-address": address, "port": intent.master_port, **sizes})]
        start += ["--include-dashboard", "false"]
        place = ["--temp-dir", f"{CACHE}/ray"]
    else:
        start = flags({"node-ip-address": address, "address": f"{intent.head_address}:{intent.master_port}", **sizes})
        place = []
    start += ["--include-log-monitor", "false", "--disable-usage-stats", *place, "--block"]
    serve = serve_argv(profile, intent, {"distributed-executor-backend": "ray"}) if intent.is_head else []
    return Commands(["ray", "start", *start], serve, RAY_ENVIRONMENT)


def _llamacpp(profile: Mapping[str, Any], intent: Intent) -> Commands:
    """llama.cpp: a server of tensors on every worker, and the head that sends each its layers."""
    if not intent.is_head:
        return Commands(["rpc-server", "--host", intent.socket_address, "--port", str(intent.master_port)])
    workers = ",".join(f"{address}:{intent.master_port}" for address in intent.socket_peers.values())
    ours = {
        "model": f"{model_path(profile)}/{profile['weights']['file']}",
        "alias": profile["serve"]["name"],
        "host": intent.api_host,
        "port": intent.api_port,
        "rpc": workers,
    }
    return Commands(["llama-server", *flags({**ours, **profile.get("engine_args", {})})])


EXECUTORS: dict[str, Callable[[Mapping[str, Any], Intent], Commands]] = {"mp": _mp, "ray": _ray, "llamacpp": _llamacpp}
