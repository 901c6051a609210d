"""What one node is meant to be: its place in the cluster, its rails, its share of the work.

An intent is made on the controller from the inventory and the profile. It is plain data, so that the node keeps a copy
beside its engine and its own start-up check compares the same things as the controller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

from .image_need import ImageNeed
from .memory_need import MemoryNeed, from_data
from .share import ShareWish
from .tuning import TuningWish
from .update_wish import UpdateWish


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
class CheckpointNeed:
    """What the checkpoint must be for the profile's plan to hold.

    `model` has the keys of a config.json with the engine's overrides laid over it, empty where the profile states none;
    `overrides` are laid over what is read. `prefixes` are beginnings of tensor names that must be in the index, with
    what needs them. `sources` are the repositories with the revisions that it must have been made from, `parts` the
    directories beside it that it is made from, and `disk` the bytes that all of it takes.
    """

    model: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    disk: int = 0

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> CheckpointNeed:
        """The need from plain data."""
        return cls(**{**data, "sources": tuple(data.get("sources", ())), "parts": tuple(data.get("parts", ()))})


@dataclass(frozen=True)
class Intent:
    """One node's part in the cluster.

    `head_address` is where the others meet the head. `socket_netdev` and `socket_address` are the node's own end of
    everything that speaks TCP (rendezvous, Gloo, NCCL's bootstrap): the first rail, but in a ring, where not every node
    is a neighbour, the interface by which the node is managed. `socket_peers` are the others' addresses there, by host.
    `cage` is the one that must carry the rails, or empty.
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
    socket_peers: Mapping[str, str]
    accelerator: str
    memory: MemoryNeed
    weights_path: str
    # True when a run brings the checkpoint to the node, False when it must be there already.
    weights_pushed: bool
    image: str
    # The image ID that every node must have; empty when the inventory names none.
    image_id: str
    api_host: str
    api_port: int
    master_port: int
    # Where the head hears the ranks before and during a launch, see roll_call.py.
    roll_port: int = 0
    executor: str = "mp"
    cage: str = ""
    # The profile's own NCCL variables, which come after ours.
    nccl_env: Mapping[str, str] = field(default_factory=dict)
    daemon_config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: CheckpointNeed = field(default_factory=CheckpointNeed)
    # True when the run may drop the page cache and drain the swap of the node before the launch.
    free_memory: bool = False
    tuning: TuningWish = field(default_factory=TuningWish)
    updates: UpdateWish = field(default_factory=UpdateWish)
    image_need: ImageNeed = field(default_factory=ImageNeed)
    share: ShareWish = field(default_factory=ShareWish)

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
                "memory": from_data(data["memory"]),
                "image_need": ImageNeed.from_data(data["image_need"]),
                "checkpoint": CheckpointNeed.from_data(data["checkpoint"]),
                "tuning": TuningWish.from_data(data["tuning"]),
                "updates": UpdateWish.from_data(data["updates"]),
                "share": ShareWish.from_data(data["share"]),
            }
        )
