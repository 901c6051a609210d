"""Checks of what is launched: the image, the ports, and the engine that runs already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .checks import Check, Cluster, Stage, Status, all_equal, rule
from .facts import Serving, engine_runs, has_image, own_container
from .image_need import REGISTRY
from .intent import Intent
from .names import ENGINE_CONTAINER, LABEL_CONFIG
from .own_ports import filter_rules, own_ports, rank_ports, span

WILDCARDS = ("0.0.0.0", "::")
# States of the unit in which its supervisor runs.
HOLDING = ("active", "reloading", "deactivating")


@rule(
    "image.present",
    "The engine image is on the node, and is the pinned one.",
    Stage.IMAGE,
    Stage.LAUNCH,
    needs="runtime",
)
def image_present(cluster: Cluster) -> Iterator[Check]:
    """`docker load` may drop a tag, and a tag may name anything: the image ID decides."""
    for host, runtime, intent in cluster.having("runtime"):
        found = runtime["images"].get(intent.image)
        good = has_image(runtime, intent.image, intent.image_id)
        yield Check(
            "image.present",
            host,
            Status.OK if good else Status.REFUSE,
            f"{intent.image} is {short(found) if found else 'absent'}",
            f"image ID {short(intent.image_id)}" if intent.image_id else "the image",
            "run site.yml, which distributes the image",
        )


@rule(
    "image.equal",
    "All nodes have the same image ID, where nothing pins it.",
    Stage.PREFLIGHT,
    Stage.IMAGE,
    needs="runtime",
)
def image_equal(cluster: Cluster) -> Iterator[Check]:
    """One node with another build of the image fails in the middle of the rendezvous.

    A pinned image is distributed to the nodes that lack it, so there `image.present` decides; and `image.distributed`
    where the head gives its own to all others.
    """
    nodes = list(cluster.having("runtime"))
    if all(intent.image_id and not runtime["containerd_store"] for _, runtime, intent in nodes):
        return
    if any(intent.image_need.distribution == REGISTRY for _, _, intent in nodes):
        return
    ids = {host: runtime["images"].get(intent.image) for host, runtime, intent in nodes}
    there = {host: image for host, image in ids.items() if image}
    same = {host: short(_first_name(cluster, there, host)) for host in there}
    yield from all_equal("image.equal", same, "its engine image is", "remove the image there and run site.yml")


@rule(
    "serving.port",
    "The ports of the API, the roll call and the ranks are free.",
    Stage.PREFLIGHT,
    Stage.LAUNCH,
    needs="serving",
)
def port_free(cluster: Cluster) -> Iterator[Check]:
    """A port that somebody else holds fails the launch after the load."""
    for host, serving, intent in cluster.having("serving"):
        # A head that waits for the other ranks holds the port of the roll call itself.
        if engine_runs(cluster.facts[host]) or serving["unit"] in HOLDING:
            continue
        for name, listen, numbers in listening(intent):
            taken = _taken(serving, listen, numbers)
            number, takers = taken or (numbers[0], [])
            yield Check(
                "serving.port",
                host,
                Status.REFUSE if takers else Status.OK,
                f"port {number if takers else span(numbers)} is held by {', '.join(takers) or 'nobody'}",
                f"free on {listen}",
                f"end {takers[0]}, or choose another port in the profile" if takers else "",
                subject=name,
            )


def listening(intent: Intent) -> list[tuple[str, str, range]]:
    """What a node listens on: for what, at which address, on which ports."""
    api, roll = (range(port, port + 1) for port in (intent.api_port, intent.roll_port))
    head = [("API", intent.api_host, api), ("roll call", intent.head_address, roll)] if intent.is_head else []
    ranks = rank_ports(intent)
    return [*head, *([("rendezvous", intent.socket_address, ranks)] if ranks else [])]


@rule(
    "serving.configuration",
    "A serving cluster runs the configuration of the inventory.",
    Stage.PREFLIGHT,
    needs="runtime",
)
def configuration(cluster: Cluster) -> Iterator[Check]:
    """A changed profile never restarts a serving cluster by itself."""
    for host, runtime, _ in cluster.having("runtime"):
        container = own_container(runtime, ENGINE_CONTAINER)
        if container is None or container["state"] != "running":
            continue
        runs = container["labels"].get(LABEL_CONFIG, "none")
        wanted = cluster.config_hashes.get(host, "none")
        yield Check(
            "serving.configuration",
            host,
            Status.OK if runs == wanted else Status.REFUSE,
            f"the engine runs configuration {runs}",
            f"{wanted}, which the inventory asks for",
            "undo the change, or run playbooks/stop.yml and then site.yml",
        )


@rule("serving.rank", "Every rank runs.", Stage.SERVING, needs="serving")
def rank_runs(cluster: Cluster) -> Iterator[Check]:
    """One rank less and the others wait for ever."""
    for host, serving, intent in cluster.having("serving"):
        good = serving["unit"] == "active" and engine_runs(cluster.facts[host])
        yield Check(
            "serving.rank",
            host,
            Status.OK if good else Status.REFUSE,
            f"the unit of rank {intent.rank} is {serving['unit']}, its container {_state(cluster, host)}",
            "active and running",
            "look at `journalctl -u sparkwright-engine`, then run playbooks/start.yml",
        )


@rule("serving.filter", "Only the other ranks reach the ports on which the ranks meet.", Stage.SERVING, needs="serving")
def ports_closed(cluster: Cluster) -> Iterator[Check]:
    """Ray and torch listen on every address, and run what they are sent; so the packet filter keeps strangers away."""
    for host, serving, intent in cluster.having("serving"):
        wanted, found = filter_rules(intent), serving["filter"]
        if wanted:
            faults = [f"lacks {one}" for one in wanted if one not in found]
            faults += [f"has {one}" for one in found if one not in wanted]
            ports = " and ".join(span(one) for one in own_ports(intent))
            yield Check(
                "serving.filter",
                host,
                Status.REFUSE if faults else Status.OK,
                f"the packet filter {faults[0] if faults else 'is closed'} for port {ports}",
                f"open to {', '.join(intent.socket_peers.values())} on {intent.socket_netdev} alone",
                "run playbooks/stop.yml, then playbooks/start.yml",
            )


def short(image_id: str) -> str:
    """An image ID as Docker shows it to people."""
    return image_id.removeprefix("sha256:")[:12]


def _first_name(cluster: Cluster, ids: Mapping[str, str], host: str) -> str:
    """What the first node that has the same image calls it: stores name it by its content or by its manifest."""
    names = {other: {image_id, *_digests(cluster, other, image_id)} for other, image_id in ids.items()}
    return next(image_id for other, image_id in ids.items() if names[other] & names[host])


def _digests(cluster: Cluster, host: str, image_id: str) -> list[str]:
    image = cluster.facts[host].get("image")
    return image["digests"] if image and image["id"] == image_id else []


def _taken(serving: Serving, listen: str, numbers: range) -> tuple[int, list[str]] | None:
    """The first of the ports that somebody holds in a way that keeps us from it, and who that is."""
    rows = [row for row in serving["listeners"] if row["port"] in numbers and _collide(row["address"], listen)]
    if not rows:
        return None
    number = min(row["port"] for row in rows)
    return number, sorted({row["process"] or "an unknown process" for row in rows if row["port"] == number})


def _collide(held: str, wanted: str) -> bool:
    return held == wanted or held in WILDCARDS or wanted in WILDCARDS


def _state(cluster: Cluster, host: str) -> str:
    runtime = cluster.facts[host].get("runtime")
    container = own_container(runtime, ENGINE_CONTAINER) if runtime else None
    return container["state"] if container else "absent"
