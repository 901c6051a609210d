"""Checks: the record that every check returns, how one enters the catalogue, and the verdict over their results.

A check is a pure function from the facts and intents of all nodes to records, one or more for each node. The stages say
when it is a gate: a verb passes a stage only when no check of that stage refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .facts import Fabric, HashReport, NodeFacts, Weights
from .intent import Intent, RailEnd
from .rails import Doubt
from .rdma_schedule import RdmaProbe


class Status(StrEnum):
    """What a check found: `unknown` is a fact that could not be read, and is no pass."""

    OK = "ok"
    WARN = "warn"
    REFUSE = "refuse"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """When a check is a gate, in the order of `site.yml`."""

    # Before anything is changed.
    PREFLIGHT = "preflight"
    # After the host was tuned.
    HOST = "host"
    # After the rails were configured.
    FABRIC = "fabric"
    WEIGHTS = "weights"
    IMAGE = "image"
    # Right before the engine starts; the node itself asks these again in its unit.
    LAUNCH = "launch"
    # While the engine serves.
    SERVING = "serving"
    # After an update, before anything is put back.
    UPDATE = "update"


@dataclass(frozen=True)
class Check:
    """One result. `fact` has the number that was found, `limit` the one that it was held against.

    `subject` tells apart the results of one check on one host, such as its rails.
    """

    id: str
    host: str
    status: Status
    fact: str
    limit: str = ""
    remedy: str = ""
    subject: str = ""

    @property
    def name(self) -> str:
        """The check's id with its subject."""
        return f"{self.id} {self.subject}".strip()

    def __str__(self) -> str:
        """The result as one line of plain English; what is right needs no remedy."""
        parts = [f"{self.host}: {self.fact}"]
        if self.limit:
            parts.append(f"limit: {self.limit}")
        if self.remedy and self.status is not Status.OK:
            parts.append(f"remedy: {self.remedy}")
        return " ".join("; ".join(parts).split())

    def as_data(self) -> dict[str, str]:
        """Plain data for JSON, with the one-line message."""
        return {**{key: str(value) for key, value in asdict(self).items()}, "message": str(self)}


@dataclass(frozen=True)
class Cluster:
    """What is known about all nodes: facts as read, intents as planned, both by host."""

    facts: Mapping[str, NodeFacts]
    intents: Mapping[str, Intent]
    # The hash of the configuration that each node should run, where it can be known.
    config_hashes: Mapping[str, str] = field(default_factory=dict)
    # The checkpoint on the controller that is copied to the nodes, where there is one.
    source: Weights | None = None
    # Why the interface of a rail was not found, by host.
    doubts: Mapping[str, Sequence[Doubt]] = field(default_factory=dict)
    # What the nodes found when they wrote to each other over RDMA; empty unless they were asked to.
    rdma: Mapping[str, RdmaProbe] = field(default_factory=dict)
    # What the nodes found when they compared the checkpoint with the head's manifest; empty before there is one.
    hashes: Mapping[str, HashReport] = field(default_factory=dict)
    # The stage that is asked about; None for all of them at once.
    stage: Stage | None = None

    def having(self, section: str) -> Iterator[tuple[str, Any, Intent]]:
        """The nodes whose facts have that section: host, the section, the intent."""
        for host, intent in self.intents.items():
            facts: Mapping[str, Any] = self.facts.get(host, {})
            if section in facts:
                yield host, facts[section], intent

    def rail_ends(self) -> Iterator[tuple[str, Fabric, Intent, RailEnd]]:
        """The ends of all rails whose interface was found; `fabric.rail` tells of the others."""
        for host, fabric, intent in self.having("fabric"):
            for rail in intent.rails:
                if rail.netdev:
                    yield host, fabric, intent, rail


Function = Callable[[Cluster], Iterator[Check]]


@dataclass(frozen=True)
class Rule:
    """One line of the catalogue."""

    id: str
    what: str
    stages: frozenset[Stage]
    # The section of the facts that it looks at; a node that answered and lacks it is a result of its own.
    needs: str
    run: Function


REGISTERED: dict[str, Rule] = {}


def rule(id_: str, what: str, *stages: Stage, needs: str = "") -> Callable[[Function], Function]:
    """Enter a check function into the catalogue under a stable id; `what` is its line in the documentation.

    `needs` names the section of the facts without which it can say nothing.
    """

    def enter(run: Function) -> Function:
        if id_ in REGISTERED:
            raise ValueError(f"the check {id_} is already there")
        REGISTERED[id_] = Rule(id_, what, frozenset(stages), needs, run)
        return run

    return enter


def all_equal(id_: str, values: dict[str, str], fact: str, remedy: str) -> Iterator[Check]:
    """One result a host: what most of them have is right. `fact` begins the line that the value ends."""
    if not values:
        return
    usual, _ = Counter(values.values()).most_common(1)[0]
    for host, value in values.items():
        status = Status.OK if value == usual else Status.REFUSE
        yield Check(id_, host, status, f"{fact} {value}", f"{usual}, as on the others", remedy)


def refusals(checks: Iterable[Check]) -> list[Check]:
    """The checks that stop a verb: refusals, and facts that could not be read."""
    return [check for check in checks if check.status in (Status.REFUSE, Status.UNKNOWN)]


def table(checks: Iterable[Check], hosts: Iterable[str]) -> str:
    """The results as a table, a line a check and a column a node, with the lines that are not ok below it.

    `hosts` orders the columns; a result of another host, such as the controller, gets a column of its own behind them.
    """
    results = list(checks)
    columns = list(dict.fromkeys([*hosts, *(check.host for check in results)]))
    rows = [["check", *columns]]
    for name in dict.fromkeys(check.name for check in results):
        found = {check.host: check.status for check in results if check.name == name}
        rows.append([name, *(str(found.get(host, "-")) for host in columns)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns) + 1)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "-" * len(lines[0]))
    notes = [f"{check.status}: [{check.name}] {check}" for check in results if check.status is not Status.OK]
    return "\n".join(lines + notes)
