#!/usr/bin/python
"""A checkpoint directory that has another name while something copies into it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_staged
short_description: Open a checkpoint directory for a copy, and give it its name when it is whole
description:
  - C(open) renames a directory that is there to C(<path>.partial), so that a copy goes on from it, or makes an empty
    one of that name.
  - C(whole) reads the index and the header of every shard in C(<path>.partial), and renames it to C(path) when nothing
    is missing or damaged. So what has the name of a checkpoint is one, whenever the copy dies.
options:
  path:
    description: Directory of the checkpoint.
    type: path
    required: true
  state:
    description: What to do.
    type: str
    choices: [open, whole]
    required: true
attributes:
  check_mode:
    description: Renames nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Give the checkpoint its name
  sparkwright.cluster.checkpoint_staged:
    path: /var/lib/sparkwright/models/name
    state: whole
"""

RETURN = r"""
partial:
  description: Directory to copy into.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import read_weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import damaged, missing
from ansible_collections.sparkwright.cluster.plugins.module_utils.staging import Staging


def start(staging: Staging) -> bool:
    """Have the unfinished directory, from what there is; whether it had to be made or renamed."""
    if staging.done:
        staging.reopen()
        return True
    fresh = not staging.partial.is_dir()
    staging.begin()
    return fresh


def finish(module: AnsibleModule, staging: Staging) -> bool:
    """Give a whole directory its name; whether it had another. Fails when it is not whole."""
    if staging.done:
        return False
    weights = read_weights(Machine(), str(staging.partial))
    wrong = weights["error"] or ", ".join([*missing(weights), *damaged(weights)])
    if wrong:
        module.fail_json(
            msg=f"{staging.partial}: not whole: {wrong}; limit: every shard of its index; remedy: run it again, the "
            "copy goes on where it ended"
        )
    staging.publish()
    return True


def main() -> None:
    """Rename and return."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["open", "whole"], "required": True},
        },
        supports_check_mode=True,
    )
    staging = Staging(module.params["path"])
    if module.check_mode:
        module.exit_json(changed=True, partial=str(staging.partial))
    with staging.held():
        changed = start(staging) if module.params["state"] == "open" else finish(module, staging)
    module.exit_json(changed=changed, partial=str(staging.partial))


if __name__ == "__main__":
    main()
