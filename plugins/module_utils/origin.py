"""Where a checkpoint directory came from: a small file inside it, so that it goes wherever the directory is copied.

It names the repositories with their revisions, and for each file the size and, where it was published, the SHA-256.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .facts import Origin, Published

ORIGIN_NAME = ".sparkwright.json"
SCHEMA = 1
NOWHERE: Origin = {"sources": [], "include": [], "files": {}}


def dump_origin(sources: Sequence[str], files: Mapping[str, Published], include: Sequence[str] = ()) -> str:
    """The text of the file. A source is such as `owner/name@<40 hexadecimal digits>`."""
    content = {"schema": SCHEMA, "sources": list(sources), "include": list(include), "files": dict(files)}
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def parse_origin(text: str) -> Origin:
    """What the file says; a file that is none of ours says nothing."""
    try:
        data: Any = json.loads(text)
        files = {str(name): _published(entry) for name, entry in data["files"].items()}
        known = data["schema"] == SCHEMA
        return (
            {"sources": list(data["sources"]), "include": list(data["include"]), "files": files} if known else NOWHERE
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return NOWHERE


def _published(entry: Mapping[str, Any]) -> Published:
    return {"size": int(entry["size"]), "sha256": entry["sha256"]}


def source_name(repo: str, revision: str) -> str:
    """A repository at a revision in one word."""
    return f"{repo}@{revision}"


def wrong_sources(found: Iterable[str], pinned: Iterable[str]) -> str:
    """Why a directory that says `found` of itself is not what is pinned, in words; empty when it is."""
    have = list(found)
    lacking = [source for source in pinned if source not in have]
    if not lacking:
        return ""
    return f"it was made from {', '.join(have)}" if have else "it does not say where it came from"


def unlike(files: Mapping[str, Published], sizes: Mapping[str, int]) -> list[str]:
    """The files that are not there with their published size."""
    return sorted(name for name, entry in files.items() if sizes.get(name) != entry["size"])
