"""What a trimmed Ray is started with, who must register with it, and what is said when somebody does not.

The controller makes the command line of a rank from a plan, and the program inside the container (ray_rank.py) reads
the plan back from it. So the file uses the standard library alone and runs on the image's Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Where each of Ray's servers listens, counted from Ray's own port; without these they take any port there is.
PORTS = {
    "node-manager-port": 1,
    "object-manager-port": 2,
    "runtime-env-agent-port": 3,
    "dashboard-agent-grpc-port": 4,
    "dashboard-agent-listen-port": 5,
    "metrics-export-port": 6,
    "min-worker-port": 20,
    "max-worker-port": 119,
}
# Ray's server for remote clients runs on the head wherever grpc can be imported, and refuses the port where it cannot.
CLIENT_PORT = 7

# Ray's folder, of the container and gone with it: what an earlier Ray left there would be taken for a running one.
FOLDER = "/tmp/ray"

# Digits of Ray's name of a node, in hexadecimal.
NODE_ID_DIGITS = 56

NEXT = "--"


@dataclass(frozen=True)
class RayPlan:
    """One rank's part in a Ray cluster.

    Attributes:
        rank: The number of this rank.
        ranks: Host and address of every rank, in their order.
        port: The port of Ray itself on the head; those of PORTS are counted from it.
        seconds: How long the head waits for all ranks.
        start: The argument list that starts Ray.
        serve: What the head runs once all ranks are there; empty on a worker.
    """

    rank: int
    ranks: Mapping[str, str]
    port: int
    seconds: int
    start: Sequence[str]
    serve: Sequence[str] = ()

    @property
    def host(self) -> str:
        """The node of this rank."""
        return list(self.ranks)[self.rank]

    @property
    def address(self) -> str:
        """Where this rank is met."""
        return self.ranks[self.host]

    @property
    def head(self) -> str:
        """The node of rank 0."""
        return next(iter(self.ranks))

    @property
    def is_head(self) -> bool:
        """Rank 0 has Ray's own server, and the engine's API."""
        return self.rank == 0

    @property
    def meeting_point(self) -> str:
        """Address and port of Ray itself."""
        return f"{self.ranks[self.head]}:{self.port}"

    @property
    def watched(self) -> dict[str, tuple[str, int]]:
        """Host, and where it must go on listening: all of them for the head, the head and itself for a worker."""
        looked_at = list(self.ranks) if self.is_head else [self.head, self.host]
        return {host: (self.ranks[host], self.port + PORTS["node-manager-port"]) for host in looked_at}

    def as_arguments(self) -> list[str]:
        """The arguments from which `from_arguments` makes the same plan."""
        ranks = ",".join(f"{host}={address}" for host, address in self.ranks.items())
        own = ["--rank", str(self.rank), "--ranks", ranks, "--port", str(self.port), "--seconds", str(self.seconds)]
        return [*own, NEXT, *self.start]

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> RayPlan:
        """The plan that a command line carries. Raises ValueError and KeyError for any other command line."""
        own, *rest = _split(arguments)
        given = dict(zip(own[::2], own[1::2], strict=True))
        ranks = dict(pair.split("=", 1) for pair in given["--ranks"].split(","))
        rank, port, seconds = (int(given[name]) for name in ("--rank", "--port", "--seconds"))
        start, serve = (*rest, [])[:2]
        return cls(rank, ranks, port, seconds, start, serve)


def node_id(rank: int, random: str) -> str:
    """Ray's name for the node of a rank; `random` has at least as many hexadecimal digits.

    vLLM numbers its ranks by these names, the head first (v1/executor/ray_utils.py, get_bundles_sorted_by_node), so the
    number of the rank comes first. The rest must be new at each start, as Ray takes no node back that it has lost.
    """
    return f"{rank:02x}{random}"[:NODE_ID_DIGITS]


def node_rank(name: str) -> int:
    """The rank that `node_id` wrote into a name."""
    return int(name[:2], 16)


def missing(plan: RayPlan, registered: Mapping[str, str]) -> list[str]:
    """One line for each rank that has not registered its planned address; `registered` has Ray's names by address."""
    lines = []
    for rank, (host, address) in enumerate(plan.ranks.items()):
        if address not in registered:
            fact = f"rank {rank} has not registered {address} with Ray at {plan.meeting_point}"
            limit = f"all {len(plan.ranks)} ranks within {plan.seconds // 60} minutes"
            remedy = f"look at `journalctl -u sparkwright-engine` on {host}, then run playbooks/start.yml"
            lines.append(f"{host}: {fact}; limit: {limit}; remedy: {remedy}")
    return lines


def strangers(plan: RayPlan, registered: Mapping[str, str]) -> list[str]:
    """One line for each address that registered and is not planned."""
    planned = set(plan.ranks.values())
    limit = f"{', '.join(plan.ranks.values())} alone"
    remedy = "end the Ray that joined from there, then run playbooks/start.yml"
    return [
        f"{plan.head}: {address} is registered with Ray at {plan.meeting_point}; limit: {limit}; remedy: {remedy}"
        for address in sorted(set(registered) - planned)
    ]


def gone(plan: RayPlan, host: str) -> str:
    """What is said of a rank that no longer listens."""
    rank = list(plan.ranks).index(host)
    address, port = plan.watched[host]
    fact = f"rank {rank} is gone: nothing answers at {address}:{port}"
    remedy = f"look at `journalctl -u sparkwright-engine` on {host}, then run playbooks/start.yml"
    return f"{host}: {fact}; limit: it runs as long as rank {plan.rank} on {plan.host}; remedy: {remedy}"


def ended(plan: RayPlan, what: str, code: int) -> str:
    """What is said of a process of this rank that ended by itself."""
    remedy = "read the log above, then run playbooks/start.yml"
    return f"{plan.host}: {what} of rank {plan.rank} ended with {code}; limit: it runs until stopped; remedy: {remedy}"


def _split(arguments: Sequence[str]) -> list[list[str]]:
    """The arguments in up to three parts, divided by the first two lone double dashes."""
    parts: list[list[str]] = [[]]
    for word in arguments:
        if word == NEXT and len(parts) < 3:
            parts.append([])
        else:
            parts[-1].append(word)
    if len(parts) == 1:
        raise ValueError(f"no {NEXT} and no command behind it")
    return parts
