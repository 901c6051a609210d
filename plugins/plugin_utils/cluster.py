"""From the inventory and the facts that a task registered to the cluster that the checks and the plan look at."""

from __future__ import annotations

import json
import socket
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.template import Templar

from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import AddressPlanError
from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import read_weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Cluster
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import Weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_build import Context
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_build import render as render_build
from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import Intent
from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import Inventory
from ansible_collections.sparkwright.cluster.plugins.module_utils.launch import HostPaths, Launch, render, smoke
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import NcclEnvError, nccl_env
from ansible_collections.sparkwright.cluster.plugins.module_utils.planning import make_intents
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import resolve
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import (
    KNOWN_BAD,
    REPO,
    load_mapping,
    one_line,
    plain,
    read_inventory,
    read_patches,
)


@dataclass(frozen=True)
class Plan:
    """The inventory, its profile, and every node's intent, whose rails have no interface yet."""

    inventory: Inventory
    profile: Mapping[str, Any]
    intents: Mapping[str, Intent]
    # What the engine image is built from; None where it is not built.
    context: Context | None = None

    def value(self, host: str, name: str) -> Any:
        """A variable of a host, or its role's default."""
        return self.inventory.value(host, name)


def make_plan(templar: Templar, task_vars: Mapping[str, Any]) -> Plan:
    """The plan of the whole inventory. Raises AnsibleActionFail when there can be none."""
    read = read_inventory(templar, task_vars).inventory
    inventory = replace(read, known_bad=load_mapping(KNOWN_BAD)["known_bad"])
    if not isinstance(inventory.profile, Mapping):
        raise AnsibleActionFail("all nodes: there is no profile to plan with; remedy: correct sparkwright_profile")
    context = image_context(inventory)
    try:
        intents = make_intents(inventory, image_id(inventory), address_of, context.hash if context else "")
    except AddressPlanError as error:
        raise AnsibleActionFail(str(error)) from None
    return Plan(inventory, inventory.profile, intents, context)


def make_cluster(
    plan: Plan, task_vars: Mapping[str, Any], registered: str, rdma: str | None = None, hashes: str | None = None
) -> Cluster:
    """The plan with the facts that the task `register: <registered>` left on every node, and the rails found there.

    `rdma` and `hashes` are what tasks with rdma_probe and checkpoint_hashes were registered as; a node that skipped
    one was not asked.
    """
    facts = {host: registered_facts(task_vars, host, registered) for host in plan.intents}
    found = resolve(plan.intents, facts)
    launches = {host: launch_of(plan, intent, facts[host]) for host, intent in found.intents.items()}
    return Cluster(
        facts,
        found.intents,
        {host: launch.config_hash for host, launch in launches.items() if launch},
        weights_source(plan),
        found.doubts,
        _answers(task_vars, plan, rdma, "rdma_probe"),
        _answers(task_vars, plan, hashes, "hash_report"),
    )


def launch_of(plan: Plan, intent: Intent, facts: Mapping[str, Any]) -> Launch | None:
    """The launch of a node whose rails were found, or None as long as its fabric leaves it undecided."""
    try:
        nccl = nccl_env(intent, facts["fabric"]) if "fabric" in facts else None
    except NcclEnvError:
        nccl = None
    if nccl is None:
        return None
    key = str(plan.value(intent.head, "serving_api_key") or "")
    return render(plan.profile, intent, host_paths(plan, intent), nccl, image_to_run(intent, facts), key)


def smoke_of(plan: Plan, intent: Intent, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that tries the container runtime of a node."""
    return smoke(plan.profile, host_paths(plan, intent), image_to_run(intent, facts))


def host_paths(plan: Plan, intent: Intent) -> HostPaths:
    """What the node gives to a container."""
    return HostPaths(
        models=plan.value(intent.host, "model_store_path"),
        cache=plan.value(intent.host, "serving_cache_path"),
        extra_mounts=tuple(plan.value(intent.host, "serving_extra_mounts")),
    )


def image_to_run(intent: Intent, facts: Mapping[str, Any]) -> str:
    """The image by its ID, by its name as long as nobody knows the ID."""
    found = facts.get("runtime", {}).get("images", {}).get(intent.image)
    return str(intent.image_id or found or intent.image)


def weights_source(plan: Plan) -> Weights | None:
    """The checkpoint on the controller that is copied to the nodes, or None when they have it already."""
    head = next(iter(plan.intents.values()))
    source = plan.value(head.host, "model_store_source")
    return read_weights(Machine(), str(Path(source).expanduser())) if source else None


def image_context(inventory: Inventory) -> Context | None:
    """What the engine image is built from, with the patches of the checkout; None where it is not built."""
    build = inventory.value(inventory.nodes[0], "engine_image_build")
    if not build:
        return None
    tool = (REPO / "plugins" / "module_utils" / "source_patch.py").read_text(encoding="utf-8")
    return render_build(build, read_patches(), tool)


def address_of(name: str) -> str:
    """The IPv4 address of a host name; the name itself when nobody knows it, which the connection will say."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except OSError:
        return name


def image_id(inventory: Inventory) -> str:
    """The image ID that all nodes must have: the pinned one, or that of the archive on the controller, or none."""
    head = inventory.nodes[0]
    pinned, archive = inventory.value(head, "engine_image_id"), inventory.value(head, "engine_image_archive")
    if not archive:
        return str(pinned or "")
    found = archive_image_id(Path(str(archive)).expanduser())
    if pinned and pinned != found:
        raise AnsibleActionFail(
            f"controller: {archive} holds {found}; limit: engine_image_id {pinned}; remedy: correct one of the two"
        )
    return found


def archive_image_id(archive: Path) -> str:
    """The image ID in a `docker save` archive. Raises AnsibleActionFail when it is none, or holds several images."""
    try:
        with tarfile.open(archive) as tar:
            manifest = json.load(tar.extractfile("manifest.json"))
        (image,) = manifest
        digest = Path(image["Config"]).name.removesuffix(".json")
    except (OSError, tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise AnsibleActionFail(
            f"controller: {archive} is no archive of one image ({one_line(error)}); limit: what `docker save` writes; "
            "remedy: correct engine_image_archive"
        ) from None
    return f"sha256:{digest}"


def _answers(task_vars: Mapping[str, Any], plan: Plan, registered: str | None, key: str) -> dict[str, Any]:
    """By host what a registered task returned under that key."""
    if registered is None:
        return {}
    results = {host: plain(task_vars["hostvars"][host].get(registered)) or {} for host in plan.intents}
    return {host: result[key] for host, result in results.items() if result.get(key) is not None}


def registered_facts(task_vars: Mapping[str, Any], host: str, registered: str) -> Any:
    """What a task with node_facts left under that name; a node that was not asked is one that does not answer."""
    result = task_vars["hostvars"][host].get(registered) or {}
    return plain(result.get("node")) or {"reachable": False, "privileged": False, "reason": "it was not asked"}
