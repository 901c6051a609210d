"""Reads who holds a node's memory: the processes on the GPU, the largest resident ones, NFS server and earlyoom."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .facts import Process, Processes

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]

# How many of the largest resident processes are named.
NAMED = 5
MIB = 1024**2


def read_processes(roots: Sequence[Path], run: Run) -> Processes:
    """Read below the first of the roots that has what is asked for."""
    found = list(_processes(roots))
    return {
        "gpu": gpu_processes(roots, run),
        "resident": sorted((process for process, _ in found), key=lambda one: -one["bytes"])[:NAMED],
        "low_watermark": low_watermark(_text(roots, "proc/zoneinfo")),
        "earlyoom": next((argv for process, argv in found if process["name"] == "earlyoom"), None),
        "nfs_threads": nfs_threads(_text(roots, "proc/fs/nfsd/threads")),
    }


def gpu_processes(roots: Sequence[Path], run: Run) -> list[Process]:
    """What nvidia-smi shows; on a GB10 it gives the memory of a process although it gives none of the GPU."""
    tool = next((str(root / "usr/bin/nvidia-smi") for root in roots if (root / "usr/bin/nvidia-smi").exists()), None)
    if tool is None:
        return []
    query = ["--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"]
    done = run([tool, *query])
    return list(parse_gpu_processes(done.stdout)) if done.returncode == 0 else []


def parse_gpu_processes(text: str) -> Iterator[Process]:
    """The lines `pid, name, MiB` of nvidia-smi, the largest first; memory that it does not know counts as none."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    whole = [row for row in rows if len(row) >= 3 and row[0].isdigit()]
    found: list[Process] = [
        {"pid": int(row[0]), "name": ", ".join(row[1:-1]), "bytes": int(row[-1]) * MIB if row[-1].isdigit() else 0}
        for row in whole
    ]
    yield from sorted(found, key=lambda process: -process["bytes"])


def low_watermark(zoneinfo: str) -> int:
    """The sum of the zones' low watermarks in bytes, without what a boost adds for a while."""
    pages = sum(int(number) for number in re.findall(r"^\s+low\s+(\d+)$", zoneinfo, re.MULTILINE))
    return pages * os.sysconf("SC_PAGE_SIZE")


def nfs_threads(text: str) -> int:
    """The threads of a running NFS server; without one the file is missing, or says 0."""
    return int(text) if text.strip().isdigit() else 0


def _processes(roots: Sequence[Path]) -> Iterator[tuple[Process, list[str]]]:
    """Every process with its argument list; kernel threads have no memory of their own."""
    for root in roots:
        folders = [path for path in _listing(root / "proc") if path.name.isdigit()]
        if folders:
            yield from (found for path in folders if (found := _process(path)))
            return


def _process(path: Path) -> tuple[Process, list[str]] | None:
    """One process, or None when it has ended or is the kernel's."""
    resident = re.search(r"^VmRSS:\s+(\d+) kB", _file(path / "status"), re.MULTILINE)
    if resident is None:
        return None
    # Its own title if it has given itself one, as the engine does, and the name of its program otherwise.
    argv = _file(path / "cmdline").rstrip("\0").split("\0")
    name = argv[0].split(" ")[0].rpartition("/")[2] or _file(path / "comm").strip()
    return {"pid": int(path.name), "name": name, "bytes": int(resident.group(1)) * 1024}, argv


def _text(roots: Sequence[Path], name: str) -> str:
    return next((text for root in roots if (text := _file(root / name))), "")


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _listing(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []
