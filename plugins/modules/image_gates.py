#!/usr/bin/python
"""The engine image looked into, once for each image."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_gates
short_description: Look into the engine image of a node
description:
  - Runs one container of the image with C(python3), without network, GPU and rights and with a read-only file system,
    and asks what the profile's C(image.gates) need to know.
  - The answer is kept in C(/var/lib/sparkwright/image-gates.json) with the image ID, and C(node_facts) reads it. A
    second run with the same image and the same questions starts no container.
  - It judges nothing, and an image without an answer is no failure; the checks of the stage C(image) decide.
  - While the engine runs on the node nothing is started, as the memory is spoken for.
  - An action plugin of the same name fills in what the inventory and the profile know.
options:
  image:
    description: Name of the image. Filled in from C(engine_image_ref).
    type: str
    required: true
  request:
    description: What the program is asked. Filled in from the profile.
    type: dict
    required: true
  key:
    description: Hash of everything but the image that the answer follows from. Filled in.
    type: str
    required: true
  program:
    description: The program that runs in the image. Filled in.
    type: str
    required: true
  mounts:
    description: Mounts of the container. Filled in from C(serving_extra_mounts).
    type: list
    elements: str
    default: []
  home:
    description: The engine's home on the node. Filled in from C(serving_cache_path).
    type: path
    required: true
attributes:
  check_mode:
    description: Starts no container in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Look into the engine image
  sparkwright.cluster.image_gates:
"""

RETURN = r"""
looked:
  description: Whether a container was started, or would be in check mode.
  returned: always
  type: bool
gates:
  description: What was found, as C(module_utils/facts.py) describes it; null when nothing was.
  returned: always
  type: dict
error:
  description: Why nothing was found; null when nobody tried.
  returned: always
  type: str
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import ImageGates, own_container
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_gates import CONTAINER, answer, gates_argv
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_reader import gates_text, read_image
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_CONTAINER, GATES_FILE
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import NodeReader
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import write_atomically

# Seconds for everything in the container; an import of vLLM on a busy machine takes one minute.
PATIENCE = 900
# NCCL reads it from the home of the account.
STRAY = ".nccl.conf"


def look(asked: Mapping[str, Any], image_id: str) -> tuple[ImageGates | None, str | None]:
    """Start the container and wait for its answer."""
    subprocess.run(["docker", "rm", "--force", CONTAINER], capture_output=True, check=False)
    argv = gates_argv(image_id, asked["request"], asked["mounts"])
    try:
        done = subprocess.run(
            argv, input=asked["program"], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        subprocess.run(["docker", "rm", "--force", CONTAINER], capture_output=True, check=False)
        return None, f"python3 in it did not answer within {PATIENCE} s"
    gates, error = answer(done.returncode, done.stdout, done.stderr)
    home = Path(asked["home"]) / STRAY
    if gates is not None and home.exists():
        gates["strays"] = [*gates["strays"], str(home)]
    return gates, error


def still_true(gates: ImageGates | None, home: Path) -> bool:
    """Whether what is known holds; the file in the engine's home comes and goes without the image."""
    return gates is not None and (str(home) in gates["strays"]) == home.exists()


def serves() -> bool:
    """Whether the engine's container runs on this node."""
    container = own_container(NodeReader().runtime(), ENGINE_CONTAINER)
    return container is not None and container["state"] == "running"


def main() -> None:
    """Look, unless it is known already."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "request": {"type": "dict", "required": True},
            "key": {"type": "str", "required": True, "no_log": False},
            "program": {"type": "str", "required": True},
            "mounts": {"type": "list", "elements": "str", "default": []},
            "home": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    image = read_image(Machine(), asked["image"], asked["key"])
    known: dict[str, object] = {"gates": image["gates"], "error": image["error"]}
    image_id = image["id"]
    due = bool(image_id) and not still_true(image["gates"], Path(asked["home"]) / STRAY) and not serves()
    if image_id and due and not module.check_mode:
        gates, error = look(asked, image_id)
        write_atomically(Path(GATES_FILE), gates_text(image_id, asked["key"], gates, error).encode(), 0o644)
        known = {"gates": gates, "error": error}
    module.exit_json(changed=due, looked=due, **known)


if __name__ == "__main__":
    main()
