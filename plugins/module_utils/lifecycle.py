"""Is the cluster serving, down, or something in between? One answer for all nodes, from fresh facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from .checks import Cluster
from .facts import Container, Processes, Rank, own_container
from .meminfo import GIB
from .names import ENGINE_CONTAINER, ENGINE_UNIT, LABEL_CONFIG
from .stages import LoadStage

# Bytes that may be missing of what was available before a launch; other programs come and go.
MEMORY_TOLERANCE = GIB


class State(StrEnum):
    """What the cluster is."""

    # Every rank runs with the configuration that is wanted.
    RUNNING = "running"
    # No rank runs, and nothing of ours is left behind.
    DOWN = "down"
    # Some ranks run, or dead containers of ours stand in the way: all must stop before any can start.
    PARTIAL = "partial"


def state_of(cluster: Cluster) -> State:
    """The state of the cluster; a node without runtime facts counts as one that does not run."""
    running, absent = 0, 0
    for host in cluster.intents:
        runtime, serving = cluster.facts[host].get("runtime"), cluster.facts[host].get("serving")
        container = own_container(runtime, ENGINE_CONTAINER) if runtime else None
        unit = serving["unit"] if serving else "unknown"
        if container is None:
            absent += unit in ("inactive", "failed")
        elif container["state"] == "running" and unit == "active":
            # Without a known hash nothing can be the wanted configuration.
            running += container["labels"].get(LABEL_CONFIG, "none") == cluster.config_hashes.get(host)
    if running == len(cluster.intents):
        return State.RUNNING
    return State.DOWN if absent == len(cluster.intents) else State.PARTIAL


@dataclass(frozen=True)
class Unit:
    """The engine's unit as systemd tells it; `serves` is whether the engine's container runs."""

    loaded: bool
    active: str
    file_state: str
    stale: bool
    serves: bool

    @classmethod
    def parse(cls, shown: str, enabled: str, serves: bool) -> Unit:
        """From the lines of `systemctl show` with LoadState, ActiveState and NeedDaemonReload, and from `is-enabled`.

        The latter looks at the files. UnitFileState is as old as systemd's last reload, which an engine that serves
        puts off.
        """
        found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        return cls(
            found.get("LoadState") == "loaded",
            found.get("ActiveState", "unknown"),
            enabled.strip(),
            found.get("NeedDaemonReload") == "yes",
            serves,
        )

    def starts(self, asked: bool) -> bool:
        """Whether a start that is asked for has anything to do."""
        return asked and self.active not in ("active", "activating", "reloading")


def start_commands(unit: Unit, *, start: bool, at_boot: bool) -> list[list[str]]:
    """The commands of systemctl that make the unit what is wanted, without its name in front.

    Neither `enable` nor `disable` may reload systemd by itself, so both are told not to.
    """
    commands = []
    if (unit.stale or not unit.loaded) and not unit.serves:
        commands.append(["daemon-reload"])
    if (unit.file_state == "enabled") is not at_boot:
        commands.append(["--no-reload", "enable" if at_boot else "disable", ENGINE_UNIT])
    if unit.starts(start):
        # A unit that was started too often in a row is not started any more until its count is reset.
        commands += [["reset-failed", ENGINE_UNIT]] if unit.active == "failed" else []
        commands.append(["start", "--no-block", ENGINE_UNIT])
    return commands


def ours(containers: Iterable[Container]) -> list[Container]:
    """The containers of this project: by name, or by the label that every one of them has."""
    return [one for one in containers if one["name"] == ENGINE_CONTAINER or LABEL_CONFIG in one["labels"]]


def still_held(available: int, before: int, processes: Processes) -> str:
    """What keeps the memory that an engine that is gone should have given back; empty when it is all there.

    `available` is MemAvailable now, `before` right before the launch, 0 when nobody knows; both in bytes.
    """
    if not before or available >= before - MEMORY_TOLERANCE:
        return ""
    holders = [*processes["gpu"], *processes["resident"][:2]]
    named = ", ".join(f"pid {one['pid']} ({one['name']}, {one['bytes'] / GIB:.2f} GiB)" for one in holders)
    return (
        f"MemAvailable is {available / GIB:.2f} GiB; limit: {(before - MEMORY_TOLERANCE) / GIB:.2f} GiB, as before the "
        f"launch; remedy: end what holds it: {named or 'no process that can be seen, so reboot the node'}"
    )


@dataclass(frozen=True)
class Step:
    """How far one rank has come: `line` for a person, `fault` once it does not run any more."""

    line: str
    ready: bool = False
    fault: str = ""


def step_of(shown: str, rank: Rank | None, now: float, roll_minutes: float) -> Step:
    """From `systemctl show` with ActiveState, Job and InvocationID, and from what the rank itself says.

    A unit whose start is queued is still inactive, and a file of an earlier start says nothing about this one.
    """
    unit = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    queued = unit.get("Job", "0") not in ("", "0")
    current = rank if rank and rank["invocation"] == unit.get("InvocationID") else None
    if unit.get("ActiveState") in ("failed", "inactive") and not queued:
        end = current["end"] if current else None
        return Step("ended", fault=end["why"] if end else f"the engine's unit is {unit['ActiveState']}")
    if current is None:
        return Step("the unit starts")
    if current["ready"]:
        return Step("ready", ready=True)
    minutes = (now - current["since"]) / 60
    where = f"{current['stage']}: {current['detail']}" if current["detail"] else current["stage"]
    missing = ", ".join(current["missing"])
    fault = ""
    if current["stage"] == LoadStage.ROLL_CALL:
        where = f"{where}, waits for {missing}" if missing else where
        if minutes > roll_minutes:
            fault = f"the roll call waited {minutes:.0f} minutes for {missing or 'the head'}; limit: {roll_minutes:g}"
    return Step(f"{where}, for {minutes:.0f} min", fault=fault)


def outcome(steps: Mapping[str, Step], head: str) -> str:
    """`failed` once a rank has, `ready` once the head generated, else `wait`."""
    if any(step.fault for step in steps.values()):
        return "failed"
    return "ready" if steps[head].ready else "wait"
