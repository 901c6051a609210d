"""From the whole inventory and its profile to what every node is meant to be. Controller only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .address_plan import RING, AddressPlan, NodeAddresses
from .intent import CheckpointNeed, Intent
from .inventory_rules import Inventory, plan_of
from .profiles import draft_tokens, drafts_with_own_layer, memory_need, overrides, shape
from .tuning import make_wish


def make_intents(inventory: Inventory, image_id: str, resolve: Callable[[str], str] = str) -> dict[str, Intent]:
    """Every node's intent, in the order of the ranks.

    The inventory must have passed `find_mistakes`, and its profile the schema. `image_id` is the one that all nodes
    must have, empty when nothing pins it. Raises AddressPlanError.
    """
    plan = plan_of(inventory)
    managed = {node.host: resolve(_text(inventory.value(node.host, "ansible_host"), node.host)) for node in plan.nodes}
    return {node.host: _intent(inventory, plan, node, image_id, managed) for node in plan.nodes}


def _intent(
    inventory: Inventory, plan: AddressPlan, node: NodeAddresses, image_id: str, managed: Mapping[str, str]
) -> Intent:
    profile: Any = inventory.profile

    def value(name: str) -> Any:
        return inventory.value(node.host, name)

    head, topology = plan.nodes[0].host, str(value("fabric_topology"))
    ring = topology == RING
    sockets = managed if ring else {other.host: other.rails[0].address for other in plan.nodes}
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
        weights_path=f"{value('model_store_path')}/{profile['weights']['directory']}",
        weights_pushed=bool(value("model_store_source")),
        image=value("engine_image_ref"),
        image_id=image_id,
        api_host=_text(inventory.value(head, "serving_api_host"), managed[head]),
        api_port=profile["serve"]["port"],
        master_port=profile["serve"]["master_port"],
        executor=profile["executor"],
        meet_seconds=int(value("serving_meet_minutes")) * 60,
        cage=_text(value("fabric_cage"), ""),
        nccl_env={name: str(text) for name, text in profile.get("nccl_env", {}).items()},
        daemon_config=value("container_runtime_daemon_config"),
        checkpoint=checkpoint_need(profile),
        free_memory=bool(value("serving_free_memory")),
        tuning=make_wish(lambda name: value(f"host_tuning_{name}"), memory_need(profile, head=node.rank == 0).floor),
    )


def checkpoint_need(profile: Mapping[str, Any]) -> CheckpointNeed:
    """What the checkpoint must be: the model that the profile states, with its MTP layer where that guesses tokens."""
    model, over = profile.get("model") or {}, overrides(profile)
    found = shape(profile)
    if profile["weights"].get("draft"):
        # The draft's layers are in a directory of their own, whatever the checkpoint says about its own.
        over["num_nextn_predict_layers"] = model.get("num_nextn_predict_layers", 0)
    prefixes = {}
    if found is not None and drafts_with_own_layer(profile):
        # The MTP layer is counted on behind the layers of the model, from 0.
        prefixes[f"model.layers.{found.layers}."] = f"guessing {draft_tokens(profile)} tokens ahead"
    return CheckpointNeed(dict(model), over if model else {}, prefixes)


def _text(value: object, otherwise: str) -> str:
    return value if isinstance(value, str) and value else otherwise
