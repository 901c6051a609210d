"""A safetensors checkpoint: what its index promises, and what the shards on disk say of themselves.

The header of a shard gives its exact size, so a truncated copy is found without reading a tensor.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any

from .facts import Weights

INDEX_NAME = "model.safetensors.index.json"

# A header starts with its own length, a little-endian 64-bit number (safetensors format, README).
LENGTH_BYTES = 8
# The format's own limit for a header, in bytes (safetensors format, MAX_HEADER_SIZE).
MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class Header:
    """What a shard's header says: the size that the file must have, in bytes, and the number of its tensors."""

    file_bytes: int
    tensors: int


def parse_index(text: str) -> dict[str, int]:
    """The number of tensors in each shard that an index names. Raises ValueError for anything that is no index."""
    data = json.loads(text)
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError("it has no weight_map")
    return dict(Counter(str(shard) for shard in weight_map.values()))


def header_length(first: bytes) -> int | None:
    """The length of the JSON header from a file's first 8 bytes, or None when it cannot be one."""
    if len(first) != LENGTH_BYTES:
        return None
    (length,) = struct.unpack("<Q", first)
    return int(length) if 2 <= length <= MAX_HEADER_BYTES else None


def parse_header(first: bytes, header: bytes) -> Header | None:
    """Read a shard's header from its first 8 bytes and the JSON behind them; None when it is damaged."""
    length = header_length(first)
    if length is None or len(header) != length:
        return None
    try:
        entries: dict[str, Any] = json.loads(header)
        ends = [int(entry["data_offsets"][1]) for name, entry in entries.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    return Header(LENGTH_BYTES + length + max(ends, default=0), len(ends))


def missing(weights: Weights) -> list[str]:
    """The shards that the index names and the directory lacks."""
    return sorted(set(weights["tensors"]) - set(weights["shards"]))


def damaged(weights: Weights) -> list[str]:
    """The shards with an unreadable header, another size than the header's, or fewer tensors than the index names.

    Surplus tensors are no damage: the index of an overlay takes only some of a base shard.
    """
    return sorted(
        name
        for name, shard in weights["shards"].items()
        if name in weights["tensors"]
        and (shard["size"] != shard["expected"] or shard["tensors"] < weights["tensors"][name])
    )


def complete(weights: Weights) -> bool:
    """True when the index could be read and every shard it names is there and whole."""
    return weights["error"] is None and not missing(weights) and not damaged(weights)


def total_bytes(weights: Weights) -> int:
    """The bytes of all shards that the index names and the directory has."""
    return sum(shard["size"] for name, shard in weights["shards"].items() if name in weights["tensors"])


def fingerprint(weights: Weights) -> str:
    """A short hash over shards, sizes and model configuration: equal checkpoints have equal fingerprints.

    It says that files of the same names and sizes are there, not that every byte is equal.
    """
    facts = [weights["config_sha256"], sorted((n, s["size"], s["tensors"]) for n, s in weights["shards"].items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
