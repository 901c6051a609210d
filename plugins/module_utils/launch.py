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

from .executors import Commands, commands_of
from .intent import Intent
from .names import (
    API_ENV_FILE,
    ENGINE_CONTAINER,
    ENGINE_ENV_FILE,
    LABEL_CONFIG,
    LABEL_RANK,
    LABEL_RAY,
    NCCL_ENV_FILE,
    SMOKE_CONTAINER,
)
from .vllm_argv import CACHE, models_mount

# Until a container that does nothing must have ended.
SMOKE_SECONDS = 300


@dataclass(frozen=True)
class HostPaths:
    """What the node gives to the container: the weights (read-only), the caches, and mounts of the user's own."""

    models: str
    cache: str
    extra_mounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One rank.

    Attributes:
        argv: The argument list of `docker run`.
        environment: The engine's environment.
        config_hash: A short hash of all that decides the launch.
        waits: Where somebody must listen before the container can start, as host, address and port.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    config_hash: str
    waits: tuple[tuple[str, str, int], ...] = ()


def engine_environment(profile: Mapping[str, Any], commands: Commands) -> dict[str, str]:
    """The engine's environment: the node-local caches, what the executor wants, then what the profile says."""
    caches = {"HOME": CACHE, "VLLM_CACHE_ROOT": f"{CACHE}/vllm", "TRITON_CACHE_DIR": f"{CACHE}/triton"}
    own = {name: str(value) for name, value in profile.get("engine_env", {}).items()}
    return {**caches, **commands.environment, **own}


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


def render(
    profile: Mapping[str, Any],
    intent: Intent,
    paths: HostPaths,
    nccl: Mapping[str, str],
    image: str,
    api_key: str = "",
) -> Launch:
    """The launch of one rank; `nccl` is that node's NCCL environment, `image` the image ID to run.

    Of the API's key only a hash has a part in the configuration's: another key is another configuration.
    """
    commands = commands_of(profile, intent)
    environment = engine_environment(profile, commands)
    weights_and_caches = (f"{paths.models}:{models_mount(profile)}:ro", f"{paths.cache}:{CACHE}")
    mounts = (*weights_and_caches, *commands.mounts, *paths.extra_mounts)
    options = [
        *container_options(profile.get("container", {})),
        *(part for mount in mounts for part in ("--volume", mount)),
    ]
    key = hashlib.sha256(api_key.encode()).hexdigest() if api_key and intent.is_head else ""
    config_hash = _hash([options, commands.argv, environment, dict(nccl), image, key])
    argv = (
        # Without --rm: how it ended is read before the supervisor takes it away.
        *("docker", "run", "--name", ENGINE_CONTAINER, "--network", "host", "--log-driver", "none"),
        *("--security-opt", "no-new-privileges", "--env-file", NCCL_ENV_FILE, "--env-file", ENGINE_ENV_FILE),
        *(("--env-file", API_ENV_FILE) if intent.is_head else ()),
        *("--label", f"{LABEL_CONFIG}={config_hash}", "--label", f"{LABEL_RANK}={intent.rank}"),
        *_ray_label(intent),
        *options,
        image,
        *commands.argv,
    )
    return Launch(argv, environment, config_hash, commands.waits)


def _ray_label(intent: Intent) -> list[str]:
    """Where the Ray of this container is met, for those who look at it from outside."""
    return ["--label", f"{LABEL_RAY}={intent.head_address}:{intent.master_port}"] if intent.executor == "ray" else []


def smoke(profile: Mapping[str, Any], paths: HostPaths, image: str) -> tuple[str, ...]:
    """A container with all that the engine's has of the machine, and nothing to do in it but to look at the GPU."""
    program = ("nvidia-smi", "-L") if profile["accelerator"] == "cuda" else ("true",)
    return (
        *("timeout", "--kill-after=10", str(SMOKE_SECONDS)),
        *("docker", "run", "--rm", "--pull", "never", "--name", SMOKE_CONTAINER),
        *("--network", "host", "--log-driver", "none"),
        *("--security-opt", "no-new-privileges", *container_options(profile.get("container", {}))),
        *(part for mount in paths.extra_mounts for part in ("--volume", mount)),
        *("--entrypoint", program[0], image, *program[1:]),
    )


def deployment(profile: Mapping[str, Any], hosts: Sequence[str], image: str) -> str:
    """A short hash of what all ranks must agree on: a rank that was set up for another one would never meet them."""
    return _hash([profile, list(hosts), image])


def _hash(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
