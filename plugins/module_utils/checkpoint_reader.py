"""Reads a checkpoint directory: its index, its configuration, and the header of every shard, but no tensor."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from .bounded import TimedOut, bounded
from .facts import Shard, Weights
from .machine import Machine
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

# The names of the tensors by shard, or why they cannot be read.
Index = dict[str, set[str]] | str

# The name of one file of a model in several, as llama.cpp writes it, and how each such file begins.
GGUF_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")
GGUF_MAGIC = b"GGUF"
# Bytes of a file of llama.cpp that tell it apart: the table of its tensors is among the first.
GGUF_HEAD = 1 << 20

# Seconds for a whole checkpoint directory; a dead NFS mount never answers.
SECONDS = 30


def read_bounded(machine: Machine, path: str, seconds: float = SECONDS) -> Weights:
    """A checkpoint directory, within a bounded time even on a dead mount."""
    try:
        return bounded(lambda: read_weights(machine, path), seconds)
    except TimedOut:
        return no_weights(path, f"it did not answer within {seconds} s")
    except RuntimeError as error:
        return no_weights(path, f"it cannot be read: {error}")


def read_weights(machine: Machine, path: str) -> Weights:
    """A checkpoint directory, however long that takes."""
    folder = str(Path(path).absolute()).lstrip("/")
    absent: Index = "is not there"
    index = machine.look(f"{folder}/{INDEX_NAME}", _index, absent)
    gguf = [file for file in machine.names(folder) if file.endswith(".gguf")]
    if index == absent and gguf:
        return _gguf_weights(machine, path, gguf)
    if isinstance(index, str):
        return no_weights(path, f"{INDEX_NAME} {index}")
    config = machine.look(f"{folder}/config.json", Path.read_bytes, b"")
    measures = Measures()
    files = [file for file in machine.names(folder) if file.endswith(".safetensors")]
    shards = {file: _shard(machine, f"{folder}/{file}", index.get(file, set()), measures) for file in files}
    # What the index names is no less promised while its shard is missing.
    promised = {prefix_of(name): 0 for shard in index.keys() - shards.keys() for name in index[shard]}
    return {
        "path": path,
        "error": None,
        "tensors": {shard: len(names) for shard, names in index.items()},
        "shards": shards,
        "prefixes": {**promised, **measures.prefixes},
        "dtypes": measures.dtypes,
        "split": measures.split,
        "repeated": measures.repeated,
        "config": _keys(config),
        "config_sha256": hashlib.sha256(config).hexdigest() if config else None,
        "disk_free": machine.look(folder, _free, 0),
    }


def _gguf_weights(machine: Machine, path: str, files: list[str]) -> Weights:
    """A directory of llama.cpp's files: a name says how many there must be, and no header says how long one is."""
    folder = str(Path(path).absolute()).lstrip("/")
    named = {name for file in files for name in _gguf_set(file)}
    shards: dict[str, Shard] = {}
    for file in files:
        head, size = machine.look(f"{folder}/{file}", _gguf_head, (b"", 0))
        good = head.startswith(GGUF_MAGIC)
        digest = hashlib.sha256(head).hexdigest()[:16]
        shards[file] = {"size": size, "expected": size if good else None, "tensors": 1, "header": digest}
    found = no_weights(path, "")
    found["error"] = None
    found["tensors"] = dict.fromkeys(sorted(named), 1)
    found["shards"] = shards
    found["split"] = sum(shard["size"] for shard in shards.values())
    found["disk_free"] = machine.look(folder, _free, 0)
    return found


def _gguf_set(file: str) -> list[str]:
    """The names of all files of the model to which a file belongs."""
    part = GGUF_PART.fullmatch(file)
    if part is None:
        return [file]
    return [f"{part[1]}-{number:05d}-of-{part[2]}.gguf" for number in range(1, int(part[2]) + 1)]


def _gguf_head(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        return file.read(GGUF_HEAD), os.fstat(file.fileno()).st_size


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


def _index(path: Path) -> Index:
    """The index. Raises FileNotFoundError."""
    try:
        return parse_index(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"


def _shard(machine: Machine, name: str, wanted: set[str], measures: Measures) -> Shard:
    """A shard that cannot be opened, such as a link to nowhere, comes back as an empty one without a header."""
    first, text, size = machine.look(name, _head, (b"", b"", 0))
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


def _head(path: Path) -> tuple[bytes, bytes, int]:
    """The length of a shard's header as it is written, the header, and the bytes of the file."""
    with path.open("rb") as file:
        first = file.read(LENGTH_BYTES)
        return first, file.read(header_length(first) or 0), os.fstat(file.fileno()).st_size


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _keys(config: bytes) -> dict[str, Any]:
    """The keys that decide about the cache; a model that also sees keeps them in a part of their own."""
    try:
        data = json.loads(config)
        found = data.get("text_config", data)
        return {key: found[key] for key in KEYS if key in found}
    except (ValueError, AttributeError, TypeError):
        return {}
