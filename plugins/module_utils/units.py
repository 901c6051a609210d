"""Which systemd units a headless node does without, and what must be done about them on one node.

The policy is data; this file turns it and the node's own list of units into the least list of actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

# Never touched, whatever a policy says, and why. A pattern means a unit together with its socket and path.
KEEP: Mapping[str, str] = {
    "ssh*": "it is the way in",
    "sssd*": "it knows who may log in",
    "systemd-*": "it is the log, the network, the names or the logins",
    "dbus*": "everything else speaks through it",
    "polkit*": "it decides who may do what",
    "user@*": "it runs the sessions",
    "getty@*": "it is the way in when the network is gone",
    "serial-getty@*": "it is the way in when the network is gone",
    "NetworkManager*": "it may carry the management address",
    "netplan-*": "it may carry the management address",
    "networkd-dispatcher*": "it may carry the management address",
    "docker*": "the engine runs in it",
    "snap.docker.*": "the engine runs in it",
    "containerd*": "the engine runs in it",
    "nvidia-*": "the GPU needs it",
    "rdma-*": "the rails need it",
    "ibacm*": "the rails need it",
    "lldpd*": "it tells the switch who is here",
    "sparkwright-*": "it is the engine",
}

# The way in of a node that is managed over Wi-Fi; of no use on others.
WIFI = "wpa_supplicant.service"
# Masked, it could not be started to update firmware either.
NEVER_MASKED = frozenset({"fwupd.service"})
# Stopping one of them ends every session on its screens.
DISPLAY_MANAGERS = frozenset({"gdm.service", "gdm3.service", "lightdm.service", "sddm.service"})
# Names in .local resolve through this one.
NAMES_SERVICE = "avahi-daemon.service"

ACTIONS = ("mask", "disable", "stop")
MASKED = ("masked", "masked-runtime")
ENABLED = ("enabled", "enabled-runtime")
# What starts a service of the same name when something is asked of it.
TRIGGERS = ("socket", "path")
# Types of sessions in which a person sits before a desktop; `tty` is a text console or SSH.
DESKTOPS = ("x11", "wayland", "mir")


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


@dataclass(frozen=True)
class Session:
    """A person before a desktop: the account, the session's id and its type, such as wayland."""

    user: str
    id: str
    type: str


class PolicyError(ValueError):
    """The policy cannot be carried out; the text is one plain line without the host."""


