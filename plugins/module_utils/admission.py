"""Will the launch fit, on every node and for the cluster: one table from fresh facts, a line a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .catalogue import run_checks
from .checks import Check, Cluster, Status, refusals
from .checks_memory import node_of
from .meminfo import GIB
from .shortage import Node, named

# The checks that decide: a node that cannot be read is no node with enough memory.
DECIDING = ("node.reachable", "memory.")
HEAD = ("node", "rank", "MemTotal", "available", "cache", "swap used", "needed", "guard", "verdict")


@dataclass(frozen=True)
class Admission:
    """The decision over all nodes; `nodes` are those that will load their rank, `refused` what keeps them from it."""

    cluster: Cluster
    nodes: dict[str, Node]
    checks: Sequence[Check]

    @property
    def refused(self) -> list[Check]:
        """The refusals, in the order of the ranks."""
        order = list(self.cluster.intents)
        return sorted(refusals(self.checks), key=lambda check: order.index(check.host))

    @property
    def admitted(self) -> bool:
        """Whether the launch fits on every node."""
        return not self.refused


def decide(cluster: Cluster) -> Admission:
    """Ask every check of the memory."""
    nodes = {host: node for host in cluster.intents if (node := node_of(cluster, host))}
    return Admission(cluster, nodes, [check for check in run_checks(cluster) if check.id.startswith(DECIDING)])


def table(admission: Admission) -> str:
    """A line a node, what is wrong, and the verdict for the cluster."""
    rows = [HEAD, *(_row(admission, host) for host in admission.cluster.intents)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "-" * len(lines[0]))
    lines += [f"{check.status}: [{check.name}] {check}" for check in _worth_a_line(admission)]
    return "\n".join([*lines, summary(admission)])


def summary(admission: Admission) -> str:
    """The verdict for the cluster: the tightest node, or the first rank that does not fit."""
    if admission.refused:
        first = admission.refused[0].host
        rank = admission.cluster.intents[first].rank
        hosts = list(dict.fromkeys(check.host for check in admission.refused))
        return f"cluster: refused on {', '.join(hosts)}; the first rank that does not fit is {rank} on {first}"
    if not admission.nodes:
        return "cluster: admitted; every rank is loaded already"
    host, node = max(admission.nodes.items(), key=lambda item: item[1].lacking)
    return f"cluster: admitted; the tightest node is {host} with {-node.lacking / GIB:.2f} GiB to spare"


def as_data(admission: Admission) -> dict[str, Any]:
    """The decision for machines, in bytes."""
    return {
        "admitted": admission.admitted,
        "summary": summary(admission),
        "nodes": {host: _node_data(node) for host, node in admission.nodes.items()},
        "checks": [check.as_data() for check in admission.checks],
    }


def _worth_a_line(admission: Admission) -> list[Check]:
    order = list(admission.cluster.intents)
    wrong = [check for check in admission.checks if check.status is not Status.OK]
    return sorted(wrong, key=lambda check: order.index(check.host))


def _row(admission: Admission, host: str) -> tuple[str, ...]:
    node, rank = admission.nodes.get(host), str(admission.cluster.intents[host].rank)
    refused = host in {check.host for check in admission.refused}
    if node is None:
        return (host, rank, *("-",) * 6, "refused" if refused else "loaded already")
    wanted = (node.need.required(node.total), node.need.asked(node.total))
    figures = (node.total, node.available, node.page_cache, node.swap_used, *wanted)
    return (host, rank, *(f"{size / GIB:.2f}" for size in figures), _verdict(node, refused))


def _verdict(node: Node, refused: bool) -> str:
    if node.lacking > 0:
        return f"{node.lacking / GIB:.2f} short"
    return "refused" if refused else f"fits, {-node.lacking / GIB:.2f} to spare"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """The node's name and the verdict to the left, figures to the right."""
    name, *figures, verdict = row
    cells = [figure.rjust(width) for figure, width in zip(figures, widths[1:-1], strict=True)]
    return "  ".join([name.ljust(widths[0]), *cells, verdict])


def _node_data(node: Node) -> dict[str, Any]:
    return {
        "total": node.total,
        "available": node.available,
        "page_cache": node.page_cache,
        "swap_used": node.swap_used,
        "needed": node.need.parts(node.total),
        "guard": node.need.asked(node.total),
        "short": max(0, node.lacking),
        "gpu": [named(process) for process in node.processes["gpu"]],
        "largest": [named(process) for process in node.processes["resident"]],
    }
