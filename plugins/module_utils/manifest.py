"""The manifest of a checkpoint: size and SHA-256 of every file, made once, and what it says about a directory.

The first hash of a file stays the one that it must have, unless it was published with another: a byte that turns over
later does not become right by being hashed again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from .facts import FileState, HashReport, Manifest, Published

SCHEMA = 1
EMPTY: Manifest = {"path": "", "files": {}}


def parse_manifest(text: str) -> Manifest:
    """A manifest; what is none of ours is an empty one, and so is made anew."""
    try:
        data: Any = json.loads(text)
        if data["schema"] != SCHEMA:
            return EMPTY
        return {"path": str(data["path"]), "files": {str(name): _entry(entry) for name, entry in data["files"].items()}}
    except (ValueError, KeyError, TypeError, AttributeError):
        return EMPTY


def dump_manifest(manifest: Manifest) -> str:
    """The text of its file."""
    return json.dumps({"schema": SCHEMA, **manifest}, indent=1, sort_keys=True) + "\n"


def _entry(entry: Mapping[str, Any]) -> FileState:
    size, mtime = int(entry["size"]), int(entry["mtime"])
    return {"size": size, "mtime": mtime, "sha256": str(entry["sha256"]), "wanted": str(entry["wanted"])}


def due(manifest: Manifest, path: str, stats: Mapping[str, tuple[int, int]]) -> list[str]:
    """The files to hash: those whose size or time of change (ns) is not the one that was hashed."""
    known = manifest["files"] if manifest["path"] == path else {}
    hashed = {name: (entry["size"], entry["mtime"]) for name, entry in known.items()}
    return sorted(name for name, stat in stats.items() if hashed.get(name) != stat)


def current(manifest: Manifest, path: str, stats: Mapping[str, tuple[int, int]]) -> bool:
    """True when the manifest knows every file of that directory as it is now; a lost one stays in it, and is missed."""
    return manifest["path"] == path and not due(manifest, path, stats)


def renewed(
    manifest: Manifest,
    path: str,
    stats: Mapping[str, tuple[int, int]],
    hashes: Mapping[str, str],
    published: Mapping[str, Published],
) -> Manifest:
    """The manifest with new hashes of the files that were due."""
    known = manifest["files"] if manifest["path"] == path else {}
    # What is gone stays, and is missed from now on.
    files = dict(known)
    for name, (size, mtime) in stats.items():
        old, sha256 = known.get(name), hashes.get(name)
        if sha256 is None:
            continue
        named = published.get(name, {"size": size, "sha256": None})["sha256"]
        first = old["wanted"] if old else sha256
        files[name] = {"size": size, "mtime": mtime, "sha256": sha256, "wanted": named or first}
    return {"path": path, "files": files}


def compare(manifest: Manifest, sizes: Mapping[str, int], hashes: Mapping[str, str]) -> HashReport:
    """What is wrong with a directory by the manifest; of a file without a hash only the size is compared."""
    files = manifest["files"]
    there = files.keys() & sizes.keys()
    return {
        "error": None,
        "missing": sorted(files.keys() - sizes.keys()),
        "surplus": sorted(sizes.keys() - files.keys()),
        "truncated": sorted(name for name in there if sizes[name] != files[name]["size"]),
        "corrupt": sorted(name for name in there & hashes.keys() if hashes[name] != files[name]["wanted"]),
        "hashed": len(hashes),
        "files": len(files),
    }


def unreadable(error: str) -> HashReport:
    """The report about a directory that could not be read, and why."""
    return {**compare(EMPTY, {}, {}), "error": error}


def own_hashes(manifest: Manifest, stats: Collection[str]) -> dict[str, str]:
    """What the manifest itself found, for the directory that it was made from."""
    return {name: entry["sha256"] for name, entry in manifest["files"].items() if name in stats}


def unit_argv(unit: str, library: str, path: str, result: str) -> list[str]:
    """Starts the work as a unit of its own that yields to everything else, and outlives the run that started it."""
    return [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={unit}",
        f"--description=Sparkwright: hash {path}",
        "--property=Nice=19",
        "--property=IOSchedulingClass=idle",
        "--property=CPUSchedulingPolicy=idle",
        # The pages that it reads are its own, and must not push out what the node serves with.
        "--property=MemoryHigh=512M",
        f"--setenv=PYTHONPATH={library}",
        "--setenv=PYTHONDONTWRITEBYTECODE=1",
        "/usr/bin/python3",
        "-m",
        "sparkwright.manifest_job",
        path,
        result,
    ]