def choose(
    policy: Iterable[Mapping[str, Any]], switches: Mapping[str, bool | None], local_names: Sequence[str] = ()
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The entries of the policy that are on, and warnings about them.

    `switches` are the user's {class: on}; without one an entry is as its key `on` says. `local_names` are names in
    .local by which the inventory reaches nodes: their service then stays, unless its class is switched on by name.
    """
    chosen, warnings = [], []
    for entry in policy:
        switch = switches.get(entry["name"])
        if not (entry.get("on", True) if switch is None else switch):
            continue
        names = NAMES_SERVICE in entry["units"] and local_names
        if names:
            warnings.append(_local_warning(entry["name"], local_names, bool(switch)))
        if switch or not names:
            chosen.append(entry)
    return chosen, warnings


def _local_warning(name: str, local_names: Sequence[str], off: bool) -> str:
    uses = f"the inventory uses {', '.join(local_names)}"
    if off:
        return f"{uses}, which resolves no longer once {NAMES_SERVICE} is off; remedy: set ansible_host to addresses"
    return (
        f"{NAMES_SERVICE} stays on, because {uses}; remedy: set ansible_host to addresses, "
        f"or set headless_classes.{name} to true"
    )


def held_back(policy: Iterable[Mapping[str, Any]], units: Mapping[str, Unit]) -> dict[str, str]:
    """The entries, by name, that this node cannot do without, each with the active unit that needs it."""
    found = {}
    for entry in policy:
        active = (name for name, unit in units.items() if unit.active and _matches(name, entry.get("unless", ())))
        needed_by = next(active, None)
        if needed_by:
            found[entry["name"]] = needed_by
    return found


def plan(
    policy: Iterable[Mapping[str, Any]],
    units: Mapping[str, Unit],
    keep: Sequence[str] = (),
    unmaskable: Iterable[str] = (),
) -> list[Change]:
    """The changes that a node needs, in the order of the policy; units that the node lacks need none.

    `policy` is a list of {units, action}, in which the first entry that names a unit decides. `keep` is the user's list
    of units that stay as they are, patterns too. `unmaskable` units have their file where a mask would lie: they are
    disabled. Raises PolicyError when the policy names a unit that no node can do without.
    """
    changes: dict[str, Change | None] = {}
    for entry in policy:
        for name in entry["units"]:
            _refuse_harm(name, entry["action"])
        for name in expand(entry["units"], units):
            if name not in changes and not _stays(name, keep):
                action = "disable" if entry["action"] == "mask" and name in set(unmaskable) else entry["action"]
                changes[name] = _change(name, action, units[name])
    return [change for change in changes.values() if change]


def expand(names: Iterable[str], units: Mapping[str, Unit]) -> Iterator[str]:
    """The units of the node that the names mean; patterns are looked up, and what triggers a service comes first."""
    for name in names:
        for found in [name] if name in units else sorted(unit for unit in units if fnmatchcase(unit, name)):
            yield from (other for other in family(found) if other != found and other in units)
            yield found


def family(name: str) -> tuple[str, ...]:
    """A service with the socket and the path of the same name; anything else alone."""
    stem, _, kind = name.rpartition(".")
    return (*(f"{stem}.{trigger}" for trigger in TRIGGERS), name) if kind == "service" else (name,)


def unknown(names: Iterable[str], units: Mapping[str, Unit]) -> list[str]:
    """The names that mean no unit of the node, sorted."""
    return sorted({name for name in names if not any(True for _ in expand([name], units))})


def _refuse_harm(name: str, action: str) -> None:
    reason = next((reason for pattern, reason in KEEP.items() if fnmatchcase(name, pattern)), None)
    if reason:
        raise PolicyError(
            f"{name} is to be turned off; limit: it must stay, as {reason}; remedy: take it out of the policy"
        )
    if name in NEVER_MASKED and action == "mask":
        raise PolicyError(f"{name} is to be masked; limit: disable, or its updates break; remedy: set action: disable")


def refuse_to_log_out(changes: Iterable[Change], sessions: Sequence[Session]) -> None:
    """Raise PolicyError when a display manager is to be stopped under somebody who sits before it."""
    managers = [change.unit for change in changes if change.unit in DISPLAY_MANAGERS and change.before.active]
    if managers and sessions:
        people = " and ".join(f"{person.user} (session {person.id}, {person.type})" for person in sessions)
        raise PolicyError(
            f"stopping {managers[0]} ends the desktop of {people}; limit: nobody logged in there; remedy: log out, "
            "set headless_end_sessions: true, or keep it by headless_classes.desktop: false"
        )


def _stays(name: str, keep: Sequence[str]) -> bool:
    """True when the unit, or one that belongs to it, is on a list of those that stay."""
    stem, _, kind = name.rpartition(".")
    related = family(f"{stem}.service") if kind in TRIGGERS else family(name)
    return any(_matches(relative, [*KEEP, *keep]) for relative in related)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _change(name: str, action: str, unit: Unit) -> Change | None:
    """The change that makes the unit as the action leaves it, or None when it is so already."""
    if action == "mask" and unit.state not in (*MASKED, "alias"):
        return Change(name, "mask", unit)
    if action == "disable" and unit.state in ENABLED:
        return Change(name, "disable", unit)
    return Change(name, "stop", unit) if unit.active else None


def parse_units(files: Iterable[Mapping[str, Any]], loaded: Iterable[Mapping[str, Any]]) -> dict[str, Unit]:
    """The node's units from the JSON of `systemctl list-unit-files` and of `systemctl list-units --all`."""
    active = set(parse_active(loaded))
    states = {row["unit_file"]: row["state"] for row in files}
    return {name: Unit(state, name in active) for name, state in states.items()}


def parse_active(loaded: Iterable[Mapping[str, Any]]) -> list[str]:
    """The units that run, or are about to, from the JSON of `systemctl list-units --all`."""
    return [row["unit"] for row in loaded if row.get("active") in ("active", "activating", "reloading")]


def user_managers(active: Iterable[str]) -> list[int]:
    """The ids of the users who have a session manager, from the names of the active units."""
    names = (name.removeprefix("user@").removesuffix(".service") for name in active if name.startswith("user@"))
    return sorted(int(name) for name in names if name.isdigit())


def parse_sessions(text: str) -> list[Session]:
    """Those who sit before a desktop, from `loginctl show-session` of all sessions; a login screen is nobody."""
    found = []
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("Class") == "user" and values.get("Type") in DESKTOPS:
            found.append(Session(values.get("Name", ""), values.get("Id", ""), values["Type"]))
    return found
