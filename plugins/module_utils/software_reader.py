"""Reads what an update may change: packages, kernels, firmware, masked units, files of ours, and the baseline."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from .boot_menu import KERNEL, next_kernel, parse_environment, parse_menu
from .facts import Others, Software, Toolkit
from .machine import Machine, json_or
from .names import BASELINE_FILE, LIBRARY, RECORD_FILE
from .watched import WATCHED, matches

# What updates by itself: Ubuntu's timers and daemon, the graphical tools', and NVIDIA's dashboard.
UPDATERS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "unattended-upgrades.service",
    "packagekit.service",
    "snapd.service",
    "dgx-dashboard-admin.service",
)

DPKG = ("dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${Package} ${Version}\\n")
# Second letters of dpkg's abbreviated states (dpkg-query(1)).
INSTALLED = "i"
HALF_DONE = "HUFWt"

TOOLKIT_FILE = "etc/nvidia-container-runtime/config.toml"
_MODE = re.compile(r'^\s*mode\s*=\s*"([^"]*)"', re.MULTILINE)
UNITS = "etc/systemd/system"
USER_UNITS = "etc/systemd/user"
MASK = "null"


class SoftwareReader:
    """Reads one machine."""

    def __init__(self, machine: Machine) -> None:
        """Remember where to read."""
        self._machine = machine

    def read(self) -> Software:
        """Everything, with one call of dpkg-query and one of systemctl."""
        word, text = self._machine.word, self._machine.text
        packages = parse_packages(self._machine.run(DPKG).stdout)
        record = json_or(text(RECORD_FILE.lstrip("/")), {})
        return {
            "packages": {name: version for name, (_, version) in packages.items() if matches(name, WATCHED)},
            "others": others(packages),
            "broken": sorted(name for name, (state, _) in packages.items() if state[1] in HALF_DONE),
            "held": held(packages, record),
            "kernels": self.kernels(),
            "next_kernel": next_kernel(
                parse_menu(text("boot/grub/grub.cfg")), parse_environment(text("boot/grub/grubenv"))
            ),
            "reboot_required": self.reboot_required(),
            "system_firmware": " ".join(word(f"sys/class/dmi/id/bios_{name}") for name in ("version", "date")).strip(),
            "masked": [*self.masked(UNITS, ""), *self.masked(USER_UNITS, "user/")],
            "boot_target": self._machine.target(f"{UNITS}/default.target"),
            "toolkit": self.toolkit(),
            "files": self.files(record),
            "updaters": self.updaters(),
            "baseline": self.baseline(),
        }

    def reboot_required(self) -> list[str]:
        """The packages for which the distribution asks for a boot, or the file with which it does so without a name."""
        names = self._machine.text("run/reboot-required.pkgs").split()
        asked = self._machine.tool("run/reboot-required")
        return list(dict.fromkeys(names)) or (["/run/reboot-required"] if asked else [])

    def kernels(self) -> list[str]:
        """The releases of the kernels under /boot."""
        names = self._machine.names("boot")
        return [name.removeprefix(KERNEL) for name in names if name.startswith(KERNEL)]

    def masked(self, folder: str, prefix: str) -> list[str]:
        """The units whose file there is a link to nowhere."""
        names = self._machine.names(folder)
        return [f"{prefix}{name}" for name in names if self._machine.target(f"{folder}/{name}") == MASK]

    def toolkit(self) -> Toolkit | None:
        """How NVIDIA's container runtime is configured, None where it is not installed."""
        text = self._machine.text(TOOLKIT_FILE)
        found = _MODE.search(text)
        return {"mode": found[1] if found else "auto", "digest": digest(text)} if text else None

    def files(self, record: Any) -> dict[str, str | None]:
        """Short hashes of the files that we wrote, by the record; those of our library count as one."""
        paths = sorted(record.get("files", {})) if isinstance(record, dict) else []
        library = [path for path in paths if path.startswith(f"{LIBRARY}/")]
        found = {path: self._digest(path) for path in paths if path not in library}
        if library:
            found[LIBRARY] = digest("".join(f"{path} {self._digest(path)}\n" for path in library))
        return found

    def updaters(self) -> list[str]:
        """Those of the updaters that are active."""
        shown = self._machine.run(["systemctl", "is-active", *UPDATERS]).stdout.splitlines()
        return [name for name, state in zip(UPDATERS, shown, strict=False) if state in ("active", "activating")]

    def baseline(self) -> dict[str, Any] | None:
        """The note of the last proof, None where there is none of ours."""
        found = json_or(self._machine.text(BASELINE_FILE.lstrip("/")), None)
        return found if isinstance(found, dict) else None

    def _digest(self, path: str) -> str | None:
        name = path.lstrip("/")
        return digest(self._machine.text(name)) if self._machine.tool(name) else None


def parse_packages(text: str) -> dict[str, tuple[str, str]]:
    """{package: (abbreviated state, version)} of all that is installed, or half so; removed ones are left out."""
    rows = (line.split() for line in text.splitlines())
    full = ((state, name, version) for state, name, version in (row for row in rows if len(row) == 3))
    return {name: (state, version) for state, name, version in full if state[1] in INSTALLED + HALF_DONE}


def others(packages: dict[str, tuple[str, str]]) -> Others:
    """All other packages, in short."""
    rows = sorted(f"{name} {version}" for name, (_, version) in packages.items() if not matches(name, WATCHED))
    return {"count": len(rows), "digest": digest("\n".join(rows))}


def held(packages: dict[str, tuple[str, str]], record: Any) -> dict[str, int]:
    """The packages on hold, with the time at which we put them on hold."""
    ours = record.get("holds", {}) if isinstance(record, dict) else {}
    names = sorted(name for name, (state, _) in packages.items() if state[0] == "h")
    return {name: int(ours.get(name, {}).get("since", 0)) for name in names}


def digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
