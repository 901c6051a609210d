#!/usr/bin/python
"""The engine image in the head's registry, or from there on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_image
short_description: Push the engine image to the head's registry, or pull it from there
description:
  - With O(state=pushed) the image of the head is put into its registry, unless the registry has all of it. Only layers
    that the registry lacks are sent; a killed push is finished by the next one.
  - With O(state=pulled) a node gets that image by its digest, unless it has it, and gives it its name. Only layers that
    the node lacks travel.
  - A name that was lost, or that another image took, is repaired without any transfer.
options:
  state:
    description: Which end of the way.
    type: str
    choices: [pushed, pulled]
    required: true
  host:
    description: Name of the node in messages.
    type: str
    required: true
  head:
    description: Name of the head in messages.
    type: str
    required: true
  image:
    description: Name and tag of the image.
    type: str
    required: true
  registry:
    description: Address and port where the registry gives images out. It takes them in on the loopback address.
    type: str
    required: true
  image_id:
    description: ID of the image on the head, for O(state=pulled).
    type: str
    default: ""
  digest:
    description: Digest of its manifest, for O(state=pulled).
    type: str
    default: ""
  storage:
    description: Folder of the registry, from which remains of killed pushes are removed, for O(state=pushed).
    type: path
attributes:
  check_mode:
    description: Moves nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Put the image into the registry
  sparkwright.cluster.registry_image:
    state: pushed
    host: spark1
    head: spark1
    image: glm52-vllm:1
    registry: 192.168.100.10:5055
    storage: /var/lib/sparkwright/registry
  register: pushed

- name: Get the image from the head
  sparkwright.cluster.registry_image:
    state: pulled
    host: spark2
    head: spark1
    image: glm52-vllm:1
    registry: 192.168.100.10:5055
    image_id: "{{ pushed.image_id }}"
    digest: "{{ pushed.digest }}"
"""

RETURN = r"""
image_id:
  description: ID of the image on this node.
  returned: success
  type: str
digest:
  description: Digest of its manifest in the registry; empty in check mode when it would be pushed.
  returned: success
  type: str
moved:
  description: Whether layers may have travelled, and not only a name was given.
  returned: success
  type: bool
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_reader import inspect
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import REGISTRY_PULL_UNIT, REGISTRY_PUSH_UNIT
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_images import remember_image
from ansible_collections.sparkwright.cluster.plugins.module_utils.registry import REPOSITORY, push_address, tag_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.registry_client import (
    RegistryError,
    manifest_digest,
    wait_for,
)

Asked = Mapping[str, Any]


def docker(module: AnsibleModule, *arguments: str) -> None:
    """Run a command of Docker. Raises RegistryError with the last line that it said."""
    code, out, err = module.run_command(["docker", *arguments])
    if code:
        said = (err.strip() or out.strip() or f"code {code}").splitlines()[-1]
        raise RegistryError(f"docker {arguments[0]} failed: {' '.join(said.split())}; limit: it ends well")


def push(module: AnsibleModule, asked: Asked) -> dict[str, Any]:
    """Put the image of this node into the registry. Raises RegistryError."""
    image_id = inspect(Machine(), asked["image"]).get("Id", "")
    if module.check_mode:
        return {"changed": True, "moved": True, "image_id": image_id, "digest": ""}
    if not image_id:
        raise RegistryError(f"there is no image {asked['image']}; limit: it is on the head before it is pushed")
    address, tag = push_address(asked["registry"]), tag_of(image_id)
    wait_for(address)
    digest = manifest_digest(address, tag)
    if digest:
        return {"changed": False, "moved": False, "image_id": image_id, "digest": digest}
    if asked["storage"]:
        remains = Path(asked["storage"]) / "docker/registry/v2/repositories" / REPOSITORY / "_uploads"
        shutil.rmtree(remains, ignore_errors=True)
    name = f"{address}/{REPOSITORY}:{tag}"
    docker(module, "tag", image_id, name)
    docker(module, "push", "--quiet", name)
    return {"changed": True, "moved": True, "image_id": image_id, "digest": manifest_digest(address, tag)}


def pull(module: AnsibleModule, asked: Asked) -> dict[str, Any]:
    """Get the image to this node and name it. Raises RegistryError."""
    machine, name = Machine(), f"{asked['registry']}/{REPOSITORY}@{asked['digest']}"
    found = (asked["image_id"] and inspect(machine, asked["image_id"])) or inspect(machine, name)
    result = {"moved": not found, "digest": asked["digest"]}
    if found and inspect(machine, asked["image"]).get("Id") == found["Id"]:
        return {"changed": False, "image_id": found["Id"], **result}
    if module.check_mode:
        return {"changed": True, "image_id": found.get("Id", asked["image_id"]), **result}
    if not found:
        wait_for(asked["registry"])
        docker(module, "pull", "--quiet", name)
        found = inspect(machine, name)
        remember_image(found["Id"])
    docker(module, "tag", found["Id"], asked["image"])
    return {"changed": True, "image_id": found["Id"], **result}


def main() -> None:
    """Push or pull."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["pushed", "pulled"], "required": True},
            "host": {"type": "str", "required": True},
            "head": {"type": "str", "required": True},
            "image": {"type": "str", "required": True},
            "registry": {"type": "str", "required": True},
            "image_id": {"type": "str", "default": ""},
            "digest": {"type": "str", "default": ""},
            "storage": {"type": "path"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    work, unit = (push, REGISTRY_PUSH_UNIT) if asked["state"] == "pushed" else (pull, REGISTRY_PULL_UNIT)
    try:
        result = work(module, asked)
    except RegistryError as error:
        remedy = f"look at `journalctl -u {unit}` on {asked['head']}, and run it again: what is there is not sent twice"
        module.fail_json(msg=f"{asked['host']}: {error}; remedy: {remedy}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
