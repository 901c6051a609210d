"""The kernel's table of mounts, /proc/self/mountinfo, read without touching what is mounted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

# File systems whose data are on another machine, by their names in the kernel; those of FUSE by what comes behind.
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "9p", "afs", "gpfs", "beegfs")
FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.ceph", "fuse.juicefs")


@dataclass(frozen=True)
class Mounted:
    """One mount: where, its file system, what is mounted, its options, and the device as major:minor."""

    path: str
    fstype: str
    source: str
    options: tuple[str, ...]
    device: str


def unescape(text: str) -> str:
    r"""A path as it was before blanks in it were written as \040; such numbers are bytes."""
    raw = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found.group(1), 8) & 0xFF]), text.encode())
    return raw.decode(errors="replace")


def parse_mountinfo(text: str) -> list[Mounted]:
    """All mounts in the order of the kernel: what lies on top of another one comes behind it (proc(5))."""
    return list(_mounts(text.splitlines()))


def _mounts(lines: Sequence[str]) -> Iterator[Mounted]:
    for line in lines:
        # Between the options of the mount and the dash there may be any number of optional fields.
        first, dash, last = line.partition(" - ")
        fields, more = first.split(" "), last.split(" ")
        if dash and len(fields) >= 6 and len(more) >= 3:
            options = tuple(dict.fromkeys([*fields[5].split(","), *more[2].split(",")]))
            yield Mounted(unescape(fields[4]), more[0], unescape(more[1]), options, fields[2])


def mount_at(mounts: Sequence[Mounted], path: str) -> Mounted | None:
    """What is mounted exactly there; of several the one on top."""
    return next((mount for mount in reversed(mounts) if mount.path == path), None)


def mount_of(mounts: Sequence[Mounted], path: str) -> Mounted | None:
    """The mount that holds a path, whether or not the path is there; of several the one on top."""
    above = {"/", path, *map(str, PurePosixPath(path).parents)}
    holding = [mount for mount in mounts if mount.path in above]
    return max(reversed(holding), key=lambda mount: len(mount.path), default=None)


def below(mounts: Sequence[Mounted], path: str) -> list[str]:
    """The mounts strictly below a path."""
    return sorted({mount.path for mount in mounts if mount.path.startswith(f"{path.rstrip('/')}/")})


def on_network(fstype: str) -> bool:
    """Whether the data of such a file system are on another machine."""
    return fstype in NETWORK or fstype in FUSE
