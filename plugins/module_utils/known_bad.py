"""Is one of these versions known to break a cluster? For what runs, for what is installed, and for what would be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .debian_versions import within
from .update_wish import KnownBad

KERNEL, DRIVER = "kernel", "driver"
# A kernel's release without its flavour: 7.0.0-1019 of 7.0.0-1019-nvidia.
_RELEASE = re.compile(r"\d[\d.]*-\d+")
# Of linux-image-unsigned-7.0.0-1019-nvidia the release, but not of linux-image-nvidia, which only points to one.
_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(\d.*)")


@dataclass(frozen=True)
class Found:
    """A bad version: what has it, and the entry that says so."""

    what: str
    bad: KnownBad


def running(table: Iterable[KnownBad], kernel: str, driver: str | None, arguments: Iterable[str]) -> Iterator[Found]:
    """What this boot runs."""
    for bad in _harmful(table, arguments):
        if bad.subject == KERNEL and within(release(kernel), bad.versions):
            yield Found(f"kernel {kernel}", bad)
        if bad.subject == DRIVER and driver and within(driver, bad.versions):
            yield Found(f"driver {driver}", bad)


def packages(table: Iterable[KnownBad], versions: Mapping[str, str], arguments: Iterable[str]) -> Iterator[Found]:
    """What is installed, or would be, by package."""
    for bad in _harmful(table, arguments):
        for name, version in sorted(versions.items()):
            if bad.subject == KERNEL:
                found = kernel_of(name)
                if found and within(release(found), bad.versions):
                    yield Found(f"kernel {found}", bad)
            elif fnmatchcase(name, bad.subject) and within(version, bad.versions):
                yield Found(f"{name} {version}", bad)


def kernel_of(package: str) -> str | None:
    """The release of the kernel that a package holds, None when it holds none."""
    found = _IMAGE.fullmatch(package)
    return found[1] if found else None


def release(kernel: str) -> str:
    """A kernel's release without its flavour, as versions are compared."""
    found = _RELEASE.match(kernel)
    return found[0] if found else kernel


def _harmful(table: Iterable[KnownBad], arguments: Iterable[str]) -> Iterator[KnownBad]:
    given = set(arguments)
    return (bad for bad in table if not bad.unless or bad.unless not in given)
