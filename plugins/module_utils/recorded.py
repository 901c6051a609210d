"""What was on the node before our first change, kept so that it can be put back.

One file, written before the change that it describes; an entry that is there is never overwritten, so that a second run
does not record our own work as the user's.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from .names import RECORD_FILE

SCHEMA = 1

# Where the kernel shows its settings, and its network devices, as files.
SETTINGS = Path("/proc/sys")
NETDEVS = Path("/sys/class/net")
# The flag of a device that is administratively up.
IFF_UP = 1


def load(path: str = RECORD_FILE) -> dict[str, Any]:
    """The record, empty when there is none yet. Raises ValueError when the file is not one of ours."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {"schema": SCHEMA, "files": {}, "units": {}, "user_units": {}}
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    found = record.get("schema") if isinstance(record, dict) else None
    if found != SCHEMA:
        raise ValueError(f"{path} has schema {found}, this release reads {SCHEMA}")
    return dict(record)


def remember(section: str, entries: dict[str, Any], path: str = RECORD_FILE) -> list[str]:
    """Add the entries that the section does not know yet, and return their names. Raises ValueError like `load`."""
    record = load(path)
    known = record.setdefault(section, {})
    new = {name: entry for name, entry in entries.items() if name not in known}
    if new:
        known.update(new)
        _save(record, path)
    return sorted(new)


def forget(section: str, name: str, path: str = RECORD_FILE) -> None:
    """Take an entry out of the record, if it is there."""
    record = load(path)
    if name in record.get(section, {}):
        del record[section][name]
        _save(record, path)


def _save(record: dict[str, Any], path: str) -> None:
    write_atomically(Path(path), (json.dumps(record, indent=1, sort_keys=True) + "\n").encode(), 0o600)


def set_aside(path: str = RECORD_FILE) -> str:
    """Move a record that was put back out of the way, so that the next change is recorded anew; the new path."""
    aside = f"{path}.restored"
    Path(path).replace(aside)
    return aside


def file_entry(path: Path) -> dict[str, Any]:
    """A file as the record keeps it: its mode, owner and bytes, or the fact that there is none.

    Without a file, `folder` is the uppermost folder that would be made for it, None when its own is there.
    """
    if not path.exists():
        missing = [str(folder) for folder in path.resolve().parents if not folder.exists()]
        return {"existed": False, "folder": missing[-1] if missing else None}
    status = path.stat()
    content = base64.b64encode(path.read_bytes()).decode()
    return {
        "existed": True,
        "mode": f"{status.st_mode & 0o7777:04o}",
        "uid": status.st_uid,
        "gid": status.st_gid,
        "content": content,
    }


def setting_entries(text: str, settings: Path = SETTINGS) -> dict[str, Any]:
    """The live values of the kernel settings that a file of /etc/sysctl.d names, without those that cannot be read."""
    lines = (line.strip().lstrip("-") for line in text.splitlines() if not line.strip().startswith(("#", ";")))
    names = [_setting_path(name.strip()) for name, equals, _ in (line.partition("=") for line in lines) if equals]
    values = {name: _read_setting(settings / name) for name in names}
    return {name: {"value": value} for name, value in values.items() if value is not None}


def _setting_path(name: str) -> str:
    """Below /proc/sys; where the first separator is a slash, a dot belongs to a name such as that of a VLAN."""
    first = next((char for char in name if char in "./"), "/")
    return name if first == "/" else name.translate(str.maketrans("./", "/."))


def _read_setting(path: Path) -> str | None:
    try:
        return " ".join(path.read_text(encoding="utf-8").split())
    except OSError:
        return None


def link_names(text: str) -> list[str]:
    """All that may be a name of a network device in a netplan file: the keys that have a line to themselves."""
    return [line.strip().rstrip(":").strip("\"'") for line in text.splitlines()]


def link_entries(
    names: Collection[str], netdevs: Path = NETDEVS, addresses: Callable[[], str] | None = None
) -> dict[str, Any]:
    """Those network devices that are there: MTU in bytes, up or not, IPv4 addresses as CIDR."""
    named = sorted(path.name for path in netdevs.iterdir() if path.name in names)
    rows = json.loads((addresses or _shown_addresses)()) if named else []
    found = {row["ifname"]: [f"{one['local']}/{one['prefixlen']}" for one in row["addr_info"]] for row in rows if row}
    return {name: {**_link(netdevs / name), "addresses": found.get(name, [])} for name in named}


def _link(netdev: Path) -> dict[str, Any]:
    flags = int((netdev / "flags").read_text(encoding="ascii"), 16)
    return {"mtu": int((netdev / "mtu").read_text(encoding="ascii")), "up": bool(flags & IFF_UP)}


def _shown_addresses() -> str:
    argv = ["ip", "-json", "-4", "address", "show", "scope", "global"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def write_atomically(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it.

    `mode` is such as 0o644, `owner` the ids of user and group, None for those of the process.
    """
    # A link stays a link; its target is what gets the new content.
    path = path.resolve()
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if owner:
            os.chown(name, *owner)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
