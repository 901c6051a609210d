"""What one node is meant to be: its place in the cluster, its rails, its share of the work.

An intent is made on the controller from the inventory and the profile. It is plain data, so that the node keeps a copy
beside its engine and its own start-up check compares the same things as the controller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class RailEnd:
    """One node's end of one rail: `address` is plain, `cidr` has the mask, `mtu` is in bytes."""

    name: str
    netdev: str
    address: str
    cidr: str
    mtu: int


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that one rank takes, by what takes them, and what must be left for the system."""

    weights: int
    kv_cache: int
    runtime: int
    floor: int
    # Share of MemTotal that the engine's own boot guard wants to find free; 0 means that it does not ask.
    utilization: float = 0.0

    @property
    def total(self) -> int:
        """Bytes that must be available before the launch."""
        return self.weights + self.kv_cache + self.runtime + self.floor


@dataclass(frozen=True)
class Intent:
    """One node's part in the cluster."""

    host: str
    rank: int
    world_size: int
    management: str
    head: str
    head_address: str
    rails: tuple[RailEnd, ...]
    # Addresses of the other nodes on each rail, by host, in the order of the rails.
    peers: Mapping[str, tuple[str, ...]]
    accelerator: str
    memory: MemoryNeed
    weights_path: str
    # True when the controller copies the checkpoint to the node, False when it must be there already.
    weights_pushed: bool
    image: str
    # The image ID that every node must have; empty when the inventory names none.
    image_id: str
    api_host: str
    api_port: int
    master_port: int
    daemon_config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_head(self) -> bool:
        """Rank 0 answers the API and is met by all others."""
        return self.rank == 0

    def as_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Intent:
        """The intent that `as_data` wrote. Raises TypeError when the data are of another version."""
        return cls(
            **{
                **data,
                "rails": tuple(RailEnd(**rail) for rail in data["rails"]),
                "peers": {host: tuple(addresses) for host, addresses in data["peers"].items()},
                "memory": MemoryNeed(**data["memory"]),
            }
        )
