"""What must be done to one node so that it is as the record of before.json says that it was.

The record is {schema, files, units, user_units, default_target, ...}. Files, units and the default target are put back
by the module `restored` itself, as `plan` says. Every other section belongs to the role that wrote it, through
`recorded.remember`, and is undone by one pure function here in UNDO: from the section's entries, {name: entry}, to the
list of `undo.Step`.

- A function does no I/O and needs nothing but the entries: the inventory may have changed since, or be gone.
- The node's own command line tools are all that a step may use. A step runs twice without harm.
- Steps with `early` run before the files are put back, the others afterwards and after `systemctl daemon-reload`. A
  daemon that must read a file of its own again is restarted by a step; nothing else restarts it.
- A step that fails is named, the other steps run all the same, and the record is kept for another try.
- A section without a function is refused before anything is put back.

The section `sysctl`, {"vm/swappiness": {"value": "60"}}, has the live values before our first change. The module
`managed_files` writes it for every file below /etc/sysctl.d, so a role that writes its drop-in with it need do no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from .names import DAEMON_FILE, ENGINE_UNIT_FILE, REGISTRY_UNIT_FILES
from .share_undo import SHARE
from .tuning_undo import TUNING
from .undo import Step
from .units import ENABLED, MASKED, Unit

Entries = Mapping[str, Mapping[str, Any]]
Undo = Callable[[Entries], list[Step]]

# Sections that the module itself puts back, or that it writes on the way.
OWN = ("schema", "files", "units", "user_units", "sessions", "default_target", "pending", "replaced")

# What must follow when a file of that folder, or of that name, was put back.
FOLLOWS = {"/etc/netplan": "netplan", DAEMON_FILE: "docker"}

# How units are put back, one after the other: a mask hides the state below it.
UNMASK, ENABLE, DISABLE, MASK = "unmask", "enable", "disable", "mask"

# Units of ours that are stopped and switched off before their file goes, or they and the links of an enabled one would
# stay.
OWN_UNITS = (ENGINE_UNIT_FILE, *REGISTRY_UNIT_FILES)


class RestoreError(ValueError):
    """The record cannot be put back; the text is one plain line without the host."""


@dataclass(frozen=True)
class Row:
    """One line of what a person sees: what is put back, how it is now and how it was before."""

    what: str
    now: str
    before: str


@dataclass(frozen=True)
class Plan:
    """What is to be put back on one node.

    Attributes:
        files: {path: entry as `recorded.file_entry` makes it} of the files that differ.
        units: {verb: units of the system}, in the order in which the verbs are called.
        user_units: The same for the units of all users' sessions.
        start: Units of the system that ran before and do not run now.
        sessions: {user id: units that ran in this user's session before and do not run now}.
        target: The entry of the default target, or None when it is right.
        pending: What must follow when the files are back: netplan, docker.
        rows: All of it, for a person.
    """

    files: Entries = field(default_factory=dict)
    units: Mapping[str, list[str]] = field(default_factory=dict)
    user_units: Mapping[str, list[str]] = field(default_factory=dict)
    start: list[str] = field(default_factory=list)
    sessions: Mapping[int, list[str]] = field(default_factory=dict)
    target: Mapping[str, Any] | None = None
    pending: frozenset[str] = frozenset()
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Now:
    """What the node is like: files as entries, units by scope, what runs in sessions by user id, the default target."""

    files: Entries
    units: Mapping[str, Unit]
    user_units: Mapping[str, Unit]
    sessions: Mapping[int, list[str]]
    target: Mapping[str, Any]


def undo_sysctl(entries: Entries) -> list[Step]:
    """The live values of kernel settings."""
    return [
        Step(name, entry["value"], ("sysctl", "-w", f"{name}={entry['value']}"), ("sysctl", "-n", name))
        for name, entry in sorted(entries.items())
    ]


def undo_links(entries: Entries) -> list[Step]:
    """The links that netplan was told about; one that had addresses gets them from the netplan files that are back."""
    return [step for name, entry in sorted(entries.items()) for step in _undo_link(name, entry)]


def _undo_link(name: str, entry: Mapping[str, Any]) -> Iterator[Step]:
    mtu = str(entry["mtu"])
    # netplan apply leaves what it once gave to a link that no file names any more.
    if not entry["addresses"]:
        given = ("ip", "-4", "-oneline", "address", "show", "dev", name, "scope", "global")
        yield Step(f"{name} addresses", "", _ip(name, "-4", "address", "flush", "dev", name, "scope", "global"), given)
    yield Step(f"{name} MTU", mtu, _ip(name, "link", "set", name, "mtu", mtu), ("cat", f"/sys/class/net/{name}/mtu"))
    if not entry["up"] and not entry["addresses"]:
        shown = ("ip", "-oneline", "link", "show", "dev", name, "up")
        yield Step(f"{name} up", "", _ip(name, "link", "set", name, "down"), shown)


def _ip(name: str, *arguments: str) -> tuple[str, ...]:
    """A call of ip that does nothing when the link is gone, as after a card was taken out."""
    return ("sh", "-c", 'test ! -e "/sys/class/net/$0" || exec ip "$@"', name, *arguments)


def undo_holds(entries: Entries) -> list[Step]:
    """The packages that we put on hold."""
    return [
        Step(f"hold of {name}", "", ("apt-mark", "unhold", name), ("apt-mark", "showhold", name))
        for name in sorted(entries)
    ]


# One line a section; the order here is the order of the steps.
UNDO: Mapping[str, Undo] = {
    "links": undo_links,
    "sysctl": undo_sysctl,
    **TUNING,
    **SHARE,
    "holds": undo_holds,
}


def steps(record: Mapping[str, Any], undo: Mapping[str, Undo] = UNDO) -> list[Step]:
    """The steps of all sections that other roles wrote. Raises RestoreError for a section that nobody can undo."""
    strange = sorted(set(record) - set(undo) - set(OWN))
    if strange:
        raise RestoreError(
            f"the record has the section {strange[0]}; limit: {', '.join(sorted([*undo, *OWN]))}; "
            "remedy: restore with the release that wrote it"
        )
    return [step for section, function in undo.items() for step in function(record.get(section, {}))]


def plan(record: Mapping[str, Any], now: Now) -> Plan:
    """Compare the record with the node. Units that are gone since are passed over."""
    files = {path: entry for path, entry in record["files"].items() if not same_file(entry, now.files[path])}
    units, user_units = record["units"], record["user_units"]
    verbs, user_verbs = _verbs(units, now.units), _verbs(user_units, now.user_units)
    ran = [name for name, entry in units.items() if name in now.units and _is_to_start(entry, now.units[name])]
    start = sorted(ran, key=_triggers_first)
    sessions = _sessions(record.get("sessions", {}), now.sessions)
    target = record.get("default_target")
    target = target if target and dict(target) != dict(now.target) else None
    rows = [
        *(Row(path, file_shown(now.files[path]), file_shown(entry)) for path, entry in files.items()),
        *_unit_rows(units, now.units),
        *(Row(f"{row.what} for all users", row.now, row.before) for row in _unit_rows(user_units, now.user_units)),
        *(Row(f"{unit} of user {user}", "inactive", "active") for user, names in sessions.items() for unit in names),
        *([Row("boot", now.target["name"], target["name"])] if target else []),
    ]
    pending = frozenset(record.get("pending", {})) | {follow for path in files for follow in _follows(path)}
    return Plan(files, verbs, user_verbs, start, sessions, target, pending, rows)


def same_file(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two entries of `recorded.file_entry` are of the same bytes, mode and owner."""
    keys = ("existed", "mode", "uid", "gid", "content")
    return all(one.get(key) == other.get(key) for key in keys)


def file_shown(entry: Mapping[str, Any]) -> str:
    """A file in some words, such as 0644 0:0 120 bytes; its text is in the diff."""
    if not entry["existed"]:
        return "no file"
    # Base64 has four characters for three bytes, the last ones filled up.
    content = entry["content"]
    size = len(content) // 4 * 3 - content.count("=")
    return f"{entry['mode']} {entry['uid']}:{entry['gid']} {size} bytes"


def folders_made(entries: Entries, path: str) -> list[str]:
    """The folders that we made for a file, the innermost first; they go when they are empty."""
    top = entries[path].get("folder")
    if not top:
        return []
    return [str(parent) for parent in PurePosixPath(path).parents if parent.is_relative_to(top)]


def table(rows: list[Row]) -> list[str]:
    """The rows as the lines of a table."""
    cells = [("what", "now", "before"), *((row.what, row.now or "none", row.before or "none") for row in rows)]
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True)).rstrip() for cell in cells]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _follows(path: str) -> Iterator[str]:
    for place in (path, str(PurePosixPath(path).parent)):
        if place in FOLLOWS:
            yield FOLLOWS[place]


