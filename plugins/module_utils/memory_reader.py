"""Reads who holds a node's memory: the processes on the GPU, the largest resident ones, NFS server and earlyoom."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from .facts import Process, Processes
from .machine import Machine

# How many of the largest resident processes are named.
NAMED = 5
MIB = 1024**2


def read_processes(machine: Machine) -> Processes:
    """All of it."""
    found = list(_processes(machine))
    return {
        "gpu": gpu_processes(machine),
        "resident": sorted((process for process, _ in found), key=lambda one: -one["bytes"])[:NAMED],
        "low_watermark": low_watermark(machine.text("proc/zoneinfo")),
        "earlyoom": next((argv for process, argv in found if process["name"] == "earlyoom"), None),
        "nfs_threads": nfs_threads(machine.text("proc/fs/nfsd/threads")),
    }


def gpu_processes(machine: Machine) -> list[Process]:
    """What nvidia-smi shows; on a GB10 it gives the memory of a process although it gives none of the GPU."""
    tool = machine.tool("usr/bin/nvidia-smi")
    if tool is None:
        return []
    query = ["--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"]
    done = machine.run([tool, *query])
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


def _processes(machine: Machine) -> Iterator[tuple[Process, list[str]]]:
    """Every process with its argument list; kernel threads have no memory of their own."""
    # A root of stand-in figures has a proc of its own, mostly without any process.
    numbers = [name for name in machine.all_names("proc") if name.isdigit()]
    yield from (found for number in numbers if (found := _process(machine, number)))


def _process(machine: Machine, number: str) -> tuple[Process, list[str]] | None:
    """One process, or None when it has ended or is the kernel's."""
    resident = re.search(r"^VmRSS:\s+(\d+) kB", machine.text(f"proc/{number}/status"), re.MULTILINE)
    if resident is None:
        return None
    # Its own title if it has given itself one, as the engine does, and the name of its program otherwise.
    argv = machine.text(f"proc/{number}/cmdline").rstrip("\0").split("\0")
    name = argv[0].split(" ")[0].rpartition("/")[2] or machine.word(f"proc/{number}/comm")
    return {"pid": int(number), "name": name, "bytes": int(resident.group(1)) * 1024}, argv
