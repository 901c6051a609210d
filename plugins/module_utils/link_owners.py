"""Who configures which interface: what netplan files and profiles of NetworkManager say, without touching a machine.

The node has no YAML parser in its standard library. What is asked here is small enough for a few patterns: words that
are names of interfaces, and the `match` blocks that choose interfaces by their properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser, Error
from fnmatch import fnmatchcase

from .facts import Netdev

# `match: {name: "enp*"}`, and `match:` with the lines below it that are indented further.
_FLOW = re.compile(r"\bmatch[\"']?:\s*\{([^}]*)\}")
_BLOCK = re.compile(r"^( *)[\"']?match[\"']?: *\n((?:\1 +.*(?:\n|$)| *\n)*)", re.MULTILINE)
# A property with a value, a list in brackets, or a list with a dash on each line.
_PROPERTY = re.compile(
    r"(?<![\w-])(name|macaddress|driver)[\"']?:[ \t]*(\[[^\]]*\]|(?:\n[ \t]*-[ \t].*)+|[^,\n]*)",
)

# The states in which networkd has a .network file for a link and uses it (networkd-link.c).
_NETWORKD_STATE = re.compile(r"^ADMIN_STATE=(configuring|configured|failed)$", re.MULTILINE)
_NM_MANAGED = re.compile(r"^managed=true$", re.MULTILINE)
# What NetworkManager made up for a device that nobody configured; it gives way to every other configuration.
_NM_GENERATED = re.compile(r"^(nm-generated|volatile|external)=true$", re.MULTILINE)


def netplan_interfaces(text: str, netdevs: Mapping[str, Netdev]) -> list[str]:
    """The interfaces that a netplan file names outside of comments, as a key, as a value or by a `match`."""
    plain = "\n".join(line.split("#")[0].rstrip() for line in text.splitlines())
    words = set(re.findall(r"[\w.-]+", plain))
    matched = {name for body in _match_bodies(plain) for name in _matched(body, netdevs)}
    return sorted(words.intersection(netdevs) | matched)


def profile_interfaces(text: str, netdevs: Mapping[str, Netdev]) -> list[str]:
    """The interfaces that a profile of NetworkManager is bound to; none when it names none or is no profile.

    Bound means connection.interface-name, ethernet.mac-address or match.interface-name; where it has several of them an
    interface must fit each.
    """
    profile = ConfigParser(interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#",))
    try:
        profile.read_string(text)
    except Error:
        return []
    name = profile.get("connection", "interface-name", fallback="")
    macs = [profile.get(kind, "mac-address", fallback="").lower() for kind in ("ethernet", "802-3-ethernet")]
    patterns = [part.strip() for part in profile.get("match", "interface-name", fallback="").split(";")]
    bounds = [
        {n for n in netdevs if n == name} if name else None,
        {n for n, link in netdevs.items() if link["mac"] in macs} if any(macs) else None,
        {n for n in netdevs if _fits(n, patterns)} if any(patterns) else None,
    ]
    given = [bound for bound in bounds if bound is not None]
    return sorted(set.intersection(*given)) if given else []


def is_generated(profile: str) -> bool:
    """True for a profile that NetworkManager keeps in memory and wrote down without being told to."""
    return _NM_GENERATED.search(profile) is not None


def manager_of(networkd: str, network_manager: str) -> str | None:
    """Who configures a link, from the state files of both daemons (empty for one that does not run)."""
    if _NETWORKD_STATE.search(networkd):
        return "networkd"
    return "NetworkManager" if _NM_MANAGED.search(network_manager) else None


def _match_bodies(text: str) -> Iterator[str]:
    yield from _FLOW.findall(text)
    yield from (body for _, body in _BLOCK.findall(text))


def _matched(body: str, netdevs: Mapping[str, Netdev]) -> list[str]:
    """The interfaces with every property of one `match`; one without properties chooses all (netplan-yaml)."""
    wanted = {key: _values(raw) for key, raw in _PROPERTY.findall(body)}
    return [
        name
        for name, link in netdevs.items()
        if _any_fits(name, wanted.get("name", ["*"]))
        and _any_fits(link["driver"] or "", wanted.get("driver", ["*"]))
        and _any_fits(link["mac"], [mac.lower() for mac in wanted.get("macaddress", ["*"])])
    ]


def _values(raw: str) -> list[str]:
    text = raw.strip()
    if text.startswith("["):
        items = text.strip("[]").split(",")
    elif text.startswith("- "):
        items = [line.strip().removeprefix("-") for line in text.splitlines()]
    else:
        items = [text]
    return [item.strip().strip("\"'") for item in items]


def _any_fits(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    """The patterns of nm-settings: `!` before one excludes, `|` and `&` before one only say how it is combined."""
    plain = [pattern.lstrip("|&") for pattern in patterns if pattern]
    wanted = [pattern for pattern in plain if not pattern.startswith("!")]
    excluded = [pattern[1:] for pattern in plain if pattern.startswith("!")]
    return not _any_fits(name, excluded) and _any_fits(name, wanted or ["*"])
