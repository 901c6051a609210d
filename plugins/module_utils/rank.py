"""The two small files in which a node keeps what its rank does and what its watchdog did. It reads and writes files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from .facts import Rank, RankEnd, Watchdog
from .names import RANK_FILE, WATCH_FILE


def parse_rank(text: str) -> Rank | None:
    """What a rank wrote; None when there is nothing, or nothing that this release can read."""
    return cast("Rank | None", _parsed(text, Rank.__annotations__))


def parse_watchdog(text: str) -> Watchdog | None:
    """What a watchdog wrote; None when it never acted."""
    return cast("Watchdog | None", _parsed(text, Watchdog.__annotations__))


def save_rank(rank: Rank, path: str = RANK_FILE) -> None:
    """Keep what the rank does."""
    _save(rank, path)


def load_watchdog(path: str = WATCH_FILE) -> Watchdog | None:
    """What the watchdog of this node did; None when it never acted."""
    return parse_watchdog(Path(path).read_text(encoding="utf-8")) if Path(path).exists() else None


def save_watchdog(watchdog: Watchdog, path: str = WATCH_FILE) -> None:
    """Keep what the watchdog did."""
    _save(watchdog, path)


def forget_launches() -> None:
    """A start by a person is a new beginning: an earlier end is none of this launch, and no restart counts."""
    for path in (RANK_FILE, WATCH_FILE):
        Path(path).unlink(missing_ok=True)


def new_end(why: str, at: float, **more: Any) -> RankEnd:
    """An end; without more it is one of a rank whose container never ran."""
    plain: RankEnd = {
        "why": why,
        "at": at,
        "exit_code": None,
        "out_of_memory": False,
        "ordered": False,
        "refused": False,
        "log": [],
    }
    return cast("RankEnd", {**plain, **more})


def _parsed(text: str, keys: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    # A file of another release may lack what this one reads.
    return found if isinstance(found, dict) and set(keys) <= set(found) else None


def _save(content: Mapping[str, Any], path: str) -> None:
    folder = Path(path).parent
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1) + "\n")
    Path(name).chmod(0o644)
    Path(name).replace(path)
