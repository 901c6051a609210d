"""Reads a checkpoint directory: its index, its configuration, and the header of every shard, but no tensor."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .bounded import TimedOut, bounded
from .facts import Shard, Weights
from .machine import Machine
from .model_shape import KEYS
from .names import PARTIAL
from .origin import ORIGIN_NAME, parse_origin
from .safetensors_index import (
    INDEX_NAME,
    LENGTH_BYTES,
    SHARD_SUFFIX,
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


def read_bounded(machine: Machine, path: str, seconds: float = SECONDS, parts: Sequence[str] = ()) -> Weights:
    """A checkpoint directory, within a bounded time even on a dead mount; `parts` are those that it is made from."""
    try:
        return bounded(lambda: read_weights(machine, path, parts), seconds)
    except TimedOut:
        return no_weights(path, f"it did not answer within {seconds} s")
    except RuntimeError as error:
        return no_weights(path, f"it cannot be read: {error}")


def read_weights(machine: Machine, path: str, parts: Sequence[str] = ()) -> Weights:
    """A checkpoint directory, however long that takes."""
    folder = _name(path)
    absent: Index = "is not there"
    index = machine.look(f"{folder}/{INDEX_NAME}", _index, absent)
    free, used = _free(machine, folder), _used(machine, [path, *parts])
    gguf = [file for file in machine.names(folder) if file.endswith(".gguf")]
    if index == absent and gguf:
        return {**_gguf_weights(machine, path, gguf), "disk_free": free, "disk_used": used}
    if isinstance(index, str):
        return {**no_weights(path, f"{INDEX_NAME} {index}"), "disk_free": free, "disk_used": used}
    config = machine.look(f"{folder}/config.json", Path.read_bytes, b"")
    measures = Measures()
    files = [file for file in machine.names(folder) if file.endswith(SHARD_SUFFIX)]
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
        "sources": parse_origin(machine.text(f"{folder}/{ORIGIN_NAME}"))["sources"],
        "disk_free": free,
        "disk_used": used,
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
        "sources": [],
        "disk_free": None,
        "disk_used": 0,
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
    first, text, size = machine.look(name, read_head, (b"", b"", 0))
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


def read_head(path: Path) -> tuple[bytes, bytes, int]:
    """The length of a shard's header as it is written, the header, and the bytes of the file."""
    with path.open("rb") as file:
        first = file.read(LENGTH_BYTES)
        return first, file.read(header_length(first) or 0), os.fstat(file.fileno()).st_size


def _name(path: str) -> str:
    return str(Path(path).absolute()).lstrip("/")


def _free(machine: Machine, folder: str) -> int | None:
    """Bytes that are left where the directory is, or will be made."""
    places = (str(place).strip("/.") for place in (Path(folder), *Path(folder).parents))
    found = (machine.look(place, _left, None) for place in places)
    return next((free for free in found if free is not None), None)


def _left(folder: Path) -> int | None:
    return shutil.disk_usage(folder).free


def _used(machine: Machine, paths: Sequence[str]) -> int:
    """The bytes of all files in these directories, unfinished ones among them; a hard link takes nothing."""
    nothing: dict[tuple[int, int], int] = {}
    trees = [machine.look(f"{_name(path)}{suffix}", _sizes, nothing) for path in paths for suffix in ("", PARTIAL)]
    return sum({file: size for tree in trees for file, size in tree.items()}.values())


def _sizes(folder: Path) -> dict[tuple[int, int], int]:
    stats = [entry.stat() for entry in folder.rglob("*") if entry.is_file()]
    return {(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}


def _keys(config: bytes) -> dict[str, Any]:
    """The keys that decide about the cache; a model that also sees keeps them in a part of their own."""
    try:
        data = json.loads(config)
        found = data.get("text_config", data)
        return {key: found[key] for key in KEYS if key in found}
    except (ValueError, AttributeError, TypeError):
        return {}
