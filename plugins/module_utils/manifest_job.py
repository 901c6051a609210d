"""Hashes a checkpoint and writes its manifest: python3 -m sparkwright.manifest_job DIRECTORY RESULT.

It runs as a unit of its own on the head, beside other work. This module reads files, and writes the manifest.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .manifest import due, dump_manifest, parse_manifest, renewed
from .origin import ORIGIN_NAME, parse_origin
from .recorded import write_atomically

# Bytes. hashlib lets other threads run while it works on a block of this size.
BLOCK = 8 * 1024**2
# Threads. Four of a GB10's 20 cores hash as fast as its NVMe reads.
WORKERS = 4
# What an engine reads of a checkpoint; notes and pictures beside it may differ from node to node.
SUFFIXES = (".safetensors", ".gguf", ".bin", ".json", ".model", ".tiktoken", ".txt", ".jinja", ".py")


def file_stats(path: Path) -> dict[str, tuple[int, int]]:
    """{file: (bytes, time of change in ns)} of all files directly in a directory that an engine may read."""
    files = [entry for entry in path.iterdir() if entry.suffix in SUFFIXES and entry.is_file()]
    found = {entry.name: entry.stat() for entry in files if not entry.name.startswith(".")}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in sorted(found.items())}


def hash_files(path: Path, names: Iterable[str], workers: int = WORKERS) -> dict[str, str]:
    """{file: SHA-256}, several at once."""
    wanted = list(names)
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(wanted, pool.map(lambda name: hash_file(path / name), wanted), strict=True))


def hash_file(path: Path) -> str:
    """The SHA-256 of one file, whose pages are given back: they would push others out of the node's one memory."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            digest.update(block)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()


def read_text(path: Path) -> str:
    """A text file; an empty text when there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def make(path: Path, result: Path) -> None:
    """Hash what is due, and write the manifest in one step."""
    known, stats = parse_manifest(read_text(result)), file_stats(path)
    names = due(known, str(path), stats)
    hashes: Mapping[str, str] = hash_files(path, names)
    if {name: stat for name, stat in file_stats(path).items() if name in names} != {
        name: stats[name] for name in names
    }:
        raise RuntimeError(f"{path} was changed while it was hashed")
    published = parse_origin(read_text(path / ORIGIN_NAME))["files"]
    manifest = renewed(known, str(path), stats, hashes, published)
    write_atomically(result, dump_manifest(manifest).encode(), 0o644)


if __name__ == "__main__":
    make(*map(Path, sys.argv[1:]))
