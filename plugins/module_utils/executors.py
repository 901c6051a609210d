"""How the ranks are started and find each other: vLLM's own executor, Ray, or llama.cpp's RPC.

Each is one function from profile and intent to the commands of one rank, so that the unit, the doctor and the
documentation show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .intent import Intent
from .names import LIBRARY
from .ray_plan import FOLDER, NEXT, PORTS, RayPlan
from .stages import LoadStage, limit_of
from .vllm_argv import flags, model_path, serve_argv

# Bytes of Ray's object store: the smallest that it accepts is 75 MiB, and vLLM passes no tensors through it.
RAY_OBJECT_STORE = 134_217_728
# Bytes of Ray's processes and of what watches them, proportional share (PSS) of an idle Ray 2.60 with the flags below,
# grpc in the image: on the head 42 for Ray's store, 73 and 52 for its servers, on every node 17 for the raylet, 121 for
# its two agents and 11 for ours.
RAY_HEAD, RAY_WORKER = 316 * 1024**2, 150 * 1024**2
# Ray's monitor counts the memory of the whole node and kills the loader at 95 %, although the load then succeeds.
RAY_ENVIRONMENT = {"RAY_memory_monitor_refresh_ms": "0", "RAY_memory_usage_threshold": "0.99"}


@dataclass(frozen=True)
class Commands:
    """The commands of one rank.

    Attributes:
        container: What the container runs.
        serve: What that starts inside of it once all ranks are there; empty where the container itself serves.
        environment: What the executor wants in the environment.
        mounts: What the container needs of ours besides weights and caches.
        waits: Where somebody must listen before the container can start, as host, address and port.
    """

    container: list[str]
    serve: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    waits: tuple[tuple[str, str, int], ...] = ()

    @property
    def argv(self) -> list[str]:
        """The whole command line of the container."""
        return [*self.container, NEXT, *self.serve] if self.serve else self.container


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
    """A trimmed Ray in every container, and one `vllm serve` on the head once all have registered.

    Ray registers the LAN address when it is told none.
    """
    ranks = list(intent.socket_peers.items())
    ranks.insert(intent.rank, (intent.host, intent.socket_address))
    # All containers start at once, so half of what the stage has is for Ray, and the rest for the engine's own start.
    seconds = int(limit_of(LoadStage.CONTAINER, profile["serve"].get("stage_minutes", {})) * 30)
    plan = RayPlan(intent.rank, dict(ranks), intent.master_port, seconds, _ray_start(intent))
    program = ["python3", LIBRARY, "ray", *plan.as_arguments()]
    serve = serve_argv(profile, intent, {"distributed-executor-backend": "ray"}) if intent.is_head else []
    waits = () if intent.is_head else ((intent.head, intent.head_address, plan.watched[intent.head][1]),)
    return Commands(program, serve, RAY_ENVIRONMENT, (f"{LIBRARY}:{LIBRARY}:ro",), waits)


def _ray_start(intent: Intent) -> list[str]:
    """How Ray is started on a node.

    --no-monitor turns off the autoscaler, which only a head has. There is no --block: it keeps a process of 98 MiB
    alive to watch the others, which ours does with 11.
    """
    common = {
        "object-store-memory": RAY_OBJECT_STORE,
        "object-spilling-directory": "/var/tmp/ray-spill",
        "num-cpus": 1,
        "num-gpus": 1,
        **{name: intent.master_port + distance for name, distance in PORTS.items()},
        "include-log-monitor": "false",
    }
    if intent.is_head:
        place = {"node-ip-address": intent.socket_address, "port": intent.master_port, "include-dashboard": "false"}
        start = ["--head", *flags({**place, **common}), "--no-monitor", "--temp-dir", FOLDER]
    else:
        meeting = f"{intent.head_address}:{intent.master_port}"
        start = flags({"node-ip-address": intent.socket_address, "address": meeting, **common})
    return ["ray", "start", *start, "--disable-usage-stats"]


def _llamacpp(profile: Mapping[str, Any], intent: Intent) -> Commands:
    """llama.cpp: a server of tensors on every worker, and the head that sends each its layers.

    The head asks every server at its start, so all must be there. Its counter of tokens is off unless asked for.
    """
    if not intent.is_head:
        return Commands(["ggml-rpc-server", "--host", intent.socket_address, "--port", str(intent.master_port)])
    workers = tuple((host, address, intent.master_port) for host, address in intent.socket_peers.items())
    ours = {
        "model": f"{model_path(profile)}/{profile['weights']['file']}",
        "alias": profile["serve"]["name"],
        "host": intent.api_host,
        "port": intent.api_port,
        "rpc": ",".join(f"{address}:{port}" for _, address, port in workers),
        "metrics": True,
    }
    return Commands(["llama-server", *flags({**ours, **profile.get("engine_args", {})})], waits=workers)


EXECUTORS: dict[str, Callable[[Mapping[str, Any], Intent], Commands]] = {"mp": _mp, "ray": _ray, "llamacpp": _llamacpp}
