"""May this update be made? Rules over what apt would do on every node, and what is installed there now."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .apt_simulation import AptPlan
from .baseline import NONE
from .debian_versions import DebianVersion
from .drift import of_one_kernel, uneven
from .known_bad import DRIVER, kernel_of, packages
from .update_wish import UpdateWish
from .watched import VITAL, matches

# Parts of one driver carry the number of its branch in their names, such as nvidia-kernel-common-580.
_DRIVER_PART = re.compile(r"(?:lib)?nvidia-(?!container|dcgm|fabricmanager|imex|modprobe|settings)[a-z-]+-(\d{3})\b.*")
_FIRMWARE = re.compile(r"nvidia-firmware-(\d{3})\b.*")
# One that has its whole version in its name lies beside that of another version, such as nvidia-firmware-580-580.95.05.
_BESIDE = re.compile(r"nvidia-firmware-\d{3}(?:-server)?-\d.*")
_DKMS = re.compile(r"nvidia-(?:dkms|kernel-source)-\d{3}.*")
_DRIVER = "nvidia-kernel-common-*"
_MODULES = re.compile(r"linux-modules-nvidia-\d{3}.*")


@dataclass(frozen=True)
class Node:
    """One node before its update: what runs and is installed, what apt would do, and what the user allows."""

    kernel: str
    installed: Mapping[str, str]
    held: Sequence[str]
    plan: AptPlan
    wish: UpdateWish
    # Of the next boot.
    kernel_arguments: Sequence[str] = ()
    # Whether it has a note of when it last served.
    served: bool = True

    @property
    def after(self) -> dict[str, str]:
        """What is installed after it."""
        return self.plan.after(self.installed)

    @property
    def new_kernels(self) -> list[str]:
        """The releases of the kernels that it brings."""
        return [found for name in self.plan.install if (found := kernel_of(name))]


@dataclass(frozen=True)
class Objection:
    """Why it may not be made, or with `refuse` false a thing to know before."""

    fact: str
    limit: str
    remedy: str
    refuse: bool = True


def objections(node: Node) -> list[Objection]:
    """Everything that speaks against the update of one node."""
    return [objection for rule in _RULES for objection in rule(node)]


def never_served(node: Node) -> Iterator[Objection]:
    """The canary is gated by a launch that would work, which it never would on a node that was not set up."""
    if not node.served:
        fact = "there is no note of when it last served, so nothing to prove the update against"
        yield Objection(fact, "a cluster that served", "run site.yml first")


def removals(node: Node) -> Iterator[Objection]:
    """Apt removes what stands in the way of newer packages; on a Spark that was the driver more than once."""
    outside = sorted(name for name in node.plan.remove if not matches(name, node.wish.removals))
    if outside:
        fact = f"the update would remove {', '.join(f'{name} {node.plan.remove[name]}' for name in outside)}"
        yield Objection(
            fact, "what os_update_removals allows", "look why with apt, then add them there or hold a package"
        )
    if any(kernel_of(name) == node.kernel for name in node.plan.remove):
        fact = f"the update would remove the running kernel {node.kernel}"
        yield Objection(fact, "the kernel to go back to stays", "boot the other kernel first")


def downgrades(node: Node) -> Iterator[Objection]:
    """A pin in apt's preferences may want an older version."""
    for name, change in node.plan.install.items():
        if change.old and DebianVersion(change.new) < DebianVersion(change.old):
            fact = f"the update would take {name} from {change.old} back to {change.new}"
            yield Objection(fact, "newer versions", "look into /etc/apt/preferences.d")


def kernel_without_modules(node: Node) -> Iterator[Objection]:
    """The driver's modules are packages of their own, one for each kernel, unless DKMS builds them."""
    had = [name for name in node.installed if _MODULES.fullmatch(name)]
    builds = any(_DKMS.fullmatch(name) for name in node.after)
    if not had or builds:
        return
    for kernel in node.new_kernels:
        if not any(_MODULES.fullmatch(name) and name.endswith(f"-{kernel}") for name in node.after):
            fact = f"the update brings kernel {kernel} without the driver's modules (linux-modules-nvidia-*-{kernel})"
            yield Objection(fact, "kernel and modules together", "wait for them, or hold the kernel by os_update_hold")


def dkms_without_headers(node: Node) -> Iterator[Objection]:
    """DKMS builds the modules from the headers of the kernel, and nothing says so when they are missing."""
    if any(_MODULES.fullmatch(name) for name in node.after) or not any(_DKMS.fullmatch(name) for name in node.after):
        return
    for kernel in node.new_kernels:
        if f"linux-headers-{kernel}" not in node.after:
            fact = (
                f"the update brings kernel {kernel} without linux-headers-{kernel}, from which DKMS builds the driver"
            )
            yield Objection(fact, "kernel and headers together", f"apt-get install linux-headers-{kernel}, then again")


