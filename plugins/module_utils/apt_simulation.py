"""What `apt-get --simulate dist-upgrade` says it would do, as data."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Ubuntu gives some updates to a part of all machines first, chosen by this. With one for all nodes they stay alike.
SAME_PHASE = ("-o", "APT::Machine-ID=537061726b7772696768740000000000")
SIMULATE = ("apt-get", "--simulate", "-o", "Debug::NoLocking=true", *SAME_PHASE, "dist-upgrade")
_INSTALL = re.compile(r"Inst (\S+)(?: \[([^]]*)\])? \((\S+) .*")
_REMOVE = re.compile(r"(?:Remv|Purg) (\S+)(?: \[([^]]*)\])?.*")
_CONFIGURE = re.compile(r"Conf (\S+) \((\S+) .*")
_KEPT = "The following packages have been kept back:"


@dataclass(frozen=True)
class Change:
    """The version that is there, empty where the package is new, and the one that comes."""

    old: str
    new: str


@dataclass(frozen=True)
class AptPlan:
    """One node's update: what is installed, what goes with its version, and what stays although a newer one exists.

    `configure` are packages that are unpacked already and only have to be set up.
    """

    install: Mapping[str, Change] = field(default_factory=dict)
    remove: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    configure: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.install or self.remove or self.configure)

    @property
    def digest(self) -> str:
        """A short hash of what would be done, to see whether it is still the same."""
        return hashlib.sha256(json.dumps(self.as_data(), sort_keys=True).encode()).hexdigest()[:12]

    def after(self, installed: Mapping[str, str]) -> dict[str, str]:
        """The versions of these packages after the update, with what comes new."""
        left = {name: version for name, version in installed.items() if name not in self.remove}
        return left | {name: change.new for name, change in self.install.items()}

    def as_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "kept": list(self.kept), "configure": list(self.configure)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> AptPlan:
        """The plan that `as_data` made data of."""
        install = {name: Change(**change) for name, change in data["install"].items()}
        return cls(install, dict(data["remove"]), tuple(data["kept"]), tuple(data["configure"]))


def parse_simulation(text: str) -> AptPlan:
    """The plan in the output of SIMULATE, in the C locale. A foreign architecture stays a part of the name."""
    lines = text.splitlines()
    installs = [found for line in lines if (found := _INSTALL.match(line))]
    removals = [found for line in lines if (found := _REMOVE.match(line))]
    install = {found[1]: Change(found[2] or "", found[3]) for found in installs}
    configured = [found[1] for line in lines if (found := _CONFIGURE.match(line))]
    return AptPlan(
        install=install,
        remove={found[1]: found[2] or "" for found in removals if found[1] not in install},
        kept=tuple(_kept(lines)),
        configure=tuple(name for name in configured if name not in install),
    )


def _kept(lines: list[str]) -> list[str]:
    """The names below the heading, which are indented."""
    if _KEPT not in lines:
        return []
    names: list[str] = []
    for line in lines[lines.index(_KEPT) + 1 :]:
        if not line.startswith(" "):
            break
        names += line.split()
    return names
