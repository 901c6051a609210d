"""What must be done to one host so that it is as its wish says: files, steps, and what to record before.

Every part is decided from the facts alone, so a run that was interrupted is completed by the next one, and a host that
is right needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from .facts import NodeFacts, Tuning, engine_runs
from .tuning import (
    EARLYOOM_FILE,
    GRUB_FILE,
    JOURNAL_FILE,
    LIMITS_FILE,
    MIB,
    PROC,
    SLICE_FILE,
    SSH_FILE,
    SYSCTL_FILE,
    TMPFILES_FILE,
    TuningWish,
    earlyoom_argv,
    same,
    wanted_files,
    wanted_values,
)
from .tuning_steps import Part, Record, Step
from .tuning_swap import drained_kb, swap_part, unsafe

# Bytes by which the journal may exceed its cap before it is vacuumed; journald itself keeps to it only in time.
JOURNAL_SLACK = 64 * MIB

JOURNALD = "systemd-journald.service"
EARLYOOM = "earlyoom.service"
RELOAD = Step("let systemd read its units again", ("systemctl", "daemon-reload"))


@dataclass(frozen=True)
class TuningPlan:
    """All that is due on one host. `refused` are (fact, limit, remedy) of what must not be done now."""

    files: Mapping[str, str | None]
    steps: tuple[Step, ...]
    record: Record
    refused: tuple[tuple[str, str, str], ...] = ()


def make_tuning_plan(wish: TuningWish, facts: NodeFacts) -> TuningPlan:
    """The plan from a node's facts, of which `tuning`, `memory` and `runtime` must have been read."""
    tuning, serving = facts["tuning"], engine_runs(facts)
    parts = due_parts(wish, tuning)
    refused = refusals_of(wish, facts, parts)
    if serving:
        parts = [while_serving(part) for part in parts if not part.disturbs]
    return TuningPlan(
        files={path: text for part in parts for path, text in part.files.items()},
        steps=(*((RELOAD,) if any(part.reloads for part in parts) else ()), *(s for part in parts for s in part.steps)),
        record=merged(part.record for part in parts),
        refused=refused,
    )


def refusals_of(wish: TuningWish, facts: NodeFacts, parts: Iterable[Part]) -> tuple[tuple[str, str, str], ...]:
    """What stands in the way: an engine that serves, or too little memory for what is in swap."""
    parts = list(parts)
    if engine_runs(facts):
        limit, remedy = "no restart and no reload while the engine serves", "run playbooks/stop.yml first"
        return tuple((part.disturbs, limit, remedy) for part in parts if part.disturbs)
    used = drained_kb((step for part in parts for step in part.steps), facts["tuning"]["swaps"])
    found = unsafe(used, facts.get("memory", {}), wish.margin)
    return (found,) if found else ()


def due_parts(wish: TuningWish, tuning: Tuning) -> list[Part]:
    """Every part with what it needs on this host."""
    wanted = wanted_files(wish, tuning)
    changed = {path: text for path, text in wanted.items() if tuning["files"].get(path) != text}
    return [
        values_part(wish, tuning, changed),
        journal_part(wish, tuning, changed),
        ssh_part(wish, tuning, changed),
        earlyoom_part(wish, tuning, changed),
        kernel_part(wish, tuning, changed),
        swap_part(wish, tuning),
    ]


def values_part(wish: TuningWish, tuning: Tuning, changed: Mapping[str, str | None]) -> Part:
    """The kernel's settings, live and at boot, and the limits of new logins; nothing notices any of them."""
    wrong = {path: value for path, value in wrong_values(wish, tuning).items() if tuning["values"][path]["writable"]}
    former = {path: tuning["values"][path]["value"] for path in wrong}
    return Part(
        files=_only(changed, SYSCTL_FILE, TMPFILES_FILE, LIMITS_FILE),
        steps=tuple(
            Step(f"set {path} to {value}, it was {former[path]}", path=path, value=value)
            for path, value in wrong.items()
        ),
        record={section: entries for section, entries in _former_values(former).items() if entries},
    )


