"""What one node is meant to be: its place in the cluster, its rails, its share of the work.

An intent is made on the controller from the inventory and the profile. It is plain data, so that the node keeps a copy
beside its engine and its own start-up check compares the same things as the controller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

from .tuning import TuningWish


@dataclass(frozen=True)
class RailEnd:
    """One node's end of one rail: `address` is plain, `cidr` has the mask, `mtu` is in bytes.

    `netdev` is empty as long as nobody has found the interface; a rail with one in the inventory has it from the start.
    `peers` are the others' addresses at the far ends, by host: all nodes on a switch, one neighbour in a ring.
    """

    name: str
    netdev: str
    address: str
    cidr: str
    mtu: int
    peers: Mapping[str, str] = field(default_factory=dict)

    @property
    def subnet(self) -> IPv4Network:
        """The subnet that the ends of this rail, or of this link of a ring, share."""
        return IPv4Interface(self.cidr).network


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
    """One node's part in the cluster.

    `head_address` is where the others meet the head. `socket_netdev` and `socket_address` are the node's own end of
    everything that speaks TCP (rendezvous, Gloo, NCCL's bootstrap): the first rail, but in a ring, where not every node
    is a neighbour, the interface by which the node is managed. `cage` is the one that must carry the rails, or empty.
    """

    host: str
    rank: int
    world_size: int
    management: str
    head: str
    head_address: str
    topology: str
    rails: tuple[RailEnd, ...]
    socket_netdev: str
    socket_address: str
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
    cage: str = ""
    # The profile's own NCCL variables, which come after ours.
    nccl_env: Mapping[str, str] = field(default_factory=dict)
    daemon_config: Mapping[str, Any] = field(default_factory=dict)
    tuning: TuningWish = field(default_factory=TuningWish)

    @property
    def is_head(self) -> bool:
        """Rank 0 answers the API and is met by all others."""
        return self.rank == 0

    @property
    def rails_found(self) -> bool:
        """True when every rail, and what speaks TCP, has its interface."""
        return bool(self.socket_netdev) and all(rail.netdev for rail in self.rails)

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
                "memory": MemoryNeed(**data["memory"]),
                "tuning": TuningWish.from_data(data["tuning"]),
            }
        )
