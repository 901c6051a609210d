"""A host that is tuned as it should be, and the one way in which tests change it."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning import (
    FILES,
    MIB,
    THP,
    TuningWish,
    sysctl_path,
    wanted_files,
)

SWAPPINESS = "/proc/sys/vm/swappiness"
BOOST = "/proc/sys/vm/watermark_boost_factor"
POLICIES = tuple(f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in (0, 5))
SWAP = "/swap.img"
SWAP_UNIT = "swap.img.swap"


def wish(**changes) -> TuningWish:
    """What every part can be asked for, but for swap and the kernel's arguments."""
    whole = TuningWish(
        sysctl={
            "vm.swappiness": {"value": "1", "reason": "Answers must not wait for a disk."},
            "vm.watermark_boost_factor": {"value": "0", "reason": "It costs memory."},
        },
        margin=2 * GIB,
        journal_mib=256,
        memlock="unlimited",
        ssh_memory_mib=64,
        ssh_oom_score_adjust=-900,
        earlyoom=True,
        governor="performance",
        thp="madvise",
        floor=3 * GIB,
    )
    return replace(whole, **changes)


def swap(used: int = 0, **changes) -> dict:
    """A swap file of 16 GiB; `used` in kB."""
    return {"path": SWAP, "size": 16 * 1024 * 1024 - 4, "used": used, "priority": -2, "here": True} | changes


def ssh(**changes) -> dict:
    least = 64 * MIB
    guard = {"memory_min": least, "slice_memory_min": least, "in_force": least}
    return guard | {"oom_score_adjust": -900, "oom_score_adj": -1000} | changes


def fresh() -> dict:
    """A Spark as it comes: nothing of ours is there."""
    return {
        "container": False,
        "values": {
            SWAPPINESS: {"value": "60", "writable": True},
            BOOST: {"value": "15000", "writable": True},
            THP: {"value": "always", "writable": True},
            **{path: {"value": "schedutil", "writable": True} for path in POLICIES},
        },
        "files": dict.fromkeys(FILES),
        "swaps": [swap()],
        "swap_units": {SWAP_UNIT: "generated"},
        "journal": {"bytes": 4 * GIB, "stale": False},
        "ssh": ssh(memory_min=0, slice_memory_min=0, in_force=0, oom_score_adjust=0),
        "earlyoom": {"installed": False, "argv": []},
        "grub": True,
        "boot_arguments": ["root=/dev/nvme0n1p2", "ro", "quiet"],
        "kernel_arguments": ["root=/dev/nvme0n1p2", "ro", "quiet"],
        "first_footprint": None,
    }


def tuned(wanted: TuningWish | None = None, **changes) -> dict:
    """The same host after it was tuned, but for the changes."""
    wanted = wanted or wish()
    facts = fresh() | {"journal": {"bytes": 100 * MIB, "stale": False}, "ssh": ssh()} | changes
    values = {sysctl_path(name): setting["value"] for name, setting in wanted.sysctl.items()}
    values |= {THP: wanted.thp} | dict.fromkeys(POLICIES, wanted.governor)
    live = {path: {"value": value, "writable": True} for path, value in values.items()}
    facts = facts | {"values": live | changes.get("values", {})}
    return facts | {"files": changes.get("files", wanted_files(wanted, facts))}


def footprint(**changes) -> dict:
    units = {"cups.service": 9000, "systemd-journald.service": 22_000, "wireplumber.service (user)": 12_000}
    figures = {
        "processes": 190,
        "unread": 0,
        "units": units,
        "memory_available": 118_000_000,
        "swap_used": 0,
        "journal": 100 * MIB,
        "listeners": ["tcp 0.0.0.0:22 sshd", "tcp 127.0.0.1:631 cupsd"],
    }
    return figures | changes
