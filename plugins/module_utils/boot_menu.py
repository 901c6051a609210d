"""GRUB's menu as data: which kernel an entry starts, which one comes next, and the name by which to ask for another."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

RECOVERY = "-recovery-"
KERNEL = "vmlinuz-"
_DEFAULT = re.compile(r'^\s*set default="([^"]*)"')


@dataclass
class Entry:
    """An entry, or a submenu with entries; `kernel` is its release, empty where its file has none in its name."""

    title: str
    id: str
    kernel: str = ""
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Menu:
    """The entries at the top, and what the file says about the default: a number, a path, an id, or a variable."""

    entries: Sequence[Entry]
    default: str


def parse_menu(text: str) -> Menu:
    """The menu in the text of a grub.cfg; what is no entry in there only has to close its braces."""
    top = Entry("", "")
    open_blocks: list[Entry | None] = [top]
    for line in text.splitlines():
        _take(line, line.split(), open_blocks)
    defaults = [found[1] for found in map(_DEFAULT.match, text.splitlines()) if found]
    return Menu(top.entries, next((name for name in reversed(defaults) if name != "${next_entry}"), "0"))


def _take(line: str, words: Sequence[str], open_blocks: list[Entry | None]) -> None:
    """One line of the file: it opens or closes a block, or says what the innermost entry starts."""
    if words[-1:] == ["{"]:
        entry = _entry(line) if words[0] in ("menuentry", "submenu") else None
        if entry:
            _innermost(open_blocks).entries.append(entry)
        open_blocks.append(entry)
    elif words == ["}"] and len(open_blocks) > 1:
        open_blocks.pop()
    elif words[:1] == ["linux"] and len(words) > 1:
        _innermost(open_blocks).kernel = _release(words[1])


def next_kernel(menu: Menu, environment: dict[str, str]) -> str | None:
    """The kernel that the next boot starts, None where that cannot be said."""
    wanted = environment.get("next_entry") or menu.default
    if wanted == "${saved_entry}":
        wanted = environment.get("saved_entry") or "0"
    return _kernel_of(menu.entries, wanted.split(">"))


def path_to(menu: Menu, kernel: str) -> str | None:
    """What `grub-reboot` must be told to start that kernel; None when no ordinary entry does."""
    return next(_paths(menu.entries, kernel, ()), None)


def parse_environment(text: str) -> dict[str, str]:
    """The variables of a grubenv file."""
    rows = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in rows if equals and value}


def _paths(entries: Sequence[Entry], kernel: str, above: tuple[str, ...]) -> Iterator[str]:
    for entry in entries:
        here = (*above, entry.id or entry.title)
        if entry.kernel == kernel and RECOVERY not in entry.id:
            yield ">".join(here)
        yield from _paths(entry.entries, kernel, here)


def _kernel_of(entries: Sequence[Entry], path: Sequence[str]) -> str | None:
    found = _pick(entries, path[0])
    if found is None:
        return None
    if found.entries:
        return _kernel_of(found.entries, path[1:] or ["0"])
    return found.kernel or None


def _pick(entries: Sequence[Entry], name: str) -> Entry | None:
    if name.isdigit():
        return entries[int(name)] if int(name) < len(entries) else None
    return next((entry for entry in entries if name in (entry.id, entry.title)), None)


def _innermost(blocks: Sequence[Entry | None]) -> Entry:
    return next(entry for entry in reversed(blocks) if entry is not None)


def _entry(line: str) -> Entry:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    ids = [word for mark, word in pairwise(words) if mark in ("$menuentry_id_option", "--id")]
    return Entry(words[1], ids[0] if ids else "")


def _release(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.removeprefix(KERNEL) if name.startswith(KERNEL) else ""
