"""How the sections of the record that the role model_store writes are undone; see `restore.py` for the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .names import READ_AHEAD_UNIT
from .undo import Step

Entries = Mapping[str, Mapping[str, Any]]


def undo_mount(entries: Entries) -> list[Step]:
    """Our mount goes, also from under a dead server, while its units are still there; then comes what it replaced."""
    script = (
        'systemctl kill --signal=KILL "$2" 2>/dev/null; '
        'if findmnt --mountpoint "$1" --types nfs,nfs4 >/dev/null; then umount --force --lazy "$1"; fi; '
        'for unit in "$2" "$3"; do ! test -e "/etc/systemd/system/$unit" || systemctl disable --now "$unit"; done'
    )
    gone = [
        Step(path, "not mounted", ("sh", "-c", script, "sh", path, entry["unit"], READ_AHEAD_UNIT), early=True)
        for path, entry in sorted(entries.items())
    ]
    return [*gone, *(_mount_again(path, entry) for path, entry in sorted(entries.items()) if "source" in entry)]


def _mount_again(path: str, entry: Mapping[str, Any]) -> Step:
    # What stands in /etc/fstab or in a unit of the user's comes by that, what was mounted by hand as it was.
    script = (
        'findmnt --mountpoint "$1" >/dev/null || systemctl start "$2" 2>/dev/null || '
        'mount --types nfs --options "$4" "$3" "$1"'
    )
    argv = ("sh", "-c", script, "sh", path, entry["unit"], entry["source"], entry["options"])
    return Step(path, f"mounted from {entry['source']}", argv)


def undo_server(entries: Entries) -> list[Step]:
    """The NFS server: with what it exported before, or off where there was none."""
    return [step for unit, entry in sorted(entries.items()) for step in _undo_server(unit, bool(entry["active"]))]


def _undo_server(unit: str, active: bool) -> list[Step]:
    # A unit that is gone with its package has nothing to put back.
    script = '! systemctl cat "$1" >/dev/null 2>&1 || systemctl "$2" "$3" "$1"'
    if not active:
        return [Step(unit, "off", ("sh", "-c", script, "sh", unit, "disable", "--now"))]
    return [
        Step(unit, "with its settings of before", ("sh", "-c", script, "sh", unit, "restart", "--")),
        Step("exports", "those of before", ("exportfs", "-ra")),
    ]


# Section by section, in the order of the steps.
SHARE: Mapping[str, Callable[[Entries], list[Step]]] = {"nfs_mount": undo_mount, "nfs_server": undo_server}
