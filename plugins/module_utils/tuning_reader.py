"""Reads what the role host_tuning looks after: kernel settings, swap, journal, ssh, earlyoom, boot loader."""

from __future__ import annotations

from collections.abc import Sequence

from .facts import Earlyoom, Footprint, Journal, Live, SshGuard, Swap, Tuning
from .machine import Machine, json_or
from .names import RECORD_FILE
from .tuning import CPUFREQ, FILES, GOVERNOR, JOURNAL_FILE, THP, sysctl_path
from .tuning_swap import parse_swaps

UNITS = ("ssh.service", "system.slice", "earlyoom.service", "systemd-journald.service")
PROPERTIES = "Id,MemoryMin,OOMScoreAdjust,MainPID,ControlGroup,ExecMainStartTimestamp"

# UnitFileState of a unit that is there at the next boot: made from fstab, or enabled.
COMES_BACK = ("generated", "enabled", "static")


class TuningReader:
    """Reads one machine; `sysctls` are the names of the kernel settings to look at."""

    def __init__(self, machine: Machine, sysctls: Sequence[str]) -> None:
        """Remember where to read."""
        self._machine = machine
        self._sysctls = sysctls

    def read(self) -> Tuning:
        """Everything, with two calls of systemctl."""
        word, text = self._machine.word, self._machine.text
        units = parse_units(
            self._machine.run(
                ["systemctl", "show", *UNITS, "--all", "--timestamp=unix", f"--property={PROPERTIES}"]
            ).stdout
        )
        swaps = parse_units(
            self._machine.run(["systemctl", "show", "*.swap", "--all", "--property=Id,UnitFileState"]).stdout
        )
        return {
            "container": bool(word("run/systemd/container")),
            "values": self.values(),
            "files": {path: text(path.lstrip("/")) or None for path in FILES},
            "swaps": self.swaps(),
            "swap_units": {name: unit["UnitFileState"] for name, unit in swaps.items() if _comes_back(unit)},
            "journal": self.journal(units.get("systemd-journald.service", {})),
            "ssh": self.ssh(units.get("ssh.service", {}), units.get("system.slice", {})),
            "earlyoom": self.earlyoom(units.get("earlyoom.service", {})),
            "grub": self._machine.tool("usr/sbin/update-grub") is not None,
            "boot_arguments": boot_arguments(text("boot/grub/grub.cfg")),
            "kernel_arguments": text("proc/cmdline").split(),
            "first_footprint": self.first_footprint(),
        }

    def values(self) -> dict[str, Live]:
        """The kernel's files that are there, of the settings asked for and of the two that only /sys has."""
        policies = [f"{CPUFREQ}/{name}/{GOVERNOR}" for name in self._machine.names(CPUFREQ.lstrip("/"))]
        paths = [*(sysctl_path(name) for name in self._sysctls), THP, *policies]
        found = {path: self._machine.word(path.lstrip("/")) for path in paths}
        return {
            path: {"value": chosen(value), "writable": self._machine.writable(path.lstrip("/"))}
            for path, value in found.items()
            if value
        }

    def swaps(self) -> list[Swap]:
        """Every active swap, in the order of the kernel."""
        return [
            {"path": path, "size": size, "used": used, "priority": priority, "here": self._here(path)}
            for path, priority, size, used in parse_swaps(self._machine.text("proc/swaps"))
        ]

    def journal(self, unit: dict[str, str]) -> Journal:
        """The journal's size, and whether journald started before our drop-in was written."""
        started = number(unit.get("ExecMainStartTimestamp", "").lstrip("@"))
        size = sum(self._machine.bytes_on_disk(f"{place}/log/journal") for place in ("var", "run"))
        # Whole seconds; one that started within the second in which the file was written has read it.
        stale = bool(started) and int(self._machine.changed_at(JOURNAL_FILE.lstrip("/"))) > started
        return {"bytes": size, "stale": stale}

    def ssh(self, unit: dict[str, str], around: dict[str, str]) -> SshGuard:
        """The protection of ssh by its unit, and as its control group and its process have it."""
        pid, group = unit.get("MainPID", "0"), unit.get("ControlGroup", "")
        score = self._machine.word(f"proc/{pid}/oom_score_adj") if pid != "0" else ""
        least = self._machine.word(f"sys/fs/cgroup{group}/memory.min") if group else ""
        return {
            "memory_min": number(unit.get("MemoryMin", "")),
            "slice_memory_min": number(around.get("MemoryMin", "")),
            "in_force": number(least) if least else None,
            "oom_score_adjust": number(unit.get("OOMScoreAdjust", "")),
            "oom_score_adj": number(score) if score else None,
        }

    def earlyoom(self, unit: dict[str, str]) -> Earlyoom:
        """Whether it is there, and how it was started."""
        pid = unit.get("MainPID", "0")
        words = self._machine.text(f"proc/{pid}/cmdline") if pid != "0" else ""
        installed = self._machine.tool("usr/bin/earlyoom") is not None
        return {"installed": installed, "argv": words.rstrip("\0").split("\0") if words else []}

    def first_footprint(self) -> Footprint | None:
        """The footprint that was recorded before our first change."""
        record = json_or(self._machine.text(RECORD_FILE.lstrip("/")), {})
        footprints = record.get("footprint") if isinstance(record, dict) else None
        first: Footprint | None = (footprints or {}).get("first")
        return first

    def _here(self, path: str) -> bool:
        return self._machine.tool(path.lstrip("/")) is not None


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """What `systemctl show` says of several units, by their Id."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n")]
    return {block["Id"]: block for block in blocks if "Id" in block}


def chosen(value: str) -> str:
    """The choice in brackets, or the whole value where there are none."""
    return value.split("[")[1].split("]")[0] if "[" in value and "]" in value else value


def boot_arguments(text: str) -> list[str]:
    """The kernel arguments of the first entry of a grub.cfg."""
    lines = (line.split() for line in text.splitlines())
    return next((words[2:] for words in lines if words[:1] == ["linux"]), [])


def number(text: str) -> int:
    """A whole number; 0 for what systemd or the kernel says in words, such as `[not set]`."""
    return int(text) if text.lstrip("-").isdigit() else 0


def _comes_back(unit: dict[str, str]) -> bool:
    return unit.get("UnitFileState") in COMES_BACK
