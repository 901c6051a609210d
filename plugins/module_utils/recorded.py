"""What was on the node before our first change, kept so that it can be put back.

One file, written before the change that it describes; an entry that is there is never overwritten, so that a second run
does not record our own work as the user's.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .names import RECORD_FILE

SCHEMA = 1


def load(path: str = RECORD_FILE) -> dict[str, Any]:
    """The record, empty when there is none yet. Raises ValueError when the file is not one of ours."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {"schema": SCHEMA, "files": {}, "units": {}, "user_units": {}}
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    found = record.get("schema") if isinstance(record, dict) else None
    if found != SCHEMA:
        raise ValueError(f"{path} has schema {found}, this release reads {SCHEMA}")
    return dict(record)


def remember(section: str, entries: dict[str, Any], path: str = RECORD_FILE) -> list[str]:
    """Add the entries that the section does not know yet, and return their names. Raises ValueError like `load`."""
    record = load(path)
    known = record.setdefault(section, {})
    new = {name: entry for name, entry in entries.items() if name not in known}
    if new:
        known.update(new)
        write_atomically(Path(path), (json.dumps(record, indent=1, sort_keys=True) + "\n").encode(), 0o600)
    return sorted(new)


def file_entry(path: Path) -> dict[str, Any]:
    """A file as the record keeps it: its mode, owner and bytes, or the fact that there is none."""
    if not path.exists():
        return {"existed": False}
    status = path.stat()
    content = base64.b64encode(path.read_bytes()).decode()
    return {
        "existed": True,
        "mode": f"{status.st_mode & 0o7777:04o}",
        "uid": status.st_uid,
        "gid": status.st_gid,
        "content": content,
    }


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it; `mode` such as 0o644."""
    # A link stays a link; its target is what gets the new content.
    path = path.resolve()
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