def journal_part(wish: TuningWish, tuning: Tuning, changed: Mapping[str, str | None]) -> Part:
    """The cap, which journald reads when it starts, and what is beyond it already."""
    files, steps = _only(changed, JOURNAL_FILE), []
    if files or tuning["journal"]["stale"]:
        steps.append(Step("let journald read its cap", ("systemctl", "restart", JOURNALD), restarts=True))
    if wish.journal_mib and tuning["journal"]["bytes"] > wish.journal_mib * MIB + JOURNAL_SLACK:
        does = f"cut the journal from {tuning['journal']['bytes'] // MIB} to {wish.journal_mib} MiB"
        # The file that is written to is never cut, so a new one is begun before.
        steps.append(Step(does, ("journalctl", "--rotate", f"--vacuum-size={wish.journal_mib}M")))
    return Part(files=files, steps=tuple(steps), record={"journal": {JOURNALD: {}}} if files else {})


def ssh_part(wish: TuningWish, tuning: Tuning, changed: Mapping[str, str | None]) -> Part:
    """Memory that ssh keeps. Reading its units again, systemd gives it to those that run; sshd is not restarted."""
    ssh, files = tuning["ssh"], _only(changed, SSH_FILE, SLICE_FILE)
    loaded = not wish.ssh_memory or wish.ssh_memory == ssh["memory_min"] == ssh["slice_memory_min"]
    due = bool(files) or not loaded
    return Part(files=files, reloads=due, disturbs="the memory protection of ssh would be set" if due else "")


def earlyoom_part(wish: TuningWish, tuning: Tuning, changed: Mapping[str, str | None]) -> Part:
    """Its lines by the planned floor, where it is installed; one that does not run is not started."""
    running, files = tuning["earlyoom"]["argv"], _only(changed, EARLYOOM_FILE)
    wrong = wish.earlyoom and wish.floor and running and running != earlyoom_argv(wish.floor)
    if not files and not wrong:
        return Part()
    step = Step("let earlyoom take its lines", ("systemctl", "try-restart", EARLYOOM), restarts=True)
    record: Record = {"earlyoom": {EARLYOOM: {}}}
    return Part(files=files, steps=(step,), record=record, reloads=True, disturbs="earlyoom would be restarted")


def kernel_part(wish: TuningWish, tuning: Tuning, changed: Mapping[str, str | None]) -> Part:
    """Kernel arguments for the next boot, which is never ours to make."""
    files = _only(changed, GRUB_FILE)
    missing = tuning["grub"] and not set(wish.kernel_arguments) <= set(tuning["boot_arguments"])
    if not files and not missing:
        return Part()
    step = Step("write the boot menu with the kernel arguments", ("update-grub",))
    return Part(files=files, steps=(step,), record={"grub": {"update-grub": {}}})


def wrong_values(wish: TuningWish, tuning: Tuning) -> dict[str, str]:
    """The kernel's files that are there and hold something else than they should, with what they should."""
    live = tuning["values"]
    wanted = wanted_values(wish, tuning)
    return {path: value for path, value in wanted.items() if path in live and not same(live[path]["value"], value)}


def while_serving(part: Part) -> Part:
    """The part without what restarts something."""
    return replace(part, steps=tuple(step for step in part.steps if not step.restarts))


def merged(records: Iterable[Record]) -> dict[str, dict[str, Mapping[str, object]]]:
    """The records of all parts, section by section."""
    found: dict[str, dict[str, Mapping[str, object]]] = {}
    for section, entries in (item for record in records for item in record.items()):
        found.setdefault(section, {}).update(entries)
    return found


def _former_values(former: Mapping[str, str]) -> Record:
    """The settings that sysctl knows are recorded by their name with slashes, the files of /sys by path."""
    inside = {path.removeprefix(PROC): {"value": value} for path, value in former.items() if path.startswith(PROC)}
    others = {path: {"value": value} for path, value in former.items() if path.startswith("/sys/")}
    return {"sysctl": inside, "sysfs": others}


def _only(changed: Mapping[str, str | None], *paths: str) -> dict[str, str | None]:
    return {path: changed[path] for path in paths if path in changed}
