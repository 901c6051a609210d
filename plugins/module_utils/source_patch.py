"""A patch of patches/: its header, and its hunks laid over the files of an installed package.

The image build copies this file into the image and runs it there, so it uses the standard library alone and does not
need git or patch. A hunk must match every line of its context in exactly one place; nothing is guessed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# What the header of a patch must say.
FIELDS = ("Fixes", "Upstream", "Applies-to", "Test")

_FIELD = re.compile(r"([A-Z][A-Za-z-]*): *(.*)")
_FILE = re.compile(r"\+\+\+ b/(\S+)")
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class PatchError(ValueError):
    """The patch cannot be read or does not fit; the text is one plain line."""


@dataclass(frozen=True)
class Hunk:
    """Lines that must be there, and what they become; context is in both."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class SourcePatch:
    """A patch: the first line of its header, the header's fields, and the hunks of every file it changes."""

    subject: str
    fields: dict[str, str]
    files: dict[str, tuple[Hunk, ...]]


def parse(text: str) -> SourcePatch:
    """Read a patch. Raises PatchError."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("--- ")), len(lines))
    header = lines[:start]
    fields = dict(_fields(header))
    missing = [name for name in FIELDS if not fields.get(name)]
    if missing:
        raise PatchError(f"its header lacks {', '.join(missing)}")
    files = {name: tuple(hunks) for name, hunks in _files(lines[start:]).items()}
    if not files:
        raise PatchError("it changes no file")
    return SourcePatch(header[0], fields, files)


def apply(hunks: Sequence[Hunk], text: str) -> str:
    """A file's text with the hunks laid over it. Raises PatchError when one does not fit in exactly one place."""
    lines = text.splitlines()
    for number, hunk in enumerate(hunks, 1):
        places = _places(lines, hunk.before)
        if not places and _places(lines, hunk.after):
            raise PatchError(f"hunk {number} is in the file already")
        if len(places) != 1:
            raise PatchError(f"hunk {number} fits in {len(places)} places, limit: exactly 1")
        lines[places[0] : places[0] + len(hunk.before)] = hunk.after
    return "\n".join(lines) + "\n"


def _fields(header: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The fields of a header; a line that begins with a blank goes on with the one before."""
    name, value = "", ""
    for line in header:
        found = _FIELD.fullmatch(line)
        if found:
            yield name, value
            name, value = found[1], found[2]
        elif line.startswith(" ") and name:
            value = f"{value} {line.strip()}"
    yield name, value


def _files(lines: Sequence[str]) -> dict[str, list[Hunk]]:
    found: dict[str, list[Hunk]] = {}
    name, rest = "", list(lines)
    while rest:
        line = rest.pop(0)
        new_file, new_hunk = _FILE.match(line), _HUNK.match(line)
        if new_file:
            name = new_file[1]
        elif new_hunk and name:
            found.setdefault(name, []).append(_hunk(rest, int(new_hunk[1] or 1), int(new_hunk[2] or 1)))
        elif not line.startswith("--- "):
            raise PatchError(f"it has a line that belongs to no hunk: {line[:60]}")
    return found


def _hunk(rest: list[str], old: int, new: int) -> Hunk:
    """Take one hunk of so many old and new lines off the rest."""
    before, after = list[str](), list[str]()
    while len(before) < old or len(after) < new:
        line = rest.pop(0) if rest else "end of the patch"
        # An editor that strips blanks at line ends leaves an empty line of context.
        sign, content = line[:1] or " ", line[1:]
        if sign not in " -+":
            raise PatchError(f"a hunk ends before its last line: {line[:60]}")
        if sign != "+":
            before.append(content)
        if sign != "-":
            after.append(content)
    return Hunk(tuple(before), tuple(after))


def _places(lines: Sequence[str], wanted: tuple[str, ...]) -> list[int]:
    return [n for n in range(len(lines) - len(wanted) + 1) if tuple(lines[n : n + len(wanted)]) == wanted]


def root_of(package: str) -> Path:
    """The folder in which a package is installed, found without importing it. Raises PatchError."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise PatchError(f"the package {package} is not installed here")
    return Path(found.submodule_search_locations[0]).parent


def patched(name: str, hunks: Sequence[Hunk]) -> tuple[Path, str]:
    """The installed file of that name and its new text. Raises PatchError."""
    path = root_of(name.partition("/")[0]) / name
    try:
        return path, apply(hunks, path.read_text(encoding="utf-8"))
    except (OSError, PatchError) as error:
        raise PatchError(f"{path}: {error}") from None


def main(arguments: Sequence[str]) -> int:
    """Apply one patch to the installed packages: all of its files or none."""
    (file,) = arguments
    try:
        patch = parse(Path(file).read_text(encoding="utf-8"))
        changes = [patched(name, hunks) for name, hunks in patch.files.items()]
    except PatchError as error:
        print(f"{Path(file).name} does not apply: {error}", file=sys.stderr)
        return 1
    for path, text in changes:
        path.write_text(text, encoding="utf-8")
        print(f"{Path(file).name}: {patch.subject}: changed {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
