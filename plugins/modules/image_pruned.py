#!/usr/bin/python
"""Old engine images of ours removed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_pruned
short_description: Remove old engine images of ours
description:
  - Of the images that this project built or brought to the node, all but the newest are removed, and the current one
    counts as the newest. Images of others are never looked at.
  - One that any container uses stays, and so does one that somebody gave a name of another repository.
  - They are known by C(/var/lib/sparkwright/images.json) and not by a label, which an image that somebody builds from
    ours would inherit.
options:
  image:
    description: Name of the current image.
    type: str
    required: true
  brought:
    description: Whether this run brought the current image to the node, which is then remembered.
    type: bool
    default: false
  keep:
    description: How many images of ours to keep.
    type: int
    required: true
  registry:
    description: Address and port of the head's registry, whose names on our images are ours too.
    type: str
    default: ""
  storage:
    description:
      - Folder of the registry, on the head. It is emptied whenever an image is removed, as the registry holds a second
        copy of each; what is still wanted of it is made anew from the image by the next push, and no layer that a node
        has travels again.
    type: path
attributes:
  check_mode:
    description: Removes nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Keep the current image and the one before it
  sparkwright.cluster.image_pruned:
    image: glm52-vllm:1
    keep: 2
"""

RETURN = r"""
removed:
  description: IDs of the images that were removed, or would be in check mode.
  returned: always
  type: list
  elements: str
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_plan import (
    Stored,
    repository_of,
    to_prune,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_reader import inspect
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine, json_or
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_images import (
    forget_images,
    own_images,
    remember_image,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.registry import REPOSITORY, push_address


def rows(machine: Machine, kind: str, listing: Iterable[str]) -> list[dict[str, Any]]:
    """What Docker says of all images, or of all containers. Raises RuntimeError when it says nothing."""
    listed = machine.run(["docker", *listing])
    if listed.returncode:
        raise RuntimeError(f"docker cannot list what it has: {' '.join(listed.stderr.split())}")
    ids = sorted(set(listed.stdout.split()))
    return list(json_or(machine.run(["docker", kind, "inspect", *ids]).stdout, [])) if ids else []


def stored(row: Mapping[str, Any], ours: Collection[str]) -> Stored:
    """An image as the selection wants it."""
    return Stored(row["Id"], tuple(row.get("RepoTags") or ()), row.get("Created") or "", row["Id"] in ours)


def removed(module: AnsibleModule, image_id: str) -> bool:
    """Remove an image; one on which somebody built another stays, and is said."""
    code, _, err = module.run_command(["docker", "image", "rm", "--force", image_id])
    if code:
        module.warn(f"{image_id} stays: {' '.join(err.split())}")
    return not code


def main() -> None:
    """Remember, select, remove."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "brought": {"type": "bool", "default": False},
            "keep": {"type": "int", "required": True},
            "registry": {"type": "str", "default": ""},
            "storage": {"type": "path"},
        },
        supports_check_mode=True,
    )
    asked, machine = module.params, Machine()
    current = inspect(machine, asked["image"]).get("Id", "")
    ours = own_images()
    if asked["brought"] and current not in ours:
        ours = [*ours, current]
    try:
        images = [stored(row, ours) for row in rows(machine, "image", ["image", "ls", "--quiet", "--no-trunc"])]
        used = {row["Image"] for row in rows(machine, "container", ["ps", "--all", "--quiet", "--no-trunc"])}
    except RuntimeError as error:
        # Without an answer nobody knows what is used, nor which of ours are gone.
        module.fail_json(msg=f"{error}; limit: an answer; remedy: look at `systemctl status docker`, and run it again")
    registries = [asked["registry"], push_address(asked["registry"])] if asked["registry"] else []
    repositories = [repository_of(asked["image"]), *(f"{address}/{REPOSITORY}" for address in registries)]
    going = [image.id for image in to_prune(images, used, current, asked["keep"], repositories)]
    if not module.check_mode:
        going = [image_id for image_id in going if removed(module, image_id)]
        if going and asked["storage"]:
            shutil.rmtree(Path(asked["storage"]) / "docker", ignore_errors=True)
        if asked["brought"]:
            remember_image(current)
        forget_images({image.id for image in images}.difference(going))
    module.exit_json(changed=bool(going), removed=going)


if __name__ == "__main__":
    main()
