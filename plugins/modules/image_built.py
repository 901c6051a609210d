#!/usr/bin/python
"""The engine image built from its pins."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_built
short_description: Build the engine image from its pins
description:
  - Runs C(docker build) on the node, unless the image of that name carries the label of this very build already.
  - Docker keeps what each step made, so a killed build goes on where it was, and a changed patch makes its own small
    layers only.
  - An action plugin of the same name fills in everything from C(engine_image_build) and the files of C(patches/).
options:
  image:
    description: Name and tag of the image. Filled in from C(engine_image_ref).
    type: str
    required: true
  build:
    description: Hash of everything that the image follows from, which becomes its label. Filled in.
    type: str
    required: true
  files:
    description: Texts of the build context by name. Filled in.
    type: dict
    required: true
  options:
    description: Options of C(docker build). Filled in.
    type: list
    elements: str
    required: true
  base:
    description: The image that it is built on. Filled in.
    type: str
    required: true
  base_id:
    description: The image ID that the base must have; empty when its name has a digest. Filled in.
    type: str
    default: ""
attributes:
  check_mode:
    description: Builds nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Build the engine image
  sparkwright.cluster.image_built:
"""

RETURN = r"""
image_id:
  description: ID of the image; empty in check mode when it would be built.
  returned: success
  type: str
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_reader import inspect, read_image
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_images import remember_image

# Plain lines, and no attestation beside the image, whose digest would differ from build to build.
ENVIRONMENT = {"BUILDKIT_PROGRESS": "plain", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
# Lines of a failed build that are shown, and characters of the one that says why.
SHOWN = 30
REASON = 300


class BuildError(RuntimeError):
    """The image cannot be built; the text is one plain line without the host."""


def check_base(asked: Mapping[str, Any]) -> None:
    """Raise BuildError when the base is not the pinned one."""
    if not asked["base_id"]:
        return
    found = inspect(Machine(), asked["base"]).get("Id", "not there")
    if found != asked["base_id"]:
        raise BuildError(
            f"the base image {asked['base']} is {found}; limit: base_id {asked['base_id']}; "
            "remedy: load that image on the head, or correct engine_image_build"
        )


def build(module: AnsibleModule, asked: Mapping[str, Any]) -> None:
    """Write the context and build. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="sparkwright-build-") as folder:
        for name, text in asked["files"].items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        argv = ["docker", "build", "--tag", asked["image"], *asked["options"], folder]
        code, out, err = module.run_command(argv, environ_update=ENVIRONMENT)
    if code:
        lines = [line for line in f"{out}\n{err}".splitlines() if line.strip()]
        module.warn("docker build said:\n" + "\n".join(lines[-SHOWN:]))
        reason = " ".join((err.strip() or out.strip() or f"code {code}").splitlines()[-1].split())[:REASON]
        raise BuildError(
            f"docker build failed: {reason}; limit: every step ends well; "
            "remedy: read the lines above, correct engine_image_build or the patch, and run it again"
        )


def main() -> None:
    """Build, unless the image is there."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "build": {"type": "str", "required": True},
            "files": {"type": "dict", "required": True},
            "options": {"type": "list", "elements": "str", "required": True},
            "base": {"type": "str", "required": True},
            "base_id": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    asked = module.params
    image = read_image(Machine(), asked["image"], "")
    if image["build"] == asked["build"]:
        module.exit_json(changed=False, image_id=image["id"])
    if module.check_mode:
        module.exit_json(changed=True, image_id="")
    try:
        check_base(asked)
        build(module, asked)
    except (BuildError, OSError) as error:
        module.fail_json(msg=str(error))
    image_id = inspect(Machine(), asked["image"])["Id"]
    remember_image(image_id)
    module.exit_json(changed=True, image_id=image_id)


if __name__ == "__main__":
    main()
