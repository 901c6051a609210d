"""The command line of `vllm serve`, as far as all executors have it in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .intent import Intent

# Where the container sees the weights, unless the profile names another place, and the node-local caches.
MODELS = "/models"
CACHE = "/var/cache/sparkwright"


def flags(arguments: Mapping[str, Any]) -> list[str]:
    """Engine arguments as flags: true is the bare flag, false is `--no-` with it, lists and mappings become JSON."""
    argv: list[str] = []
    for name, value in arguments.items():
        if isinstance(value, bool):
            argv.append(f"--{name}" if value else f"--no-{name}")
        else:
            argv += [f"--{name}", _text(value)]
    return argv


def serve_argv(profile: Mapping[str, Any], intent: Intent, executor: Mapping[str, Any]) -> list[str]:
    """`vllm serve` for one rank; `executor` is what tells the ranks how they find each other."""
    serve, parallel = profile["serve"], profile["parallel"]
    argv = ["vllm", "serve", model_path(profile), "--served-model-name", serve["name"]]
    if intent.is_head:
        argv += ["--host", intent.api_host, "--port", str(intent.api_port)]
    shape = {"tensor-parallel-size": parallel["tp"], "pipeline-parallel-size": parallel["pp"]}
    # DCP 1 is the engine's default, and older builds do not know the flag.
    if parallel["dcp"] > 1:
        shape["decode-context-parallel-size"] = parallel["dcp"]
    memory = memory_arguments(profile["memory"])
    return [*argv, *flags({**shape, **executor, **memory, **engine_arguments(profile)})]


def engine_arguments(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The profile's own arguments; a draft in a directory of its own is found where the weights are."""
    arguments = dict(profile.get("engine_args", {}))
    draft = profile["weights"].get("draft")
    if draft:
        model = f"{models_mount(profile)}/{draft['directory']}"
        arguments["speculative-config"] = {"model": model, **arguments.get("speculative-config", {})}
    return arguments


def memory_arguments(memory: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's memory arguments, from the figures that the headroom is computed with."""
    arguments: dict[str, Any] = {}
    if memory.get("utilization"):
        arguments["gpu-memory-utilization"] = memory["utilization"]
    # Without a size the engine measures what `utilization` leaves and takes all of it.
    if memory["kv_cache_bytes"]:
        arguments["kv-cache-memory-bytes"] = memory["kv_cache_bytes"]
    return arguments


def model_path(profile: Mapping[str, Any]) -> str:
    """Where the container sees the checkpoint."""
    return f"{models_mount(profile)}/{profile['weights']['directory']}"


def models_mount(profile: Mapping[str, Any]) -> str:
    """Where the container sees the directory of all checkpoints."""
    return str(profile.get("container", {}).get("models_mount", MODELS))


def _text(value: Any) -> str:
    if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"))
    return str(value)
