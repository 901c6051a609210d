"""One machine as it can be read: its files below some roots, and its commands, each bounded in time.

Hardware files are read below `hardware_root`, and below / where that root lacks them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

Done = subprocess.CompletedProcess[str]
Run = Callable[[Sequence[str]], Done]
T = TypeVar("T")

# Seconds. No command asked here takes more than one on a healthy node; a hung daemon must not hang the play.
COMMAND_SECONDS = 20

# Bytes; the unit of st_blocks (stat(2)).
BLOCK = 512
# Bytes; what sysfs says of one thing is never longer (sysfs(5)).
PAGE = 4096


def run_command(argv: Sequence[str]) -> Done:
    """Run a command in the C locale; one that is missing or late comes back as a failed one."""
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, "", f"{argv[0]} is not installed")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"{argv[0]} did not answer within {COMMAND_SECONDS} s")


def together(works: Sequence[Callable[[], T]]) -> list[T]:
    """The results of works that mostly wait, all begun at once."""
    if not works:
        return []
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


def json_or(text: str, default: Any) -> Any:
    """The data in a JSON text, or the default when it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return default


class Machine:
    """Files and commands of one machine. `root` and `run` are changed by tests only.

    A `name` is a path without its leading slash. `unreadable` collects the files, with the slash, that are there but
    that the account may not read.
    """

    def __init__(self, hardware_root: str = "/", root: str = "/", run: Run = run_command) -> None:
        """Remember where to read."""
        self._roots = list(dict.fromkeys([Path(hardware_root), Path(root)]))
        self.run = run
        self.unreadable: set[str] = set()

    def look(self, name: str, how: Callable[[Path], T], otherwise: T) -> T:
        """What `how` reads from the first path of that name below the roots from which it can."""
        return next(self._looks(name, how), otherwise)

    def text(self, name: str) -> str:
        """The first readable file of that name below the roots, or an empty string."""
        return self.look(name, partial(Path.read_text, encoding="utf-8", errors="replace"), "")

    def word(self, name: str) -> str:
        """The same without blanks around it."""
        return self.text(name).strip()

    def names(self, name: str) -> list[str]:
        """What is in the folder of that name below the first root that has it, sorted."""
        return self.look(name, _entries, [])

    def words(self, name: str) -> dict[str, str]:
        """What is in every file of the folder of that name, without blanks; empty for one that cannot be read.

        For folders of a thousand files, of which reading one by one would cost a slow node many seconds.
        """
        return self.look(name, _words, {})

    def all_names(self, name: str) -> list[str]:
        """What is in the folders of that name below all roots, each name once, sorted."""
        return sorted({entry for entries in self._looks(name, _entries) for entry in entries})

    def writable(self, name: str) -> bool:
        """Whether the file of that name can be written; one on a file system that is read-only cannot."""
        return any(os.access(path, os.W_OK) for path in self._paths(name))

    def bytes_on_disk(self, name: str) -> int:
        """What all files below that name take on disk."""
        files = [path for root in self._paths(name) for path in root.rglob("*")]
        return sum(path.lstat().st_blocks * BLOCK for path in files if path.is_file())

    def changed_at(self, name: str) -> float:
        """When the file of that name was last written, in seconds since 1970; 0 where there is none."""
        return max((path.stat().st_mtime for path in self._paths(name) if path.exists()), default=0)

    def target(self, name: str) -> str:
        """The last part of the path that a link leads to, or an empty string where there is no link."""
        return next((path.resolve().name for path in self._paths(name) if path.is_symlink()), "")

    def tool(self, name: str) -> str | None:
        """The whole path of a program of that name below the roots."""
        return next((str(path) for path in self._paths(name) if path.exists()), None)

    def json(self, argv: Sequence[str]) -> list[dict[str, Any]]:
        """The rows that a command prints as JSON; none when it fails."""
        rows = json_or(self.run(argv).stdout, [])
        # `ip -j` prints empty objects for the rows that a filter hides.
        return [row for row in rows if row]

    def run_all(self, commands: Sequence[Sequence[str]]) -> list[Done]:
        """Run commands at once."""
        return together([partial(self.run, argv) for argv in commands])

    def _paths(self, name: str) -> Iterator[Path]:
        return (root / name for root in self._roots)

    def _looks(self, name: str, how: Callable[[Path], T]) -> Iterator[T]:
        for path in self._paths(name):
            try:
                found = how(path)
            except PermissionError:
                self.unreadable.add(f"/{name}")
            except OSError:
                # What sysfs cannot say at the moment, such as the carrier of an interface that is down, is an error.
                continue
            else:
                yield found


def _entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def _words(folder: Path) -> dict[str, str]:
    return {entry.name: _word(entry.path) for entry in os.scandir(folder)}


def _word(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(file, PAGE).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)
