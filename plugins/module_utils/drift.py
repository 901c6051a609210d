"""What changed since a node last served, and what is to be thought of it. Pure: two lists of items in, drift out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .baseline import NONE, TRAPPED, Items, differing
from .debian_versions import DebianVersion
from .intent import Intent
from .names import LIBRARY
from .watched import CONTAINERS, DESKTOP, DRIVERS, FABRIC, VITAL, matches


class Severity(StrEnum):
    """What is to be thought of it, from least to worst."""

    # Noted; the gates before the next launch prove that it works.
    HARMLESS = "harmless"
    # Ours: the roles put it back.
    OURS = "put back"
    # Nobody but the user can know whether it is meant.
    DECIDE = "decide"
    # Known to break the cluster.
    REFUSE = "refuse"


@dataclass(frozen=True)
class Drift:
    """One item that differs.

    `stops` is whether putting it back disturbs an engine that serves, `reboots` whether it takes a boot.
    """

    name: str
    was: str
    now: str
    severity: Severity
    remedy: str = ""
    stops: bool = False
    reboots: bool = False

    @property
    def area(self) -> str:
        """The first word of its name."""
        return self.name.split(" ", 1)[0]

    def __str__(self) -> str:
        """In words, such as `kernel is 6.17.0-1019-nvidia, it was 6.17.0-1008-nvidia`."""
        if self.was == NONE:
            return f"{self.name} is new ({self.now})"
        if self.now == NONE:
            return f"{self.name} is gone, it was {self.was}"
        return f"{self.name} is {self.now}, it was {self.was}"


@dataclass(frozen=True)
class _Change:
    """What a judgement looks at; `name` is without its area."""

    name: str
    was: str
    now: str
    intent: Intent


@dataclass(frozen=True)
class _View:
    """What a judgement says."""

    severity: Severity
    remedy: str = ""
    stops: bool = False
    reboots: bool = False


HARMLESS = _View(Severity.HARMLESS)
OURS = _View(Severity.OURS, "playbooks/reprovision.yml puts it back")
OURS_STOPPED = _View(Severity.OURS, "playbooks/reprovision.yml puts it back", stops=True)
NO_KHO = "kho=off"
LIVE = "put it back, or accept it by os_update_accept"


def _decide(remedy: str = LIVE) -> _View:
    return _View(Severity.DECIDE, remedy)


def drift_of(was: Items, now: Items, intent: Intent) -> list[Drift]:
    """Everything that differs on one node; what no judgement knows must be decided, never hidden."""
    return [_drift(name, was.get(name, NONE), now.get(name, NONE), intent) for name in differing(was, now)]


def _drift(name: str, was: str, now: str, intent: Intent) -> Drift:
    area, _, rest = name.partition(" ")
    view = _judgement(name, area)(_Change(rest, was, now, intent))
    if view.severity is Severity.DECIDE and matches(name, intent.updates.accept):
        view = _View(Severity.HARMLESS, "accepted by os_update_accept")
    return Drift(name, was, now, view.severity, view.remedy, view.stops, view.reboots)


def _judgement(name: str, area: str) -> Callable[[_Change], _View]:
    found = _JUDGEMENTS.get(name) or _JUDGEMENTS.get(area)
    return found or (lambda _: _decide(f"this release does not know it; {LIVE}"))


def _arguments(change: _Change) -> _View:
    """Ours that are missing come back with a boot; what is new and not ours is the user's or the vendor's."""
    ours, was, now = set(change.intent.tuning.kernel_arguments), set(change.was.split()), set(change.now.split())
    if ours - now:
        return _View(Severity.OURS, "playbooks/reprovision.yml puts it back and reboots where it may", True, True)
    return HARMLESS if was ^ now <= ours else _decide()


def _package(change: _Change) -> _View:
    """Newer ones are what updates are for; a piece that the cluster stands on must not go, and nothing go back."""
    if matches(change.name, DESKTOP):
        return OURS if change.was == NONE else HARMLESS
    needed = matches(change.name, (*DRIVERS, *FABRIC, *CONTAINERS)) and not of_one_kernel(change.name)
    if change.now == NONE:
        return _decide(f"install {change.name} again, or accept it by os_update_accept") if needed else HARMLESS
    if change.was != NONE and DebianVersion(change.now) < DebianVersion(change.was):
        return _decide(f"it is older than before: {LIVE}")
    return HARMLESS


def of_one_kernel(package: str) -> bool:
    """Whether it goes with a kernel, or a version, that it names: linux-modules-nvidia-580-open-6.17.0-1008-nvidia."""
    return re.search(r"\d-\d", package) is not None


def _unit(change: _Change) -> _View:
    return OURS if change.now == NONE else HARMLESS


def _file(change: _Change) -> _View:
    """Files that systemd or netplan read are not written while the engine serves; a new one was written by us."""
    if change.was == NONE:
        return HARMLESS
    return OURS_STOPPED if change.name.startswith(("/etc/systemd/", "/etc/netplan/", LIBRARY)) else OURS


def _netplan(change: _Change) -> _View:
    rails = {rail.netdev for rail in change.intent.rails if rail.netdev}
    named = rails & set(change.now.split())
    return _decide(f"take {' and '.join(sorted(named))} out of {change.name}") if named else HARMLESS


def _swap(change: _Change) -> _View:
    return _decide() if change.intent.tuning.swap == "keep" else OURS_STOPPED


def _cma(change: _Change) -> _View:
    """KHO took it; the argument that switches it off comes with a boot."""
    if TRAPPED in change.now and NO_KHO in change.intent.tuning.kernel_arguments:
        return _View(Severity.OURS, "playbooks/reprovision.yml reboots it where it may", stops=True, reboots=True)
    if TRAPPED in change.now:
        remedy = "set host_tuning_kernel_arguments: [kho=off] and reboot, or boot the kernel of before"
        return _View(Severity.REFUSE, remedy, reboots=True)
    return HARMLESS


def _hold(change: _Change) -> _View:
    if change.now != NONE:
        return HARMLESS
    return OURS if change.name in change.intent.updates.hold else _decide(f"apt-mark hold {change.name}, or accept it")


def _always(view: _View) -> Callable[[_Change], _View]:
    return lambda _: view


# By the whole name, or by its area.
_JUDGEMENTS: Mapping[str, Callable[[_Change], _View]] = {
    "kernel arguments": _arguments,
    "kernel": _always(HARMLESS),
    "driver": lambda change: HARMLESS if change.now != NONE else _decide("repair the driver until nvidia-smi answers"),
    "os": _always(HARMLESS),
    "firmware": _always(HARMLESS),
    "memory total": _always(_decide("set the memory option of the firmware as before, or accept it")),
    "memory CMA": _cma,
    "memory swap": _swap,
    "netplan": _netplan,
    "link": _always(OURS_STOPPED),
    # Looked up again at every start.
    "gid": _always(HARMLESS),
    "runtime Docker": _always(HARMLESS),
    "runtime names": _always(_decide("run `nvidia-ctk runtime configure --runtime=docker`, or accept it")),
    "runtime toolkit": _always(
        _decide("set the mode of before in config.toml, or accept it once a container sees the GPU")
    ),
    "image": _always(_decide("run site.yml, which distributes the image, or accept it")),
    "weights": _always(_decide("run site.yml, which copies the weights, or accept it")),
    "serving": _always(HARMLESS),
    "sysctl": _always(OURS),
    "package": _package,
    "packages": _always(HARMLESS),
    "unit": _unit,
    "boot": _always(OURS),
    "file": _file,
    "hold": _hold,
}

# What all nodes must have alike, as patterns of names: half updated, they do not serve together.
ALIKE = (
    "kernel",
    "driver",
    "runtime toolkit",
    "runtime Docker",
    *(f"package {pattern}" for pattern in VITAL),
)
# What is better alike.
BETTER_ALIKE = ("os *", "firmware *")


def uneven(nodes: Mapping[str, Items], patterns: Sequence[str] = ALIKE) -> dict[str, list[Drift]]:
    """What a node has otherwise than most of the others, by host; what older kernels left behind does not count."""
    every = {name for items in nodes.values() for name in items if matches(name, patterns)}
    names = sorted(name for name in every if not (name.startswith("package ") and of_one_kernel(name)))
    found: dict[str, list[Drift]] = {host: [] for host in nodes}
    for name in names:
        values = {host: items.get(name, NONE) for host, items in nodes.items()}
        usual, _ = Counter(values.values()).most_common(1)[0]
        for host, value in values.items():
            if value != usual:
                found[host].append(Drift(name, usual, value, Severity.DECIDE))
    return found


def drift_table(found: Mapping[str, Sequence[Drift]]) -> str:
    """One table a node, the worst first."""
    return "\n\n".join("\n".join(_table(host, drifts)) for host, drifts in found.items())


def _table(host: str, drifts: Sequence[Drift]) -> Iterator[str]:
    if not drifts:
        yield f"{host}: as when it last served"
        return
    order = list(Severity)
    rows = sorted(drifts, key=lambda drift: -order.index(drift.severity))
    cells = [("what", "was", "is", ""), *((d.name, _short(d.was), _short(d.now), str(d.severity)) for d in rows)]
    widths = [max(len(cell[column]) for cell in cells) for column in range(4)]
    yield f"{host}: {len(drifts)} changed since it last served"
    for cell in cells:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True)).rstrip()


def _short(text: str, longest: int = 48) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
