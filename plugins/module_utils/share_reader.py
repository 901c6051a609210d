"""Reads how the weights reach the node: mounts, exports, the NFS server, and what the directories hold.

Whatever may wait for a server that is gone is done in a process of its own, within a bounded time.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .bounded import TimedOut, bounded
from .facts import Export, Share, ShareMount
from .listeners import parse_listeners
from .machine import Machine
from .memory_reader import nfs_threads
from .mounts import Mounted, below, mount_at, mount_of, parse_mountinfo, unescape
from .origin import ORIGIN_NAME
from .share import COPY, NFS_PORT, TOOLS, ShareWish, unit_name

T = TypeVar("T")

# Seconds. A server on a rail answers within milliseconds.
ANSWER_SECONDS = 5
CONNECT_SECONDS = 3
# Seconds for the names and sizes of a checkpoint on the node's own disk.
LIST_SECONDS = 20

TOOL_FOLDERS = ("usr/sbin", "sbin", "usr/bin")
ETAB = "var/lib/nfs/etab"


@dataclass(frozen=True)
class ShareAsked:
    """What to look at: the directory of the weights, the server to reach, the folders to list, the caches."""

    path: str = ""
    server: str = ""
    folders: Sequence[str] = ()
    cache: str = ""


def read_share(machine: Machine, asked: ShareAsked) -> Share:
    """All of it; without a server nobody is asked to answer."""
    mounts = parse_mountinfo(machine.text("proc/self/mountinfo"))
    mount = mount_at(mounts, asked.path)
    served = mount is not None and mount.fstype.startswith("nfs")
    return {
        "container": bool(machine.word("run/systemd/container")),
        "kernel": [name for name in ("nfs", "nfsd") if _knows(machine, name)],
        "tools": [tool for tool in TOOLS if any(machine.tool(f"{folder}/{tool}") for folder in TOOL_FOLDERS)],
        "mount": _mount(machine, mount) if mount else None,
        "nested": below(mounts, asked.path) if asked.path else [],
        "answer": answer(asked.path) if served else "",
        "said": _said(machine, asked) if asked.server and not served else "",
        "reached": reaches(asked.server) if asked.server else None,
        "connections": _connections(machine),
        "threads": nfs_threads(machine.text("proc/fs/nfsd/threads")),
        "rdma": any(line.startswith("rdma") for line in machine.text("proc/fs/nfsd/portlist").splitlines()),
        "listens": _listens(machine),
        "exports": parse_etab(machine.text(ETAB)),
        "files": {} if served else _bounded_files(asked),
        "disk_free": 0 if served else free(asked.path),
        "cache_fstype": _fstype(mounts, asked.cache),
    }


def parse_etab(text: str) -> list[Export]:
    """What exportfs has told the server: a line for each directory and client."""
    rows = [re.fullmatch(r"(\S+)\t(\S+?)\((.*)\)", line.strip()) for line in text.splitlines()]
    return [
        {"path": unescape(row.group(1)), "client": row.group(2), "options": row.group(3).split(",")}
        for row in rows
        if row
    ]


def answer(path: str) -> str:
    """Why a mounted directory gives nothing; empty where it does."""
    try:
        return bounded(lambda: _ask(path), ANSWER_SECONDS)
    except TimedOut:
        return f"no answer within {ANSWER_SECONDS} s"
    except RuntimeError as error:
        return str(error)


def _ask(path: str) -> str:
    """What the client has kept of names and attributes would answer for a server that is gone; sizes are asked for."""
    try:
        os.statvfs(path)
        # A generator of pathlib asks only when something is taken from it.
        os.listdir(path)  # noqa: PTH208
    except OSError as error:
        return error.strerror or str(error)
    return ""


def reaches(server: str) -> bool:
    """Whether the NFS server takes a connection."""
    try:
        socket.create_connection((server, NFS_PORT), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def free(path: str) -> int:
    """Bytes that are free where the directory is, or would be made."""

    def look() -> int:
        there = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
        return shutil.disk_usage(there).free

    return _otherwise(look, 0) if path else 0


def list_files(path: str, folders: Sequence[str]) -> dict[str, list[int]]:
    """Size in bytes and time of change in seconds by name below `path`; of hidden ones only our own."""
    return {str(file.relative_to(path)): _measures(file) for folder in folders for file in _files(Path(path) / folder)}


def _files(folder: Path) -> Iterator[Path]:
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    for entry in entries:
        if entry.name.startswith(".") and entry.name != ORIGIN_NAME:
            continue
        if entry.is_dir():
            yield from _files(entry)
        elif entry.is_file():
            yield entry


def _measures(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_size, int(status.st_mtime)]


def _bounded_files(asked: ShareAsked) -> dict[str, list[int]]:
    return _otherwise(lambda: list_files(asked.path, asked.folders), {}) if asked.path else {}


def _otherwise(work: Callable[[], T], otherwise: T) -> T:
    """What a look at the disk gives, or something else where it fails or is late."""
    try:
        return bounded(work, LIST_SECONDS)
    except (TimedOut, RuntimeError):
        return otherwise


def _knows(machine: Machine, name: str) -> bool:
    """Whether the kernel has a file system or has a module for it; nothing is loaded."""
    known = {line.split()[-1] for line in machine.text("proc/filesystems").splitlines() if line.split()}
    if name in known:
        return True
    return machine.run(["modprobe", "--dry-run", "--quiet", name]).returncode == 0


def _mount(machine: Machine, mount: Mounted) -> ShareMount:
    ahead = machine.word(f"sys/class/bdi/{mount.device}/read_ahead_kb")
    return {
        "source": mount.source,
        "fstype": mount.fstype,
        "options": {option.partition("=")[0]: option.partition("=")[2] for option in mount.options},
        "read_ahead_kb": int(ahead) if ahead.isdigit() else None,
    }


def _said(machine: Machine, asked: ShareAsked) -> str:
    """The last words of mount itself."""
    argv = ["journalctl", "--unit", unit_name(asked.path), "--boot", "--lines=30", "--output=cat", "--no-pager"]
    lines = [line for line in machine.run(argv).stdout.splitlines() if line.startswith("mount")]
    return lines[-1].strip() if lines else ""


def _listens(machine: Machine) -> list[str]:
    """The addresses on which the kernel takes NFS."""
    rows = parse_listeners(machine.run(["ss", "-H", "-l", "-t", "-n", "sport", "=", f":{NFS_PORT}"]).stdout)
    return sorted({row["address"] for row in rows})


def _connections(machine: Machine) -> list[tuple[str, str]]:
    """Own and far address of every open connection to an NFS server."""
    argv = ["ss", "-H", "-t", "-n", "state", "established", "dport", "=", f":{NFS_PORT}"]
    rows = [line.split() for line in machine.run(argv).stdout.splitlines()]
    return sorted({(_address(row[2]), _address(row[3])) for row in rows if len(row) > 3})


def _address(end: str) -> str:
    """The address of one end of a connection."""
    return end.rpartition(":")[0].split("%")[0].strip("[]").removeprefix("::ffff:")


def _fstype(mounts: list[Mounted], path: str) -> str:
    """The file system that holds a path, wherever links in it lead."""
    real = _otherwise(lambda: os.path.realpath(path), path) if path else ""
    mount = mount_of(mounts, real) if real else None
    return mount.fstype if mount else ""


def asked_of(wish: ShareWish) -> ShareAsked:
    """What to look at on a node with this part in it; only copies are compared file by file."""
    return ShareAsked(wish.path, wish.server, wish.folders if wish.mode == COPY else (), wish.cache)
