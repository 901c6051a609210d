"""How the sections of the record that the role host_tuning writes are undone; see `restore.py` for the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .tuning import SWAP_UNIT
from .undo import Step

Entries = Mapping[str, Mapping[str, Any]]

# Both read their own files only when they start.
CAPPED = "with the cap of before"
LINES = "with the arguments of before"


def undo_sysfs(entries: Entries) -> list[Step]:
    """Huge pages and governors: files of /sys that hold one word, or all choices with one in brackets."""
    return [
        Step(
            path,
            entry["value"],
            ("sh", "-c", 'printf %s "$1" >"$2"', "sh", entry["value"], path),
            ("sh", "-c", r"""sed 's/.*\[\(.*\)\].*/\1/' "$1" """, "sh", path),
        )
        for path, entry in sorted(entries.items())
    ]


def undo_swap_file(entries: Entries) -> list[Step]:
    """Our own swap file goes, while its unit is still there."""
    script = 'systemctl disable --now "$1"; ! grep -q "^$2 " /proc/swaps && rm -f "$2"'
    return [Step(path, "absent", ("sh", "-c", script, "sh", SWAP_UNIT, path), early=True) for path in sorted(entries)]


def undo_swap_units(entries: Entries) -> list[Step]:
    """Swaps that come back at a boot."""
    read = ("systemctl", "is-enabled")
    return [
        Step(unit, entry["state"], ("systemctl", "unmask", unit), (*read, unit))
        for unit, entry in sorted(entries.items())
    ]


def undo_swap(entries: Entries) -> list[Step]:
    """Swaps that were on; a priority below 0 is the kernel's own choice."""
    # To turn on what is on already is an error.
    script = 'grep -q "^$1 " /proc/swaps || { [ "$2" -ge 0 ] && swapon --priority "$2" "$1"; } || swapon "$1"'
    shown = ("sh", "-c", 'grep -q "^$1 " /proc/swaps && echo on', "sh")
    return [
        Step(path, "on", ("sh", "-c", script, "sh", path, str(entry["priority"])), (*shown, path))
        for path, entry in sorted(entries.items())
    ]


def undo_journal(entries: Entries) -> list[Step]:
    """Journald reads its own configuration again. What was cut from the journal does not come back."""
    return [Step(unit, CAPPED, ("systemctl", "restart", unit)) for unit in sorted(entries)]


def undo_earlyoom(entries: Entries) -> list[Step]:
    """Earlyoom takes its former arguments."""
    return [Step(unit, LINES, ("systemctl", "try-restart", unit)) for unit in sorted(entries)]


def undo_grub(entries: Entries) -> list[Step]:
    """The boot menu is written anew, for the kernels of today; the kernel arguments go with the next boot."""
    return [Step("boot menu", "without our kernel arguments", (command,)) for command in sorted(entries)]


def undo_footprint(entries: Entries) -> list[Step]:
    """Figures only; there is nothing to undo."""
    del entries
    return []


# Section by section, in the order of the steps.
TUNING: Mapping[str, Callable[[Entries], list[Step]]] = {
    "swap_file": undo_swap_file,
    "sysfs": undo_sysfs,
    "swap_units": undo_swap_units,
    "swap": undo_swap,
    "journal": undo_journal,
    "earlyoom": undo_earlyoom,
    "grub": undo_grub,
    "footprint": undo_footprint,
}
