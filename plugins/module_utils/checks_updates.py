"""Checks of what an update did: drift since the last proof, known bad versions, reboots, holds, updaters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from .baseline import items_in, items_of
from .checks import Check, Cluster, Stage, Status, rule
from .drift import BETTER_ALIKE, Drift, Severity, drift_of, uneven
from .facts import NodeFacts, Software, engine_runs
from .known_bad import DRIVER, KERNEL, Found, packages, running
from .reboots import reboot_reasons
from .update_wish import UpdateWish
from .watched import matches

REPROVISION = "run playbooks/reprovision.yml"
# So many differences of one kind stand in a line; the table of playbooks/reprovision.yml has all of them.
SHOWN = 3
DAY = 24 * 3600


def drifts_of(cluster: Cluster) -> dict[str, list[Drift]]:
    """What changed on each node that has a note of when it last served."""
    found = {}
    for host, software, intent in cluster.having("software"):
        was = items_in(software["baseline"])
        if was is not None:
            found[host] = drift_of(was, items_of(cluster.facts[host], intent), intent)
    return found


@rule("drift.baseline", "It is known what the node was when it last served.", Stage.UPDATE, needs="software")
def baseline(cluster: Cluster) -> Iterator[Check]:
    """A cluster that never served has nothing to compare with, which is no reason against a first launch."""
    for host, software, _ in cluster.having("software"):
        note = software["baseline"]
        if items_in(note) is not None and note is not None:
            yield Check("drift.baseline", host, Status.OK, f"it last served on {note.get('written', 'an unknown day')}")
            continue
        fact = "there is no note of when it last served" if note is None else "its note is of another release"
        yield Check("drift.baseline", host, Status.WARN, fact, "", "run playbooks/verify.yml while it serves")


@rule("drift.harmless", "What changed and is harmless by itself; the gates decide.", Stage.UPDATE, needs="software")
def harmless(cluster: Cluster) -> Iterator[Check]:
    """Shown, because an update that nobody noticed is the first suspect of whatever comes next."""
    yield from _by_severity("drift.harmless", cluster, Severity.HARMLESS, Status.WARN, "")


@rule("drift.ours", "What this project set up is as it left it.", Stage.UPDATE, needs="software")
def ours(cluster: Cluster) -> Iterator[Check]:
    """Updates unmask units, metapackages bring services back, and firmware resets an MTU."""
    yield from _by_severity("drift.ours", cluster, Severity.OURS, Status.WARN, REPROVISION)


@rule("drift.decide", "Nothing changed about which only the user can decide.", Stage.UPDATE, needs="software")
def decide(cluster: Cluster) -> Iterator[Check]:
    """What nobody can put back, or what this release does not know, waits for a word of the user."""
    yield from _by_severity("drift.decide", cluster, Severity.DECIDE, Status.REFUSE, "")


@rule("drift.refuse", "Nothing changed to what is known to break the cluster.", Stage.UPDATE, needs="software")
def refuse(cluster: Cluster) -> Iterator[Check]:
    """The memory that a kernel with KHO takes away, for example."""
    yield from _by_severity("drift.refuse", cluster, Severity.REFUSE, Status.REFUSE, "")


def _by_severity(id_: str, cluster: Cluster, severity: Severity, status: Status, remedy: str) -> Iterator[Check]:
    for host, drifts in drifts_of(cluster).items():
        rows = [drift for drift in drifts if drift.severity is severity]
        if not rows:
            yield Check(id_, host, Status.OK, "nothing of this kind changed")
        for area in dict.fromkeys(drift.area for drift in rows):
            several = [drift for drift in rows if drift.area == area]
            fact = f"{listed(several)} since it last served"
            yield Check(id_, host, status, fact, "", remedy or _remedies(several), subject=area)


def _remedies(drifts: Sequence[Drift]) -> str:
    return "; ".join(dict.fromkeys(drift.remedy for drift in drifts[:SHOWN] if drift.remedy))


def listed(drifts: Sequence[Drift]) -> str:
    """The first of them in words, and the number of the others."""
    more = f" and {len(drifts) - SHOWN} more" if len(drifts) > SHOWN else ""
    return f"{', '.join(map(str, drifts[:SHOWN]))}{more}"


@rule("drift.nodes", "Kernel, driver and container runtime are the same on all nodes.", Stage.UPDATE, needs="software")
def nodes(cluster: Cluster) -> Iterator[Check]:
    """Half a cluster on another kernel or driver is the usual end of an update that nobody finished."""
    items = {host: items_of(cluster.facts[host], intent) for host, _, intent in cluster.having("software")}
    found, better = uneven(items), uneven(items, BETTER_ALIKE)
    for host in items:
        accepted = cluster.intents[host].updates.accept
        rows = [drift for drift in found[host] if not matches(drift.name, accepted)]
        soft = [drift for drift in (*found[host], *better[host]) if drift not in rows]
        status = Status.REFUSE if rows else Status.WARN if soft else Status.OK
        told = [f"{drift.name} is {drift.now}, on the others {drift.was}" for drift in (rows or soft)[:SHOWN]]
        more = len(rows or soft) - len(told)
        fact = f"{', '.join(told)}{f' and {more} more' if more else ''}" if told else "it has what the others have"
        remedy = "run playbooks/update.yml, which brings all nodes to one state, or accept it by os_update_accept"
        yield Check("drift.nodes", host, status, fact, "the same on all nodes", remedy)


@rule(
    "drift.known-bad", "Nothing runs that is known to break a cluster and is not cured.", Stage.UPDATE, needs="platform"
)
def known_bad_uncured(cluster: Cluster) -> Iterator[Check]:
    """A kernel argument that is wanted already comes with the next boot, which playbooks/reprovision.yml may make."""
    for host, _, intent in cluster.having("platform"):
        yield from _known_bad("drift.known-bad", host, cluster, intent.tuning.kernel_arguments)


@rule("updates.known-bad", "Nothing runs that is known to break a cluster.", Stage.PREFLIGHT, needs="platform")
def known_bad(cluster: Cluster) -> Iterator[Check]:
    """Versions with the sign by which each shows itself; see docs/updates.md."""
    for host, _, _ in cluster.having("platform"):
        yield from _known_bad("updates.known-bad", host, cluster, ())


def _known_bad(id_: str, host: str, cluster: Cluster, arguments: Sequence[str]) -> Iterator[Check]:
    found = list(_bad_now(cluster.facts[host], cluster.intents[host].updates, arguments))
    if not found:
        yield Check(id_, host, Status.OK, "no version here is known to be bad")
    for number, one in enumerate(found):
        yield Check(
            id_,
            host,
            Status.REFUSE if one.bad.refuse else Status.WARN,
            f"{one.what} is known to be bad: {one.bad.sign}",
            "none of the versions in docs/updates.md",
            one.bad.remedy,
            subject=str(number or ""),
        )


def _bad_now(facts: NodeFacts, wish: UpdateWish, wanted: Sequence[str]) -> Iterator[Found]:
    """Of kernels only the one that runs counts, of packages all."""
    platform, software, tuning = facts["platform"], facts.get("software"), facts.get("tuning")
    arguments = [*wanted, *(tuning["kernel_arguments"] if tuning else ())]
    yield from running(wish.known_bad, platform["kernel"], platform["driver"], arguments)
    if software:
        others = [bad for bad in wish.known_bad if bad.subject not in (KERNEL, DRIVER)]
        yield from packages(others, software["packages"], arguments)


@rule("updates.broken", "No package is half installed.", Stage.PREFLIGHT, Stage.UPDATE, needs="software")
def broken(cluster: Cluster) -> Iterator[Check]:
    """An apt that was interrupted leaves packages unpacked, and the next boot without their drivers."""
    for host, software, _ in cluster.having("software"):
        names = software["broken"]
        yield Check(
            "updates.broken",
            host,
            Status.REFUSE if names else Status.OK,
            f"half installed: {', '.join(names) or 'nothing'}",
            "every package configured",
            "run playbooks/update.yml, which ends what was begun, or `dpkg --configure -a`",
        )


@rule("updates.reboot", "The node runs what the next boot would start.", Stage.UPDATE, needs="software")
def reboot(cluster: Cluster) -> Iterator[Check]:
    """A kernel that waits for a boot comes with the next power cut, untried."""
    for host, _, _ in cluster.having("software"):
        reasons = reboot_reasons(cluster.facts[host])
        yield Check(
            "updates.reboot",
            host,
            Status.WARN if reasons else Status.OK,
            f"a reboot is due: {'; '.join(reasons)}" if reasons else "no reboot is due",
            "",
            "run playbooks/reprovision.yml with os_update_reboot: always, or reboot it yourself",
        )


@rule("updates.holds", "Packages on hold, and for how long.", Stage.UPDATE, needs="software")
def holds(cluster: Cluster) -> Iterator[Check]:
    """A hold that everybody forgot keeps security updates away."""
    for host, software, intent in cluster.having("software"):
        absent = sorted(set(intent.updates.hold) & set(software["packages"]) - set(software["held"]))
        told = [f"{name} ({_age(since)})" for name, since in software["held"].items()]
        limit = f"held as well: {', '.join(absent)}" if absent else ""
        status = Status.WARN if absent or told else Status.OK
        fact = f"on hold: {', '.join(told) or 'nothing'}"
        yield Check(
            "updates.holds", host, status, fact, limit, "run site.yml" if absent else "lift it once it is not needed"
        )


def _age(since: int) -> str:
    return f"for {max(0, int(time.time()) - since) // DAY} days" if since else "not by us"


@rule("updates.automatic", "Nothing updates by itself while the engine serves.", Stage.UPDATE, needs="software")
def automatic(cluster: Cluster) -> Iterator[Check]:
    """An update in the middle of a run restarts Docker, or takes the driver away under the engine."""
    for host, software, _ in cluster.having("software"):
        names = software["updaters"]
        serves = " while the engine serves" if names and engine_runs(cluster.facts[host]) else ""
        yield Check(
            "updates.automatic",
            host,
            Status.WARN if names else Status.OK,
            f"active: {', '.join(names) or 'nothing that updates by itself'}{serves}",
            "none of them",
            _switch_off(software),
        )


def _switch_off(software: Software) -> str:
    if any(name.startswith("dgx-") for name in software["updaters"]):
        return "set headless_classes.dashboard: true and run site.yml; until then the guard in apt stops it"
    return "run site.yml, whose role headless switches them off; until then the guard in apt stops them"
