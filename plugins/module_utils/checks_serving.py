"""Checks of an engine that serves: its cache, the transport of every rank, where it listens, and its watchdog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .capacity import capacity
from .checks import Check, Cluster, Stage, Status, rule
from .checks_launch import WILDCARDS
from .facts import Fabric, Rank, engine_runs
from .intent import Intent
from .nccl_env import NcclEnvError, rail_devices

# Shares by which the engine's tokens may differ from the plan: a cache of a given size is computed to the token, and
# one that the engine sizes by what is left depends on what the load took.
GIVEN_TOLERANCE, OWN_TOLERANCE = 0.01, 0.1
DEBUG = "NCCL_DEBUG"
LOOK = "look at `journalctl -u sparkwright-engine`"


@rule("serving.capacity", "The KV cache holds the tokens that were planned.", Stage.SERVING, needs="serving")
def kv_capacity(cluster: Cluster) -> Iterator[Check]:
    """A smaller cache makes long requests wait or fail, without a word."""
    for host, rank, intent in _serving(cluster):
        planned = _planned(cluster, host, intent)
        if not intent.is_head or planned is None:
            continue
        tokens, concurrency = rank["figures"]["kv_tokens"], rank["figures"]["concurrency"]
        least = int(planned.tokens * (1 - (OWN_TOLERANCE if intent.memory.sizes_itself else GIVEN_TOLERANCE)))
        most = int(planned.tokens * (1 + GIVEN_TOLERANCE))
        right = tokens is not None and least <= tokens and (intent.memory.sizes_itself or tokens <= most)
        yield Check(
            "serving.capacity",
            host,
            Status.OK if right else Status.WARN if tokens is None else Status.REFUSE,
            "the engine's log does not tell the size of its cache"
            if tokens is None
            else f"the engine has {tokens:,} tokens of KV cache, {concurrency:.2f}x",
            f"{planned}, as planned",
            f"correct memory and model in the profile, or {LOOK}",
        )


@rule("serving.transport", "Every rank talks over the rails.", Stage.SERVING, needs="serving")
def transport(cluster: Cluster) -> Iterator[Check]:
    """NCCL falls back to TCP in silence, at a tenth of the speed."""
    for host, rank, intent in _serving(cluster):
        if intent.executor == "llamacpp":
            # It is told the addresses of the rail and has no other way.
            continue
        shown, limit = TRANSPORTS[intent.accelerator](rank["figures"], intent, cluster.facts[host].get("fabric"))
        asked = intent.accelerator == "cpu" or str(intent.nccl_env.get(DEBUG, "")).upper() == "INFO"
        silent = Status.REFUSE if asked else Status.WARN
        remedy = f"{LOOK}, then run playbooks/doctor.yml"
        yield Check(
            "serving.transport",
            host,
            silent if not shown else Status.OK if shown == limit else Status.REFUSE,
            f"rank {intent.rank} uses {shown}"
            if shown
            else f"the log of rank {intent.rank} does not tell its transport",
            limit,
            remedy if asked or shown else f"write {DEBUG}: INFO in the profile's nccl_env",
        )


@rule("serving.listeners", "The API and the roll call listen where they should.", Stage.SERVING, needs="serving")
def listeners(cluster: Cluster) -> Iterator[Check]:
    """What listens on all addresses can be reached from the LAN, or over Wi-Fi.

    Ray and PyTorch listen everywhere and cannot be told another; what keeps strangers from them is serving.filter.
    """
    for host, serving, intent in cluster.having("serving"):
        if not intent.is_head or not engine_runs(cluster.facts[host]):
            continue
        for name, wanted, port in (
            ("API", intent.api_host, intent.api_port),
            ("roll call", intent.head_address, intent.roll_port),
        ):
            found = sorted({row["address"] for row in serving["listeners"] if row["port"] == port})
            yield Check(
                "serving.listeners",
                host,
                Status.OK if found == [wanted] or wanted in WILDCARDS else Status.REFUSE,
                f"port {port} listens on {' and '.join(found) or 'no address'}",
                f"{wanted} alone",
                "run playbooks/stop.yml, then playbooks/start.yml",
                subject=name,
            )


@rule("serving.watchdog", "The watchdog has nothing to report.", Stage.SERVING, needs="serving")
def watchdog(cluster: Cluster) -> Iterator[Check]:
    """An engine that was started again serves, but somebody should know."""
    for host, serving, intent in cluster.having("serving"):
        state = serving["watchdog"]
        if not intent.is_head:
            continue
        restarts = len(state["restarts"]) if state else 0
        stopped, last = (state["stopped"], state["last"]) if state else ("", "")
        fact = f"it started the ranks again {restarts} times" if restarts != 1 else "it started the ranks again once"
        if last:
            fact += f", the last time because of this: {last}" if not stopped else f", and gave up: {stopped}"
        yield Check(
            "serving.watchdog",
            host,
            Status.REFUSE if stopped else Status.WARN if restarts else Status.OK,
            fact,
            "no failure since somebody started the engine",
            "remove the cause, then run playbooks/start.yml"
            if stopped
            else "remove the cause; the next failure within 24 hours stops all ranks",
        )


def _serving(cluster: Cluster) -> Iterator[tuple[str, Rank, Intent]]:
    """The ranks that run, with what their supervisor read in the engine's log."""
    for host, serving, intent in cluster.having("serving"):
        rank = serving["rank"]
        if engine_runs(cluster.facts[host]) and rank and rank["ready"]:
            yield host, rank, intent


def _planned(cluster: Cluster, host: str, intent: Intent) -> Any:
    need, memory = intent.memory, cluster.facts[host].get("memory")
    if not need.block or not need.context:
        return None
    if not need.sizes_itself:
        return capacity(need.kv_cache, need.block, need.context)
    # The total is the machine's own; of a node whose memory was not read nothing can be said.
    return capacity(need.cache(memory["MemTotal"] * 1024), need.block, need.context) if memory else None


def _gloo(figures: Mapping[str, Any], intent: Intent, fabric: Fabric | None) -> tuple[str, str]:
    meets, place = figures["meets"], f"tcp://{intent.head_address}:{intent.master_port}"
    if intent.executor == "ray":
        # There the ranks meet at a port of the head that is free at that moment.
        meets, place = (text.rpartition(":")[0] for text in (meets, place))
    return (f"{figures['backend']} at {meets}" if figures["backend"] else ""), f"gloo at {place}"


def _nccl(figures: Mapping[str, Any], intent: Intent, fabric: Fabric | None) -> tuple[str, str]:
    try:
        devices = rail_devices(intent, fabric) if fabric else []
    except NcclEnvError:
        devices = []
    shown = f"NET/{figures['network']} with {_listed(figures['devices'])}" if figures["network"] else ""
    return shown, f"NET/IB with {_listed(devices)}"


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "no device"


# What each accelerator's ranks say of their transport, and what they should: both as text.
TRANSPORTS = {"cpu": _gloo, "cuda": _nccl}
