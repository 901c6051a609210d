"""Remembers which images we built or brought to the node, in a file on it, which is I/O.

A label would not do: an image that somebody builds from ours inherits it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from .machine import json_or
from .names import IMAGES_FILE
from .recorded import write_atomically


def own_images(path: str = IMAGES_FILE) -> list[str]:
    """Their IDs, the oldest first."""
    file = Path(path)
    return list(json_or(file.read_text(encoding="utf-8"), [])) if file.exists() else []


def remember_image(image_id: str, path: str = IMAGES_FILE) -> None:
    """Add one."""
    known = own_images(path)
    if image_id and image_id not in known:
        _save([*known, image_id], path)


def forget_images(there: Collection[str], path: str = IMAGES_FILE) -> None:
    """Keep only those that are still there."""
    known = own_images(path)
    left = [image_id for image_id in known if image_id in there]
    if left != known:
        _save(left, path)


def _save(images: list[str], path: str) -> None:
    write_atomically(Path(path), (json.dumps(images) + "\n").encode(), 0o644)
