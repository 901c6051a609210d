"""Which systemd units a headless node does without, and what must be done about them on one node.

The policy is data; this file turns it and the node's own list of units into the least list of actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Never touched, whatever a policy says: each of them is the way in, the network, the engine, or the log.
KEEP = frozenset(
    {
        "ssh.service",
        "sshd.service",
        "ssh.socket",
        "docker.service",
        "docker.socket",
        "containerd.service",
        "dbus.service",
        "dbus-broker.service",
        "dbus.socket",
        "lldpd.service",
        "NetworkManager.service",
        "nvidia-cdi-refresh.service",
        "nvidia-persistenced.service",
        "polkit.service",
        "rdma-load-modules@rdma.service",
        "systemd-journald.service",
        "systemd-logind.service",
        "systemd-networkd.service",
        "systemd-resolved.service",
        "wpa_supplicant.service",
    }
)

# Masked, it could not be started to update firmware either.
NEVER_MASKED = frozenset({"fwupd.service"})

ACTIONS = ("mask", "disable", "stop")


@dataclass(frozen=True)
class Unit:
    """One unit as systemd shows it: its unit file state (enabled, static, masked ...) and whether it is active."""

    state: str
    active: bool


@dataclass(frozen=True)
class Change:
    """What must be done to one unit: `verb` is mask, disable or stop; stopping goes with each of them."""

    unit: str
    verb: str
    before: Unit


class PolicyError(ValueError):
    """The policy names a unit that must stay; the text is one plain line without the host."""


def plan(policy: Iterable[Mapping[str, Any]], units: Mapping[str, Unit], keep: Iterable[str] = ()) -> list[Change]:
    """The changes that a node needs, in the order of the policy; units that the node lacks need none.

    `policy` is a list of {units, action}. `keep` is the user's list of units that stay as they are. Raises PolicyError
    when the policy names a unit that no node can do without.
    """
    kept, changes = set(keep), []
    for entry in policy:
        for name in entry["units"]:
            _refuse_harm(name, entry["action"])
            unit = units.get(name)
            if unit and name not in kept and not _settled(entry["action"], unit):
                changes.append(Change(name, entry["action"], unit))
    return changes


def _refuse_harm(name: str, action: str) -> None:
    if name in KEEP:
        raise PolicyError(f"{name} is to be turned off; limit: it must stay; remedy: take it out of the policy")
    if name in NEVER_MASKED and action == "mask":
        raise PolicyError(f"{name} is to be masked; limit: disable, or its updates break; remedy: set action: disable")


def _settled(action: str, unit: Unit) -> bool:
    """True when the unit already is as the action leaves it."""
    if unit.active:
        return False
    if action == "mask":
        return unit.state in ("masked", "masked-runtime")
    return action == "stop" or unit.state not in ("enabled", "enabled-runtime")


def parse_units(files: Iterable[Mapping[str, Any]], loaded: Iterable[Mapping[str, Any]]) -> dict[str, Unit]:
    """The node's units from the JSON of `systemctl list-unit-files` and of `systemctl list-units --all`."""
    active = {row["unit"] for row in loaded if row.get("active") in ("active", "activating", "reloading")}
    states = {row["unit_file"]: row["state"] for row in files}
    return {name: Unit(state, name in active) for name, state in states.items()}
