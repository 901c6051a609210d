"""A safetensors checkpoint: what its index promises, and what the shards on disk say of themselves.

The header of a shard gives its exact size, so a truncated copy is found without reading a tensor.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .facts import Weights

INDEX_NAME = "model.safetensors.index.json"
SHARD_SUFFIX = ".safetensors"

# A header starts with its own length, a little-endian 64-bit number (safetensors format, README).
LENGTH_BYTES = 8
# The format's own limit for a header, in bytes (safetensors format, MAX_HEADER_SIZE).
MAX_HEADER_BYTES = 100_000_000


# What vLLM keeps whole on every rank (deepseek_v2.py, deepseek_mtp.py, llama.py): norms, the projections into MLA's
# compressed vectors, the router, the sparse indexer, and the layer that joins a draft's two inputs. All else is split.
REPEATED = re.compile(
    r"norm\.|\.(q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj|eh_proj|indexer|indexers_proj|rotary_emb)\."
    r"|\.mlp\.gate\.|\.block_sparse_moe\.gate\."
)
# What stands before the number of a layer, and in the name of every tensor of an expert: nearly all of a checkpoint's
# quarter of a million tensors are of experts, so these are told apart without the pattern above.
LAYERS, EXPERTS = "layers.", ".experts."
# Bytes of a scale that is one number, which cannot be split.
SCALAR = 4


@dataclass(frozen=True)
class Header:
    """What a shard's header says.

    Attributes:
        file_bytes: The size that the file must have, in bytes.
        tensors: Name, type and bytes of each tensor, in the order of the header.
    """

    file_bytes: int
    tensors: Sequence[tuple[str, str, int]]


@dataclass
class Measures:
    """The bytes of a checkpoint's tensors, added up from one shard after the other."""

    prefixes: dict[str, int] = field(default_factory=dict)
    dtypes: dict[str, int] = field(default_factory=dict)
    split: int = 0
    repeated: int = 0

    def add(self, header: Header, wanted: set[str]) -> int:
        """Add those of a shard's tensors that the index takes from it, and return how many there are.

        An overlay leaves some tensors of a base shard unused.
        """
        prefixes, dtypes = defaultdict(int, self.prefixes), defaultdict(int, self.dtypes)
        prefix, found = None, 0
        for name, dtype, size in header.tensors:
            if name not in wanted:
                continue
            found += 1
            # Neighbours mostly belong to one layer.
            if prefix is None or not name.startswith(prefix):
                prefix = prefix_of(name)
            prefixes[prefix] += size
            dtypes[dtype] += size
            if size <= SCALAR or (EXPERTS not in name and REPEATED.search(name)):
                self.repeated += size
        self.prefixes, self.dtypes = dict(prefixes), dict(dtypes)
        self.split = sum(dtypes.values()) - self.repeated
        return found


def prefix_of(name: str) -> str:
    """The beginning of a tensor's name that says where it belongs: its layer, or else all but the last word."""
    layers = name.find(LAYERS)
    end = name.find(".", layers + len(LAYERS)) if layers >= 0 else name.rfind(".")
    return name[: end + 1] if end >= 0 else name


def parse_index(text: str) -> dict[str, set[str]]:
    """{shard: its tensors} of an index. Raises ValueError for anything that is none."""
    data = json.loads(text)
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError("it has no weight_map")
    shards: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        shards.setdefault(str(shard), set()).add(name)
    return shards


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
        entries.pop("__metadata__", None)
        places = [(name, str(entry["dtype"]), *entry["data_offsets"]) for name, entry in entries.items()]
        tensors = [(name, dtype, end - start) for name, dtype, start, end in places]
        last = max([end for _, _, _, end in places], default=0)
        return Header(LENGTH_BYTES + length + last, tensors)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


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


def surplus(weights: Weights) -> list[str]:
    """The shards in the directory that the index does not name; the engine loads them all the same."""
    return sorted(set(weights["shards"]) - set(weights["tensors"]))


def complete(weights: Weights) -> bool:
    """True when the index could be read and every shard it names is there and whole."""
    return weights["error"] is None and not missing(weights) and not damaged(weights)


def total_bytes(weights: Weights) -> int:
    """The bytes of all shards that the index names and the directory has."""
    return sum(shard["size"] for name, shard in weights["shards"].items() if name in weights["tensors"])


def fingerprint(weights: Weights) -> str:
    """A short hash over shards, their headers and sizes and the model's configuration, equal for equal checkpoints.

    It says that the same tensors lie at the same places of files of the same sizes, not that every byte is equal.
    """
    shards = sorted((name, shard["size"], shard["header"]) for name, shard in weights["shards"].items())
    return hashlib.sha256(json.dumps([weights["config_sha256"], shards]).encode()).hexdigest()[:12]
