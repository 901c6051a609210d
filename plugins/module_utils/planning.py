"""From the whole inventory and its profile to what every node is meant to be. Controller only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .address_plan import RING, AddressPlan, NodeAddresses
from .intent import Intent, MemoryNeed
from .inventory_rules import Inventory, plan_of
from .meminfo import GIB
from .tuning import make_wish


def make_intents(inventory: Inventory, image_id: str, resolve: Callable[[str], str] = str) -> dict[str, Intent]:
    """Every node's intent, in the order of the ranks.

    The inventory must have passed `find_mistakes`, and its profile the schema. `image_id` is the one that all nodes
    must have, empty when nothing pins it. Raises AddressPlanError.
    """
    plan = plan_of(inventory)
    return {node.host: _intent(inventory, plan, node, image_id, resolve) for node in plan.nodes}


def memory_need(profile: Mapping[str, Any]) -> MemoryNeed:
    """Bytes that one rank of a profile takes; the weights are shared evenly by all ranks of TP and PP."""
    memory, parallel = profile["memory"], profile["parallel"]
    return MemoryNeed(
        weights=profile["weights"]["bytes"] // (parallel["tp"] * parallel["pp"]),
        kv_cache=memory["kv_cache_bytes"],
        runtime=int(memory["runtime_gib"] * GIB),
        floor=int(memory["floor_gib"] * GIB),
        utilization=float(memory.get("utilization", 0)),
    )


def _intent(
    inventory: Inventory, plan: AddressPlan, node: NodeAddresses, image_id: str, resolve: Callable[[str], str]
) -> Intent:
    profile: Any = inventory.profile

    def value(name: str) -> Any:
        return inventory.value(node.host, name)

    management = resolve(_text(value("ansible_host"), node.host))
    head_management = resolve(_text(inventory.value(plan.nodes[0].host, "ansible_host"), plan.nodes[0].host))
    topology, first = str(value("fabric_topology")), node.rails[0]
    managed, need = topology == RING, memory_need(profile)
    return Intent(
        host=node.host,
        rank=node.rank,
        world_size=len(plan.nodes),
        management=management,
        head=plan.nodes[0].host,
        head_address=head_management if managed else plan.head_address,
        topology=topology,
        rails=node.rails,
        socket_netdev="" if managed else first.netdev,
        socket_address=management if managed else first.address,
        accelerator=profile["accelerator"],
        memory=need,
        weights_path=f"{value('model_store_path')}/{profile['weights']['directory']}",
        weights_pushed=bool(value("model_store_source")),
        image=value("engine_image_ref"),
        image_id=image_id,
        api_host=_text(inventory.value(plan.nodes[0].host, "serving_api_host"), head_management),
        api_port=profile["serve"]["port"],
        master_port=profile["serve"]["master_port"],
        cage=_text(value("fabric_cage"), ""),
        nccl_env={name: str(text) for name, text in profile.get("nccl_env", {}).items()},
        daemon_config=value("container_runtime_daemon_config"),
        tuning=make_wish(lambda name: value(f"host_tuning_{name}"), need.floor),
    )


def _text(value: object, otherwise: str) -> str:
    return value if isinstance(value, str) and value else otherwise
