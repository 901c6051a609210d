"""From the inventory and the facts that a task registered to the cluster that the checks and the plan look at."""

from __future__ import annotations

import json
import socket
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.template import Templar

from ansible_collections.sparkwright.cluster.plugins.module_utils.address_plan import AddressPlanError
from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import read_weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Cluster
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import Weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import Intent
from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import Inventory
from ansible_collections.sparkwright.cluster.plugins.module_utils.launch import HostPaths, Launch, render
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import NcclEnvError, nccl_env
from ansible_collections.sparkwright.cluster.plugins.module_utils.planning import make_intents
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import resolve
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import one_line, plain, read_inventory


@dataclass(frozen=True)
class Plan:
    """The inventory, its profile, and every node's intent, whose rails have no interface yet."""

    inventory: Inventory
    profile: Mapping[str, Any]
    intents: Mapping[str, Intent]

    def value(self, host: str, name: str) -> Any:
        """A variable of a host, or its role's default."""
        return self.inventory.value(host, name)


def make_plan(templar: Templar, task_vars: Mapping[str, Any]) -> Plan:
    """The plan of the whole inventory. Raises AnsibleActionFail when there can be none."""
    inventory = read_inventory(templar, task_vars).inventory
    if not isinstance(inventory.profile, Mapping):
        raise AnsibleActionFail("all nodes: there is no profile to plan with; remedy: correct sparkwright_profile")
    try:
        intents = make_intents(inventory, image_id(inventory), address_of)
    except AddressPlanError as error:
        raise AnsibleActionFail(str(error)) from None
    return Plan(inventory, inventory.profile, intents)


def make_cluster(plan: Plan, task_vars: Mapping[str, Any], registered: str, rdma: str | None = None) -> Cluster:
    """The plan with the facts that the task `register: <registered>` left on every node, and the rails found there.

    `rdma` is what a task with rdma_probe was registered as; a node that skipped it was not asked.
    """
    facts = {host: registered_facts(task_vars, host, registered) for host in plan.intents}
    found = resolve(plan.intents, facts)
    launches = {host: launch_of(plan, intent, facts[host]) for host, intent in found.intents.items()}
    hashes = {host: launch.config_hash for host, launch in launches.items() if launch}
    return Cluster(facts, found.intents, hashes, weights_source(plan), found.doubts, _probes(task_vars, plan, rdma))


def launch_of(plan: Plan, intent: Intent, facts: Mapping[str, Any]) -> Launch | None:
    """The launch of a node whose rails were found, or None as long as its fabric leaves it undecided."""
    try:
        nccl = nccl_env(intent, facts["fabric"]) if "fabric" in facts else None
    except NcclEnvError:
        nccl = None
    if nccl is None:
        return None
    paths = HostPaths(
        models=plan.value(intent.host, "model_store_path"),
        cache=plan.value(intent.host, "serving_cache_path"),
        extra_mounts=tuple(plan.value(intent.host, "serving_extra_mounts")),
    )
    found = facts.get("runtime", {}).get("images", {}).get(intent.image)
    key = str(plan.value(intent.head, "serving_api_key") or "")
    return render(plan.profile, intent, paths, nccl, intent.image_id or found or intent.image, key)


def weights_source(plan: Plan) -> Weights | None:
    """The checkpoint on the controller that is copied to the nodes, or None when they have it already."""
    head = next(iter(plan.intents.values()))
    source = plan.value(head.host, "model_store_source")
    return read_weights(Machine(), str(Path(source).expanduser())) if source else None


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


def _probes(task_vars: Mapping[str, Any], plan: Plan, registered: str | None) -> dict[str, Any]:
    if registered is None:
        return {}
    results = {host: plain(task_vars["hostvars"][host].get(registered)) or {} for host in plan.intents}
    return {host: result["rdma_probe"] for host, result in results.items() if "rdma_probe" in result}


def registered_facts(task_vars: Mapping[str, Any], host: str, registered: str) -> Any:
    """What a task with node_facts left under that name; a node that was not asked is one that does not answer."""
    result = task_vars["hostvars"][host].get(registered) or {}
    return plain(result.get("node")) or {"reachable": False, "privileged": False, "reason": "it was not asked"}
