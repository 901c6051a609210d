"""Reads a directory that a checkpoint is assembled from: its index, and the header of every shard."""

from __future__ import annotations

import json
from pathlib import Path

from .assembly import Part, PartShard
from .checkpoint_reader import read_head
from .origin import ORIGIN_NAME, parse_origin
from .safetensors_index import INDEX_NAME, SHARD_SUFFIX, parse_header, parse_index


def read_part(path: str) -> Part:
    """A directory. Without an index its shards themselves say what is in them.

    Raises OSError, and ValueError for an index that is none.
    """
    folder = Path(path)
    entries = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    shards = {name: _shard(folder / name) for name in entries if name.endswith(SHARD_SUFFIX)}
    text = _text(folder / INDEX_NAME)
    if text:
        index = {name: shard for shard, names in parse_index(text).items() for name in names}
    else:
        index = {name: shard for shard, found in shards.items() for name in found.tensors}
    return Part(
        path=path,
        index=index,
        shards=shards,
        files=[name for name in entries if name not in shards and name != INDEX_NAME],
        metadata=dict(json.loads(text).get("metadata") or {}) if text else {},
        origin=parse_origin(_text(folder / ORIGIN_NAME)),
    )


def _shard(path: Path) -> PartShard:
    first, text, size = read_head(path)
    header = parse_header(first, text)
    if header is None:
        return PartShard(size, None, {})
    return PartShard(size, header.file_bytes, {name: length for name, _, length in header.tensors})


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
