"""From the whole inventory and its profile to what every node is meant to be. Controller only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .address_plan import AddressPlan, NodeAddresses
from .intent import CheckpointNeed, Intent, RailEnd
from .inventory_rules import Inventory, plan_of
from .profiles import draft_tokens, drafts_with_own_layer, memory_need, overrides, shape


def make_intents(inventory: Inventory, image_id: str, resolve: Callable[[str], str] = str) -> dict[str, Intent]:
    """Every node's intent, in the order of the ranks.

    The inventory must have passed `find_mistakes`, and its profile the schema. `image_id` is the one that all nodes
    must have, empty when nothing pins it. Raises AddressPlanError.
    """
    plan = plan_of(inventory)
    return {node.host: _intent(inventory, plan, node, image_id, resolve) for node in plan.nodes}


def _intent(
    inventory: Inventory, plan: AddressPlan, node: NodeAddresses, image_id: str, resolve: Callable[[str], str]
) -> Intent:
    profile: Any = inventory.profile

    def value(name: str) -> Any:
        return inventory.value(node.host, name)

    management = resolve(_text(value("ansible_host"), node.host))
    head_management = resolve(_text(inventory.value(plan.nodes[0].host, "ansible_host"), plan.nodes[0].host))
    return Intent(
        host=node.host,
        rank=node.rank,
        world_size=len(plan.nodes),
        management=management,
        head=plan.nodes[0].host,
        head_address=plan.head_address,
        rails=tuple(RailEnd(rail.rail, rail.netdev, rail.address, rail.cidr, rail.mtu) for rail in node.rails),
        peers={peer.host: tuple(rail.address for rail in peer.rails) for peer in plan.peers(node.host)},
        accelerator=profile["accelerator"],
        memory=memory_need(profile, head=node.rank == 0),
        weights_path=f"{value('model_store_path')}/{profile['weights']['directory']}",
        weights_pushed=bool(value("model_store_source")),
        image=value("engine_image_ref"),
        image_id=image_id,
        api_host=_text(inventory.value(plan.nodes[0].host, "serving_api_host"), head_management),
        api_port=profile["serve"]["port"],
        master_port=profile["serve"]["master_port"],
        daemon_config=value("container_runtime_daemon_config"),
        checkpoint=checkpoint_need(profile),
        free_memory=bool(value("serving_free_memory")),
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