def torn_driver(node: Node) -> Iterator[Objection]:
    """All parts of a driver are of one version; half of it says `Driver/library version mismatch` and no more."""
    branches: dict[str, dict[str, list[str]]] = {}
    for name, version in node.after.items():
        found = _DRIVER_PART.fullmatch(name)
        if found and not _BESIDE.fullmatch(name):
            branches.setdefault(found[1], {}).setdefault(_upstream(version), []).append(name)
    for branch, versions in sorted(branches.items()):
        if len(versions) > 1:
            parts = "; ".join(
                f"{version}: {', '.join(sorted(names)[:3])}" for version, names in sorted(versions.items())
            )
            fact = f"the update would leave driver {branch} in several versions ({parts})"
            yield Objection(fact, "one version of all parts", "lift the hold on some of them, or hold them all")
    yield from _no_firmware(node)


def _no_firmware(node: Node) -> Iterator[Objection]:
    if not any(_FIRMWARE.fullmatch(name) for name in node.installed):
        return
    firmware = {found[1] for name in node.after if (found := _FIRMWARE.fullmatch(name))}
    for name in node.after:
        found = _DRIVER_PART.fullmatch(name)
        if found and name.startswith("nvidia-kernel-common-") and found[1] not in firmware:
            fact = f"the update would leave driver {found[1]} without nvidia-firmware-{found[1]}"
            yield Objection(fact, "driver and firmware together", "wait for it, or hold the driver by os_update_hold")


def known_bad(node: Node) -> Iterator[Objection]:
    """What is refused when it runs is not installed in the first place."""
    coming = {name: change.new for name, change in node.plan.install.items()}
    # The version of a driver is that of its parts, without what the distribution adds.
    drivers = {name: _upstream(version) for name, version in coming.items() if matches(name, [_DRIVER])}
    table = [bad for bad in node.wish.known_bad if bad.subject != DRIVER]
    of_drivers = [replace(bad, subject=_DRIVER) for bad in node.wish.known_bad if bad.subject == DRIVER]
    arguments = node.kernel_arguments
    for one in (*packages(table, coming, arguments), *packages(of_drivers, drivers, arguments)):
        fact = f"the update brings {one.what}: {one.bad.sign}"
        yield Objection(fact, "none of the versions in docs/updates.md", one.bad.remedy, one.bad.refuse)


def held_back(node: Node) -> Iterator[Objection]:
    """Newer versions that stay away are no failure, but somebody should know."""
    ours = sorted(set(node.plan.kept) & set(node.held))
    others = sorted(set(node.plan.kept) - set(node.held))
    # Only in check mode, which holds nothing.
    later = sorted(set(node.plan.install) & set(node.wish.hold))
    if later:
        fact = f"put on hold first, so left out by the update itself: {', '.join(later)}"
        yield Objection(fact, "", "", refuse=False)
    if ours:
        yield Objection(f"on hold although newer ones exist: {', '.join(ours)}", "", "", refuse=False)
    if others:
        fact = f"apt keeps back {', '.join(others)}"
        yield Objection(fact, "", "look with `apt-get install` what it would take, or wait", refuse=False)


_RULES: Sequence[Callable[[Node], Iterator[Objection]]] = (
    never_served,
    removals,
    downgrades,
    kernel_without_modules,
    dkms_without_headers,
    torn_driver,
    known_bad,
    held_back,
)


def uneven_after(nodes: Mapping[str, Node]) -> dict[str, list[Objection]]:
    """Nodes that would not be alike after it, as when a mirror has not got everything yet."""
    remedy = (
        "update the package lists of all nodes from one mirror, let them hold the same packages, or accept it by "
        "os_update_accept"
    )
    found = uneven({host: _vital_after(node) for host, node in nodes.items()}, ("*",))
    return {
        host: [
            Objection(
                f"after the update {one.name} would be {one.now}",
                f"{one.was}, as on the others",
                remedy,
                refuse=not matches(f"package {one.name}", nodes[host].wish.accept),
            )
            for one in drifts
        ]
        for host, drifts in found.items()
    }


def _vital_after(node: Node) -> dict[str, str]:
    """What the cluster stands on after the update; of kernels the newest, as older ones may be left on some nodes."""
    vital = {name: version for name, version in node.after.items() if matches(name, VITAL) and not of_one_kernel(name)}
    kernels = [found for name in node.after if (found := kernel_of(name))]
    return vital | {"the newest kernel": max(kernels, key=DebianVersion, default=NONE)}


def _upstream(version: str) -> str:
    """A version without its epoch and without the distribution's revision."""
    whole = version.rpartition(":")[2]
    return whole.rpartition("-")[0] or whole


def update_table(nodes: Mapping[str, Node]) -> str:
    """Everything that changes anywhere, a package a line and a node a column."""
    rows = [["package", *nodes]]
    changed = sorted({name for node in nodes.values() for name in (*node.plan.install, *node.plan.remove)})
    rows += [[name, *(_cell(node.plan, name) for node in nodes.values())] for name in changed]
    widths = [max(len(row[column]) for row in rows) for column in range(len(nodes) + 1)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    count = {
        host: f"{len(node.plan.install)} to install, {len(node.plan.remove)} to remove" for host, node in nodes.items()
    }
    return "\n".join([*lines, *(f"{host}: {words}" for host, words in count.items())])


def _cell(plan: AptPlan, name: str) -> str:
    if name in plan.remove:
        return "REMOVED"
    change = plan.install.get(name)
    if change is None:
        return "-"
    return f"{change.old} -> {change.new}" if change.old else f"new {change.new}"
