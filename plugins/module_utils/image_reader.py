"""Reads what a node has of the engine image, and what was found inside of it when it was looked into."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .facts import ImageFacts
from .image_need import LABEL_BUILD
from .machine import Machine, json_or
from .names import GATES_FILE


def read_image(machine: Machine, ref: str, key: str) -> ImageFacts:
    """The image of that name; `key` tells which look inside counts."""
    row = inspect(machine, ref)
    image_id = row.get("Id")
    gates = json_or(machine.text(GATES_FILE.lstrip("/")), {})
    fresh = bool(image_id) and gates.get("image_id") == image_id and gates.get("key") == key
    return {
        "id": image_id,
        "architecture": row.get("Architecture"),
        "digests": digests(row),
        "build": ((row.get("Config") or {}).get("Labels") or {}).get(LABEL_BUILD),
        "gates": gates["gates"] if fresh else None,
        "error": gates["error"] if fresh else None,
    }


def inspect(machine: Machine, ref: str) -> dict[str, Any]:
    """What Docker says of an image, empty when it has none of that name."""
    rows = json_or(machine.run(["docker", "image", "inspect", ref]).stdout, [])
    return dict(rows[0]) if rows else {}


def digests(row: dict[str, Any]) -> list[str]:
    """All that names the content of an image: its ID, and the digests under which registries know it."""
    known: Sequence[str] = row.get("RepoDigests") or []
    return sorted({row["Id"], *(name.rpartition("@")[2] for name in known)}) if row else []


def gates_text(image_id: str, key: str, gates: Any, error: str | None) -> str:
    """The file that keeps what was found inside of an image."""
    return json.dumps({"image_id": image_id, "key": key, "gates": gates, "error": error}, indent=1) + "\n"
