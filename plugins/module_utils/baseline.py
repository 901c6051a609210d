"""What a node is, as a flat list of names and values that can be noted when it serves, and compared later.

A name is an area with an item in it, such as `package docker.io`. Values are texts for people: what differs is shown as
it stands here. Nothing in it moves while nobody touches the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .facts import Fabric, NodeFacts, Runtime, Software, Tuning, device_of, gid_rows, own_container
from .gids import find_ipv4
from .intent import Intent
from .meminfo import CLASS_SPREAD_KB, cma_trap
from .names import ENGINE_CONTAINER, LABEL_CONFIG, NETPLAN_FILE
from .safetensors_index import fingerprint
from .tuning import sysctl_name

SCHEMA = 1

Items = dict[str, str]
NONE = "none"

# What CMA is when a kernel with KHO took memory away (meminfo.cma_trap).
TRAPPED = "more free than there is"
# Kernel arguments that name the kernel itself.
_BOOT = ("BOOT_IMAGE=", "initrd=")
MEMORY_TOTAL = "memory total"


def items_of(facts: NodeFacts, intent: Intent) -> Items:
    """All of a node; what was not read is left out."""
    found: Items = {}
    data: Mapping[str, Any] = facts
    for section, read in _READERS.items():
        if section in data:
            found.update((name, value or NONE) for name, value in read(data[section], intent))
    return dict(sorted(found.items()))


def make_baseline(items: Items, evidence: Mapping[str, str], written: str) -> dict[str, Any]:
    """The note as it is kept on the node; `evidence` says what proved that it served, `written` when."""
    return {"schema": SCHEMA, "written": written, "evidence": dict(evidence), "items": items}


def items_in(baseline: Mapping[str, Any] | None) -> Items | None:
    """The items of a note, None when there is none, or one of a release that this one cannot read."""
    if not baseline or baseline.get("schema") != SCHEMA or not isinstance(baseline.get("items"), dict):
        return None
    return {str(name): str(value) for name, value in baseline["items"].items()}


def differing(was: Items, now: Items) -> list[str]:
    """The names of the items that are not the same, in the order of both lists."""
    names = sorted({*was, *now})
    return [name for name in names if not same(name, was.get(name, NONE), now.get(name, NONE))]


def same(name: str, one: str, other: str) -> bool:
    """Whether two values of an item are one; MemTotal moves a little from boot to boot."""
    if name == MEMORY_TOTAL and one != other and NONE not in (one, other):
        return abs(int(one.split()[0]) - int(other.split()[0])) <= CLASS_SPREAD_KB
    return one == other


def _platform(platform: Mapping[str, Any], _: Intent) -> Iterator[tuple[str, str]]:
    dgx = platform["dgx"] or {}
    yield "kernel", platform["kernel"]
    yield "driver", platform["driver"] or ""
    yield "os version", f"{platform['os_id']} {platform['os_version']}"
    yield "os release", dgx.get("DGX_SWBUILD_VERSION", "")
    yield "os OTA", dgx.get("DGX_OTA_VERSION", "")


def _memory(memory: Mapping[str, int], _: Intent) -> Iterator[tuple[str, str]]:
    yield MEMORY_TOTAL, f"{memory.get('MemTotal', 0)} kB"
    trapped = f", {TRAPPED}" if cma_trap(memory) else ""
    yield "memory CMA", f"{memory.get('CmaTotal', 0)} kB{trapped}"
    yield "memory swap", f"{memory.get('SwapTotal', 0)} kB"


def _fabric(fabric: Fabric, intent: Intent) -> Iterator[tuple[str, str]]:
    for path, names in fabric["netplan"].items():
        if path != NETPLAN_FILE:
            yield f"netplan {path}", " ".join(sorted(names))
    for rail in intent.rails:
        netdev = fabric["netdevs"].get(rail.netdev)
        if netdev:
            yield f"link {rail.name}", f"{rail.netdev} MTU {netdev['mtu']} {' '.join(netdev['addresses'])}".strip()
        found = device_of(fabric, rail.netdev) if rail.netdev else None
        if found:
            row = find_ipv4(gid_rows(found[1]["port"]), rail.address)
            yield f"gid {rail.name}", f"{found[0]} {row.index}" if row else ""
            yield f"firmware {found[0]}", found[1]["firmware"] or ""


def _runtime(runtime: Runtime, intent: Intent) -> Iterator[tuple[str, str]]:
    yield "runtime Docker", runtime["version"] or ""
    yield "runtime names", " ".join(runtime["runtimes"])
    yield "image", runtime["images"].get(intent.image) or ""
    container = own_container(runtime, ENGINE_CONTAINER)
    if container:
        yield "serving configuration", container["labels"].get(LABEL_CONFIG, "")


def _weights(weights: Any, _: Intent) -> Iterator[tuple[str, str]]:
    yield "weights", "" if weights["error"] else fingerprint(weights)


def _tuning(tuning: Tuning, _: Intent) -> Iterator[tuple[str, str]]:
    yield "kernel arguments", " ".join(word for word in tuning["kernel_arguments"] if not word.startswith(_BOOT))
    for path, live in tuning["values"].items():
        yield f"sysctl {sysctl_name(path)}", " ".join(live["value"].split())


def _software(software: Software, _: Intent) -> Iterator[tuple[str, str]]:
    yield from ((f"package {name}", version) for name, version in software["packages"].items())
    rest = software["others"]
    yield "packages other", f"{rest['count']} packages, {rest['digest']}"
    yield "firmware system", software["system_firmware"]
    yield from ((f"unit {name}", "masked") for name in software["masked"])
    yield "boot target", software["boot_target"]
    toolkit = software["toolkit"]
    yield "runtime toolkit", f"mode {toolkit['mode']}, {toolkit['digest']}" if toolkit else ""
    yield from ((f"file {path}", digest or "") for path, digest in software["files"].items())
    yield from ((f"hold {name}", "held") for name in software["held"])


_READERS: Mapping[str, Any] = {
    "platform": _platform,
    "memory": _memory,
    "fabric": _fabric,
    "runtime": _runtime,
    "weights": _weights,
    "tuning": _tuning,
    "software": _software,
}
