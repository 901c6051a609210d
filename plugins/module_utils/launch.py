"""From a profile and an intent to the exact command line and environment of one rank.

The command line is a list from here to the kernel: nothing is ever joined into a shell string, so that JSON arguments
arrive as they were written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .intent import Intent
from .names import ENGINE_CONTAINER, ENGINE_ENV_FILE, LABEL_CONFIG, LABEL_RANK, NCCL_ENV_FILE

# Where the container sees the weights, unless the profile names another place, and the node-local caches.
MODELS = "/models"
CACHE = "/var/cache/sparkwright"


@dataclass(frozen=True)
class HostPaths:
    """What the node gives to the container: the weights (read-only), the caches, and mounts of the user's own."""

    models: str
    cache: str
    extra_mounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One rank: the argument list of `docker run`, the engine's environment, and the hash of all that decides it."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    config_hash: str


def flags(arguments: Mapping[str, Any]) -> list[str]:
    """Engine arguments as flags: true is the bare flag, false is `--no-` with it, lists and mappings become JSON."""
    argv: list[str] = []
    for name, value in arguments.items():
        if isinstance(value, bool):
            argv.append(f"--{name}" if value else f"--no-{name}")
        else:
            argv += [f"--{name}", _text(value)]
    return argv


def engine_argv(profile: Mapping[str, Any], intent: Intent) -> list[str]:
    """The engine's own command line for one rank of vLLM's native executor (`mp`)."""
    serve, parallel = profile["serve"], profile["parallel"]
    argv = ["vllm", "serve", f"{models_mount(profile)}/{profile['weights']['directory']}"]
    argv += ["--served-model-name", serve["name"]]
    if intent.is_head:
        argv += ["--host", intent.api_host, "--port", str(intent.api_port)]
    shape = {"tensor-parallel-size": parallel["tp"], "pipeline-parallel-size": parallel["pp"]}
    # DCP 1 is the engine's default, and older builds do not know the flag.
    if parallel["dcp"] > 1:
        shape["decode-context-parallel-size"] = parallel["dcp"]
    ranks = {
        "distributed-executor-backend": "mp",
        "nnodes": intent.world_size,
        "node-rank": intent.rank,
        "master-addr": intent.head_address,
        "master-port": intent.master_port,
    }
    argv += flags({**shape, **ranks, **memory_arguments(profile["memory"]), **profile.get("engine_args", {})})
    return argv if intent.is_head else [*argv, "--headless"]


def memory_arguments(memory: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's memory arguments, from the figures that the headroom is computed with."""
    arguments: dict[str, Any] = {}
    if memory.get("utilization"):
        arguments["gpu-memory-utilization"] = memory["utilization"]
    # Without a size the engine measures what `utilization` leaves and takes all of it.
    if memory["kv_cache_bytes"]:
        arguments["kv-cache-memory-bytes"] = memory["kv_cache_bytes"]
    return arguments


def engine_environment(profile: Mapping[str, Any]) -> dict[str, str]:
    """The engine's environment: the node-local caches, then what the profile says."""
    caches = {"HOME": CACHE, "VLLM_CACHE_ROOT": f"{CACHE}/vllm", "TRITON_CACHE_DIR": f"{CACHE}/triton"}
    return {**caches, **{name: str(value) for name, value in profile.get("engine_env", {}).items()}}


def container_options(container: Mapping[str, Any]) -> list[str]:
    """The profile's `container` section as options of `docker run`."""
    argv: list[str] = []
    if container.get("gpus"):
        argv += ["--gpus", container["gpus"]]
    if container.get("ipc"):
        argv += ["--ipc", container["ipc"]]
    if container.get("shm_size"):
        argv += ["--shm-size", str(container["shm_size"])]
    argv += [part for device in container.get("devices", []) for part in ("--device", device)]
    argv += [part for capability in container.get("capabilities", []) for part in ("--cap-add", capability)]
    argv += [part for name, value in container.get("ulimits", {}).items() for part in ("--ulimit", f"{name}={value}")]
    return argv


def models_mount(profile: Mapping[str, Any]) -> str:
    """Where the container sees the directory of all checkpoints."""
    return str(profile.get("container", {}).get("models_mount", MODELS))


def render(profile: Mapping[str, Any], intent: Intent, paths: HostPaths, nccl: Mapping[str, str], image: str) -> Launch:
    """The launch of one rank; `nccl` is that node's NCCL environment, `image` the image ID to run."""
    environment = engine_environment(profile)
    mounts = (f"{paths.models}:{models_mount(profile)}:ro", f"{paths.cache}:{CACHE}", *paths.extra_mounts)
    options = [
        *container_options(profile.get("container", {})),
        *(part for mount in mounts for part in ("--volume", mount)),
    ]
    engine = engine_argv(profile, intent)
    config_hash = _hash([options, engine, environment, dict(nccl), image])
    argv = (
        *("docker", "run", "--rm", "--name", ENGINE_CONTAINER, "--network", "host", "--log-driver", "none"),
        *("--security-opt", "no-new-privileges", "--env-file", NCCL_ENV_FILE, "--env-file", ENGINE_ENV_FILE),
        *("--label", f"{LABEL_CONFIG}={config_hash}", "--label", f"{LABEL_RANK}={intent.rank}"),
        *options,
        image,
        *engine,
    )
    return Launch(argv, environment, config_hash)


def _text(value: Any) -> str:
    if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def _hash(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
