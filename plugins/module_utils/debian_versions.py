"""The order of versions of Debian packages, as dpkg has it (deb-version(7)), and ranges of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import total_ordering
from itertools import zip_longest

_RUNS = re.compile(r"(\D*)(\d*)")


@total_ordering
class DebianVersion:
    """One version; two that dpkg holds for equal are equal, such as 1.0 and 0:1.0-0."""

    def __init__(self, text: str) -> None:
        """Take it apart."""
        self.text = text
        epoch, colon, rest = text.strip().partition(":")
        whole = rest if colon else epoch
        upstream, hyphen, revision = whole.rpartition("-")
        if not hyphen:
            upstream, revision = whole, ""
        self._epoch = int(epoch) if colon and epoch.isdigit() else 0
        self._parts = (list(_runs(upstream)), list(_runs(revision)))

    def __eq__(self, other: object) -> bool:
        """Neither is newer."""
        return isinstance(other, DebianVersion) and self._compare(other) == 0

    def __lt__(self, other: DebianVersion) -> bool:
        """This one is older."""
        return self._compare(other) < 0

    def __hash__(self) -> int:
        """Equal versions may be written differently, so all that could differ is left out."""
        return hash(self._epoch)

    def _compare(self, other: DebianVersion) -> int:
        if self._epoch != other._epoch:
            return self._epoch - other._epoch
        pairs = zip(self._parts, other._parts, strict=True)
        return next((found for one, two in pairs if (found := _compare_runs(one, two))), 0)


def _runs(text: str) -> Iterator[tuple[str, int]]:
    """What is no digit and the number behind it, again and again; every version begins with the former."""
    return ((words, int(number or 0)) for words, number in _RUNS.findall(text) if words or number)


def _compare_runs(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> int:
    for (words, number), (others, another) in zip_longest(one, other, fillvalue=("", 0)):
        found = _compare_words(words, others) or number - another
        if found:
            return found
    return 0


def _compare_words(one: str, other: str) -> int:
    """A tilde is before everything, even the end; letters are before all else."""
    weights = ((_weight(a), _weight(b)) for a, b in zip_longest(one, other, fillvalue=""))
    return next((a - b for a, b in weights if a != b), 0)


def _weight(char: str) -> int:
    if char == "~":
        return -1
    if not char:
        return 0
    return ord(char) if char.isalpha() else ord(char) + 256


def within(version: str, limits: Mapping[str, str]) -> bool:
    """Whether a version is in a range: at least `from`, at most `to`, older than `before`; what is absent is open."""
    found = DebianVersion(version)
    return (
        ("from" not in limits or found >= DebianVersion(limits["from"]))
        and ("to" not in limits or found <= DebianVersion(limits["to"]))
        and ("before" not in limits or found < DebianVersion(limits["before"]))
    )
