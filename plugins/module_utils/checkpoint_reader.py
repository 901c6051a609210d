"""Reads a checkpoint directory: its index, its configuration, and the header of every shard, but no tensor."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from .bounded import TimedOut, bounded
from .facts import Shard, Weights
from .model_shape import KEYS
from .safetensors_index import (
    INDEX_NAME,
    LENGTH_BYTES,
    Measures,
    header_length,
    parse_header,
    parse_index,
    prefix_of,
)

# Seconds for a whole checkpoint directory; a dead NFS mount never answers.
SECONDS = 30


def read_bounded(path: str, seconds: float = SECONDS) -> Weights:
    """A checkpoint directory, within a bounded time even on a dead mount."""
    try:
        return bounded(lambda: read_weights(Path(path)), seconds)
    except TimedOut:
        return no_weights(path, f"it did not answer within {seconds} s")
    except RuntimeError as error:
        return no_weights(path, f"it cannot be read: {error}")


def read_weights(path: Path) -> Weights:
    """A checkpoint directory, however long that takes."""
    try:
        index = parse_index((path / INDEX_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return no_weights(str(path), f"{INDEX_NAME} is not there")
    except (OSError, ValueError) as error:
        return no_weights(str(path), f"{INDEX_NAME} cannot be read: {error}")
    config = _config(path / "config.json")
    measures = Measures()
    shards = {
        file.name: _shard(file, index.get(file.name, set()), measures) for file in sorted(path.glob("*.safetensors"))
    }
    # What the index names is no less promised while its shard is missing.
    promised = {prefix_of(name): 0 for shard in index.keys() - shards.keys() for name in index[shard]}
    return {
        "path": str(path),
        "error": None,
        "tensors": {shard: len(names) for shard, names in index.items()},
        "shards": shards,
        "prefixes": {**promised, **measures.prefixes},
        "dtypes": measures.dtypes,
        "split": measures.split,
        "repeated": measures.repeated,
        "config": _keys(config),
        "config_sha256": hashlib.sha256(config).hexdigest() if config else None,
        "disk_free": shutil.disk_usage(path).free,
    }


def no_weights(path: str, error: str) -> Weights:
    """A directory that holds no checkpoint, and why."""
    return {
        "path": path,
        "error": error,
        "tensors": {},
        "shards": {},
        "prefixes": {},
        "dtypes": {},
        "split": 0,
        "repeated": 0,
        "config": {},
        "config_sha256": None,
        "disk_free": 0,
    }


def _shard(path: Path, wanted: set[str], measures: Measures) -> Shard:
    """A shard that cannot be opened, such as a link to nowhere, comes back as an empty one without a header."""
    try:
        with path.open("rb") as file:
            first = file.read(LENGTH_BYTES)
            text = file.read(header_length(first) or 0)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return {"size": 0, "expected": None, "tensors": 0, "header": ""}
    header = parse_header(first, text)
    if header is None:
        return {"size": size, "expected": None, "tensors": 0, "header": ""}
    digest = hashlib.sha256(text).hexdigest()[:16]
    return {
        "size": size,
        "expected": header.file_bytes,
        "tensors": measures.add(header, wanted),
        "header": digest,
    }


def _config(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _keys(config: bytes) -> dict[str, Any]:
    """The keys that decide about the cache; a model that also sees keeps them in a part of their own."""
    try:
        data = json.loads(config)
        found = data.get("text_config", data)
        return {key: found[key] for key in KEYS if key in found}
    except (ValueError, AttributeError, TypeError):
        return {}
