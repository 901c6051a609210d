"""Checks of the executor Ray: who has registered with it, with which release, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, all_equal, rule
from .facts import Ray
from .intent import Intent
from .ray_plan import node_rank

RESTART = "run playbooks/stop.yml, then playbooks/start.yml"


@rule("ray.order", "Under Ray, rank k can only be on node k.", Stage.PREFLIGHT)
def ray_order(cluster: Cluster) -> Iterator[Check]:
    """Builds of vLLM from before its second Ray executor number the workers by their addresses as text.

    Newer ones go by the names that we give the nodes, so this is no reason to refuse.
    """
    intents = [intent for intent in cluster.intents.values() if intent.executor == "ray"]
    if not intents:
        return
    addresses = [intent.socket_address for intent in intents[1:]]
    sorted_addresses = sorted(addresses)
    good = addresses == sorted_addresses
    yield Check(
        "ray.order",
        intents[0].host,
        Status.OK if good else Status.WARN,
        f"the workers' addresses in the order of their ranks are {', '.join(addresses)}",
        f"ascending as text ({', '.join(sorted_addresses)}), or an older vLLM gives them other ranks",
        "give the ranks in that order in the inventory, if the image's vLLM has no v1/executor/ray_executor_v2.py",
    )


@rule(
    "ray.nodes",
    "Exactly the planned addresses are registered with Ray, each with its rank.",
    Stage.SERVING,
    needs="serving",
)
def ray_nodes(cluster: Cluster) -> Iterator[Check]:
    """A node told nothing registers the address of its LAN, and then its traffic goes there."""
    planned = {intent.socket_address: intent.rank for intent in cluster.intents.values()}
    for host, ray, intent in _rays(cluster):
        if not intent.is_head:
            continue
        if ray is None or ray["nodes"] is None:
            yield _unknown("ray.nodes", host, ray)
            continue
        found = {address: node_rank(name) for address, name in ray["nodes"].items()}
        yield Check(
            "ray.nodes",
            host,
            Status.OK if found == planned else Status.REFUSE,
            f"{_listed(found)} are registered with Ray" if found else "nobody is registered with Ray",
            f"{_listed(planned)} alone",
            RESTART,
        )


@rule("ray.version", "All nodes run the same release of Ray.", Stage.SERVING, needs="serving")
def ray_version(cluster: Cluster) -> Iterator[Check]:
    """Ray refuses a node with another release, in the middle of the launch."""
    versions = {}
    for host, ray, _ in _rays(cluster):
        if ray is None or ray["version"] is None:
            yield _unknown("ray.version", host, ray)
        else:
            versions[host] = ray["version"]
    yield from all_equal(
        "ray.version", versions, "its container has Ray", "use one image on all nodes and run site.yml"
    )


def _rays(cluster: Cluster) -> Iterator[tuple[str, Ray | None, Intent]]:
    """What the Ray of each node says, where one is meant to run."""
    for host, serving, intent in cluster.having("serving"):
        if intent.executor == "ray":
            yield host, serving["ray"], intent


def _listed(ranks: dict[str, int]) -> str:
    return ", ".join(f"{address} (rank {rank})" for address, rank in sorted(ranks.items(), key=lambda pair: pair[1]))


def _unknown(id_: str, host: str, ray: Ray | None) -> Check:
    reason = (ray and ray["error"]) or "no Ray of ours runs"
    return Check(id_, host, Status.REFUSE, reason, "a Ray in the engine's container that answers", RESTART)
