"""From the whole inventory and its profile to what every node is meant to be. Controller only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .address_plan import RING, AddressPlan, NodeAddresses
from .daemon_config import INSECURE
from .image_need import REGISTRY, ImageNeed, distribution_of, need_of
from .intent import CheckpointNeed, Intent, RailEnd
from .inventory_rules import Inventory, plan_of
from .own_ports import ROLL_PORT
from .profiles import draft_tokens, drafts_with_own_layer, memory_need, overrides, shape
from .share import LOCAL, NFS, ShareWish
from .tuning import make_wish
from .update_wish import UpdateWish, known_bad_table
from .weights_source import source_plan


def api_address(chosen: str, management: str, fabric: str) -> str:
    """Where the API listens: one of the head's two networks, or the address that was chosen itself."""
    return {"management": management, "fabric": fabric}.get(chosen, chosen)


def make_intents(
    inventory: Inventory, image_id: str, resolve: Callable[[str], str] = str, build: str = ""
) -> dict[str, Intent]:
    """Every node's intent, in the order of the ranks.

    The inventory must have passed `find_mistakes`, and its profile the schema. `image_id` is the one that all nodes
    must have, empty when nothing pins it, `build` the hash of what it is built from. Raises AddressPlanError.
    """
    plan = plan_of(inventory)
    managed = {node.host: resolve(_text(inventory.value(node.host, "ansible_host"), node.host)) for node in plan.nodes}
    named = _text(inventory.value(plan.nodes[0].host, "model_store_nfs_server"), "")
    store = resolve(named) if named else ""
    return {node.host: _intent(inventory, plan, node, image_id, managed, build, store) for node in plan.nodes}


def _intent(
    inventory: Inventory,
    plan: AddressPlan,
    node: NodeAddresses,
    image_id: str,
    managed: Mapping[str, str],
    build: str,
    store: str,
) -> Intent:
    profile: Any = inventory.profile

    def value(name: str) -> Any:
        return inventory.value(node.host, name)

    source = source_plan(value, profile["weights"]["directory"])
    head, topology = plan.nodes[0].host, str(value("fabric_topology"))
    ring = topology == RING
    share = share_wish(profile, value, plan.nodes, node, store)
    sockets = managed if ring else {other.host: other.rails[0].address for other in plan.nodes}
    need = image_need(profile, value, sockets[head], build)
    return Intent(
        host=node.host,
        rank=node.rank,
        world_size=len(plan.nodes),
        management=managed[node.host],
        head=head,
        head_address=sockets[head],
        topology=topology,
        rails=node.rails,
        socket_netdev="" if ring else node.rails[0].netdev,
        socket_address=sockets[node.host],
        socket_peers={host: address for host, address in sockets.items() if host != node.host},
        accelerator=profile["accelerator"],
        memory=memory_need(profile, head=node.rank == 0),
        weights_path=source.path,
        weights_pushed=source.brings or not share.holds,
        image=value("engine_image_ref"),
        image_id=image_id,
        api_host=api_address(str(inventory.value(head, "serving_api_address")), managed[head], sockets[head]),
        api_port=profile["serve"]["port"],
        master_port=profile["serve"]["master_port"],
        roll_port=profile["serve"].get("roll_port", ROLL_PORT),
        executor=profile["executor"],
        cage=_text(value("fabric_cage"), ""),
        nccl_env={name: str(text) for name, text in profile.get("nccl_env", {}).items()},
        daemon_config=daemon_config(value("container_runtime_daemon_config"), need, head=node.rank == 0),
        checkpoint=replace(
            checkpoint_need(profile),
            sources=source.sources,
            parts=tuple(source.parts),
            disk=profile["weights"]["bytes"] if source.brings else 0,
        ),
        free_memory=bool(value("serving_free_memory")),
        tuning=make_wish(lambda name: value(f"host_tuning_{name}"), memory_need(profile, head=node.rank == 0).floor),
        updates=UpdateWish(
            hold=tuple(value("os_update_hold") or ()),
            accept=tuple(value("os_update_accept") or ()),
            removals=tuple(value("os_update_removals") or ()),
            known_bad=known_bad_table(inventory.known_bad, value("os_update_known_bad") or ()),
        ),
        image_need=need,
        share=share,
    )