def _verbs(before: Entries, now: Mapping[str, Unit]) -> dict[str, list[str]]:
    """The verb that brings each unit's file back to its state, as far as it can be seen before the masks are off."""
    found: dict[str, list[str]] = {UNMASK: [], ENABLE: [], DISABLE: [], MASK: []}
    for name, entry in before.items():
        verb = _verb(entry["state"], now[name].state) if name in now else None
        if verb:
            found[verb].append(name)
    return found


def _verb(before: str, now: str) -> str | None:
    if before == now:
        return None
    if before in MASKED:
        return MASK
    if now in MASKED:
        return UNMASK
    if before in ENABLED:
        return ENABLE
    return DISABLE if now in ENABLED else None


def _is_to_start(before: Mapping[str, Any], now: Unit) -> bool:
    """What ran although it was masked cannot be started."""
    return bool(before["active"]) and before["state"] not in MASKED and not now.active


def _triggers_first(name: str) -> bool:
    """A socket refuses to listen when its service runs already."""
    return name.endswith(".service")


def _unit_rows(before: Entries, now: Mapping[str, Unit]) -> Iterator[Row]:
    for name, entry in before.items():
        unit = now.get(name)
        if unit and (_verb(entry["state"], unit.state) or _is_to_start(entry, unit)):
            yield Row(name, _unit_shown(unit), _unit_shown(Unit(entry["state"], entry["active"])))


def _unit_shown(unit: Unit) -> str:
    return f"{unit.state}, active" if unit.active else unit.state


def _sessions(entries: Entries, now: Mapping[int, list[str]]) -> dict[int, list[str]]:
    """Only for users who have a session; in a new one everything starts by itself."""
    found: dict[int, list[str]] = {}
    for entry in entries.values():
        user = entry["user"]
        if user in now and entry["unit"] not in now[user]:
            found.setdefault(user, []).append(entry["unit"])
    return {user: sorted(names, key=_triggers_first) for user, names in found.items()}
