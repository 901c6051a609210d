"""What one node is meant to be: its place in the cluster, its rails, its share of the work.

An intent is made on the controller from the inventory and the profile. It is plain data, so that the node keeps a copy
beside its engine and its own start-up check compares the same things as the controller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .memory_need import MemoryNeed, from_data


@dataclass(frozen=True)
class RailEnd:
    """One node's end of one rail: `address` is plain, `cidr` has the mask, `mtu` is in bytes."""

    name: str
    netdev: str
    address: str
    cidr: str
    mtu: int


@dataclass(frozen=True)
class CheckpointNeed:
    """What the checkpoint must be for the profile's plan to hold.

    `model` has the keys of a config.json with the engine's overrides laid over it, empty where the profile states none;
    `overrides` are laid over what is read. `prefixes` are beginnings of tensor names that must be in the index, with
    what needs them.
    """

    model: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)


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
    checkpoint: CheckpointNeed = field(default_factory=CheckpointNeed)
    # True when the run may drop the page cache and drain the swap of the node before the launch.
    free_memory: bool = False

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
                "memory": from_data(data["memory"]),
                "checkpoint": CheckpointNeed(**data["checkpoint"]),
            }
        )
