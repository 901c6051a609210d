"""What one rank takes of its node's memory, part by part, and what that makes on a node as it is.

CPU and GPU of a GB10 share one memory, so weights, cache and Python come out of the same figure: MemAvailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from .capacity import KvLayout
from .facts import NodeFacts, Weights
from .meminfo import GIB
from .safetensors_index import complete

# Bytes that a node's NFS server takes besides its threads while others load from it: the send buffers of its
# connections, (threads + 3) x 1 MiB each in the kernel (sunrpc, svcsock.c), with 8 threads and 48 connections.
NFS_SERVER = GIB // 2


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that one rank takes, by what takes them, and what must be left for the system.

    Attributes:
        weights: The rank's share of the checkpoint and of a draft, as the profile states it.
        kv_cache: The size that the engine is told; 0 lets it take what `utilization` leaves.
        graphs: Captured CUDA graphs.
        activations: What a forward pass of the largest batch takes.
        runtime: CUDA context, NCCL and the Python processes.
        floor: What must stay free for the system.
        services: What else this project runs on the node, such as Ray.
        utilization: Share of MemTotal that the engine's boot guard wants to find free; 0 means that it does not ask.
        block: Bytes and tokens of one block of the cache; None where they are not known.
        context: Tokens of a request of full length, 0 where not known.
        ways: How many ranks share what tensor parallelism splits, TP x PP.
        pipeline: How many stages share the layers, PP.
        draft: Part of `weights` that is a draft in a directory of its own.
    """

    weights: int
    kv_cache: int
    graphs: int
    activations: int
    runtime: int
    floor: int
    services: int = 0
    utilization: float = 0.0
    block: KvLayout | None = None
    context: int = 0
    ways: int = 1
    pipeline: int = 1
    draft: int = 0

    @property
    def fixed(self) -> int:
        """Bytes that the engine takes whatever the size of its cache is."""
        return self.weights + self.graphs + self.activations + self.runtime

    @property
    def sizes_itself(self) -> bool:
        """Whether the engine takes all that its share of the memory leaves."""
        return not self.kv_cache and self.utilization > 0

    def cache(self, total: int) -> int:
        """Bytes of KV cache on a node with `total` bytes of memory."""
        return max(0, self.asked(total) - self.fixed) if self.sizes_itself else self.kv_cache

    def asked(self, total: int) -> int:
        """Bytes that the boot guard wants to find free on a node with `total` bytes, rounded up as in the engine."""
        return ceil(self.utilization * total)

    def parts(self, total: int) -> dict[str, int]:
        """What is needed on a node with `total` bytes, by what needs it, without what takes nothing."""
        parts = {
            "weights": self.weights,
            "KV cache": self.cache(total),
            "graphs": self.graphs,
            "activations": self.activations,
            "runtime": self.runtime,
            "services": self.services,
            "floor": self.floor,
        }
        return {name: size for name, size in parts.items() if size}

    def required(self, total: int) -> int:
        """Bytes that must be available before the launch on a node with `total` bytes."""
        return sum(self.parts(total).values())

    def as_measured(self, weights: Weights) -> MemoryNeed:
        """The same with the weights of a checkpoint that was read instead of those that the profile states."""
        share = -(-weights["split"] // self.ways) + -(-weights["repeated"] // self.pipeline)
        return replace(self, weights=share + self.draft)


def need_of(need: MemoryNeed, facts: NodeFacts) -> MemoryNeed:
    """What the rank takes on a node as it is: with its own checkpoint, once it is whole, and what else runs there."""
    weights, processes = facts.get("weights"), facts.get("processes")
    if weights and complete(weights):
        need = need.as_measured(weights)
    if processes and processes["nfs_threads"]:
        need = replace(need, services=need.services + NFS_SERVER)
    return need


def from_data(data: Mapping[str, object]) -> MemoryNeed:
    """The need that `dataclasses.asdict` wrote. Raises TypeError when the data are of another version."""
    block = data.get("block")
    # The values of a mapping read from JSON have no types that could be held against the fields.
    return MemoryNeed(**{**data, "block": KvLayout(**block) if isinstance(block, Mapping) else None})  # type: ignore[arg-type]