def image_need(profile: Mapping[str, Any], value: Callable[[str], Any], head_address: str, build: str) -> ImageNeed:
    """What the image must be, and how it travels."""
    way = distribution_of(
        value("engine_image_distribution"), value("engine_image_archive"), value("engine_image_build")
    )
    return need_of(
        profile,
        distribution=way,
        build=build,
        registry=f"{head_address}:{value('engine_image_registry_port')}" if way == REGISTRY else "",
        mounts=tuple(value("serving_extra_mounts")),
    )


def daemon_config(wanted: Mapping[str, Any], need: ImageNeed, head: bool) -> dict[str, Any]:
    """Docker's configuration, and that the head's registry speaks plain HTTP; the head itself pushes to localhost."""
    if not need.registry or head:
        return dict(wanted)
    return {**wanted, INSECURE: [*wanted.get(INSECURE, ()), need.registry]}


def share_wish(
    profile: Mapping[str, Any],
    value: Callable[[str], Any],
    nodes: Sequence[NodeAddresses],
    node: NodeAddresses,
    store: str,
) -> ShareWish:
    """A node's part in sharing the weights; `store` is the address of an NFS server that is none of the nodes."""
    head, weights = nodes[0], profile["weights"]
    draft = [weights["draft"]["directory"]] if weights.get("draft") else []
    wish = ShareWish(
        mode=str(value("model_store_share")),
        path=str(value("model_store_path")).rstrip("/"),
        folders=(weights["directory"], *draft),
        proto=str(value("model_store_nfs_proto")),
        connections=int(value("model_store_nfs_connections")),
        read_ahead_kb=int(value("model_store_nfs_read_ahead_kb")),
        threads=int(value("model_store_nfs_threads")),
        cache=str(value("serving_cache_path")),
    )
    if wish.mode != NFS:
        return replace(wish, holds=wish.mode == LOCAL or node.host == head.host)
    if store:
        return replace(wish, holds=False, server=store, remote=_text(value("model_store_nfs_export"), wish.path))
    if node.host == head.host:
        clients = tuple(peer for rail in head.rails for peer in rail.peers.values())
        return replace(wish, clients=clients, listen=tuple(rail.address for rail in head.rails))
    rail = rail_to(node, head.host, value("model_store_nfs_rails") or ())
    return replace(wish, holds=False, server=rail.peers[head.host], remote=wish.path, address=rail.address)


def rail_to(node: NodeAddresses, head: str, names: Sequence[str]) -> RailEnd:
    """The rail over which a node mounts: the first one, or of those named the one whose turn it is by rank.

    The rules of the inventory have seen to it that such a rail leads to the head.
    """
    leading = [rail for rail in node.rails if head in rail.peers]
    named = [rail for name in names for rail in leading if rail.name.split(".link")[0] == name]
    return named[(node.rank - 1) % len(named)] if names else leading[0]


def checkpoint_need(profile: Mapping[str, Any]) -> CheckpointNeed:
    """What the checkpoint must be: the model that the profile states, with its MTP layer where that guesses tokens."""
    model, over = profile.get("model") or {}, overrides(profile)
    found = shape(profile)
    if profile["weights"].get("draft"):
        # The draft's layers are in a directory of their own, whatever the checkpoint says about its own.
        over["num_nextn_predict_layers"] = model.get("num_nextn_predict_layers", 0)
    prefixes = {}
    if found is not None and drafts_with_own_layer(profile):
        # MTP layers are counted on behind the layers of the model, from 0.
        layers = range(found.layers, found.layers + max(found.draft_layers, 1))
        prefixes = {f"model.layers.{n}.": f"guessing {draft_tokens(profile)} tokens ahead" for n in layers}
    return CheckpointNeed(dict(model), over if model else {}, prefixes)


def _text(value: object, otherwise: str) -> str:
    return value if isinstance(value, str) and value else otherwise
