"""A directory that is made under another name and gets its own in one step, when it is whole.

This module renames and locks directories.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .names import PARTIAL

# Locks vanish with the process that holds them; their files are gone after a reboot.
LOCKS = Path("/run/lock")


class Staging:
    """The unfinished form of one directory."""

    def __init__(self, path: str) -> None:
        """Remember both names; nothing is made yet."""
        self.path = Path(path)
        self.partial = self.path.with_name(self.path.name + PARTIAL)
        self._lock = LOCKS / f"sparkwright-{hashlib.sha256(str(self.path).encode()).hexdigest()[:16]}"

    @property
    def done(self) -> bool:
        """Whether there is something under its own name, which then is whole."""
        return self.path.is_dir() and any(self.path.iterdir())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait until no other process works on it; one that a lost connection left behind may still do so."""
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def begin(self) -> None:
        """Have the unfinished directory; what is in it stays."""
        self.partial.mkdir(parents=True, exist_ok=True)

    def reopen(self) -> None:
        """Take the name away from a directory that is not whole; an older unfinished one gives way to it."""
        shutil.rmtree(self.partial, ignore_errors=True)
        self.path.rename(self.partial)

    def publish(self) -> None:
        """Give it its name, once everything in it is on disk."""
        for entry in self.partial.iterdir():
            if entry.is_file():
                _sync(entry)
        _sync(self.partial)
        self.partial.rename(self.path)
        _sync(self.path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
