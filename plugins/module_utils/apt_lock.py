"""Who holds the locks of dpkg and apt, and waiting until nobody does. It asks the kernel, which knows the process."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
# Seconds between two looks.
PAUSE = 2.0

# struct flock of Linux on 64-bit machines: type, whence, start, length, process.
_FLOCK = "hhqqi4x"


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock; one of another container has no number here."""

    lock: str
    pid: int
    name: str

    def __str__(self) -> str:
        """In words."""
        return f"{self.name} (pid {self.pid}) holds {self.lock}" if self.pid else f"a process outside holds {self.lock}"


class LockedError(Exception):
    """The time is up and the lock is still held; the text is one plain line without the host."""


def holder(locks: tuple[str, ...] = LOCKS, proc: Path = Path("/proc")) -> Holder | None:
    """Who holds the first lock that is held, None when all are free."""
    for lock in locks:
        pid = _locked_by(lock)
        if pid is not None:
            return Holder(lock, pid, _name_of(proc, pid))
    return None


def wait_until_free(seconds: float, look: Callable[[], Holder | None] = holder, pause: float = PAUSE) -> list[str]:
    """Wait; the result says who was waited for and how long. Raises LockedError."""
    start, seen, first = time.monotonic(), None, 0.0
    told: list[str] = []
    while True:
        found, now = look(), time.monotonic()
        if seen and found != seen:
            told.append(f"waited {now - first:.0f} s: {seen}")
        if found is None:
            return told
        if now - start >= seconds:
            limit = f"{seconds / 60:g} minutes of waiting (os_update_lock_minutes)"
            raise LockedError(f"{found}; limit: {limit}; remedy: let it end, or end it yourself, then run this again")
        if found != seen:
            seen, first = found, now
        time.sleep(pause)


def _locked_by(lock: str) -> int | None:
    try:
        handle = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    finally:
        os.close(handle)
    return None if kind == fcntl.F_UNLCK else max(0, int(pid))


def _name_of(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return "a process"
