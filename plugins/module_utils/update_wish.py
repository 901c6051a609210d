"""What the user says about updates, and what is known about bad versions, as it lies in every node's intent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class KnownBad:
    """Versions that are known to break a cluster.

    `name` tells the entries apart. `subject` is `kernel`, `driver`, or a pattern for names of packages. `versions` is a
    range as `debian_versions.within` reads it. `unless` is a kernel argument with which the version is harmless. One
    with `refuse` false is only warned about.
    """

    name: str
    subject: str
    sign: str
    remedy: str
    source: str
    versions: Mapping[str, str] = field(default_factory=dict)
    unless: str = ""
    refuse: bool = True


@dataclass(frozen=True)
class UpdateWish:
    """The role's variables as data: packages on hold, drift that is accepted, what may be removed, bad versions."""

    hold: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    removals: tuple[str, ...] = ()
    known_bad: tuple[KnownBad, ...] = ()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> UpdateWish:
        """The wish that `asdict` and JSON made data of. Raises TypeError when the data are of another version."""
        lists = {name: tuple(data[name]) for name in ("hold", "accept", "removals")}
        return cls(**{**data, **lists, "known_bad": tuple(KnownBad(**entry) for entry in data["known_bad"])})


def known_bad_table(*lists: Iterable[Mapping[str, Any]]) -> tuple[KnownBad, ...]:
    """The entries of all lists; a later one takes the place of an earlier one of its name."""
    found = {entry["name"]: entry for entries in lists for entry in entries}
    return tuple(
        KnownBad(**{key: value for key, value in entry.items() if value is not None}) for entry in found.values()
    )
