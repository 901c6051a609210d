"""Is the cluster serving, down, or something in between? One answer for all nodes, from fresh facts."""

from __future__ import annotations

from enum import StrEnum

from .checks import Cluster
from .facts import own_container
from .names import ENGINE_CONTAINER, LABEL_CONFIG


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
