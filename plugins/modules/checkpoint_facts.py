#!/usr/bin/python
"""What a checkpoint directory holds, from its index and the headers of its shards."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_facts
short_description: Read what a checkpoint holds, without reading a tensor
description:
  - Reads C(model.safetensors.index.json), C(config.json) and the header of every shard in one call.
  - Returns the bytes in total, by layer and by type, the share that tensor parallelism splits and the share that each
    rank repeats, what is missing, damaged or surplus, and a fingerprint that is equal for equal checkpoints.
  - Takes a bounded time even when the directory lies on a mount that is dead.
options:
  path:
    description: Directory of the checkpoint.
    type: path
    required: true
  seconds:
    description: How long to wait for the directory.
    type: int
    default: 30
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Read the checkpoint
  sparkwright.cluster.checkpoint_facts:
    path: /var/lib/sparkwright/models/glm52-nvfp4-mtp
  register: checkpoint
"""

RETURN = r"""
checkpoint:
  description: What was read. The type C(Weights) in C(module_utils/facts.py) describes every key.
  returned: always
  type: dict
  contains:
    error:
      description: Why the index could not be read, null when it could.
      type: str
    tensors:
      description: Number of tensors that the index names in each shard.
      type: dict
    shards:
      description: Size, size by its own header, number of tensors and hash of the header of each file.
      type: dict
    prefixes:
      description: Bytes by the beginning of the tensors' names.
      type: dict
      sample: {"model.layers.78.": 5512345600, "lm_head.": 1903165440}
    dtypes:
      description: Bytes by type.
      type: dict
    split:
      description: Bytes that tensor parallelism splits.
      type: int
    repeated:
      description: Bytes that every rank repeats.
      type: int
    config:
      description: The keys of config.json that decide about the KV cache.
      type: dict
missing:
  description: Shards that the index names and the directory lacks.
  returned: always
  type: list
  elements: str
damaged:
  description: Shards that are truncated, have no valid header, or lack a tensor of the index.
  returned: always
  type: list
  elements: str
surplus:
  description: Shards that the index does not name.
  returned: always
  type: list
  elements: str
complete:
  description: Whether every shard of the index is there and whole.
  returned: always
  type: bool
fingerprint:
  description: Equal for equal checkpoints; null without an index.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import SECONDS, read_bounded
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import (
    complete,
    damaged,
    fingerprint,
    missing,
    surplus,
)


def main() -> None:
    """Read and return."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "seconds": {"type": "int", "default": SECONDS},
        },
        supports_check_mode=True,
    )
    weights = read_bounded(Machine(), module.params["path"], module.params["seconds"])
    module.exit_json(
        changed=False,
        checkpoint=weights,
        missing=missing(weights),
        damaged=damaged(weights),
        surplus=surplus(weights),
        complete=complete(weights),
        fingerprint=None if weights["error"] else fingerprint(weights),
    )


if __name__ == "__main__":
    main()
