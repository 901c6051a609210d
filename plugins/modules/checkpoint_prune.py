#!/usr/bin/python
"""A checkpoint with fewer experts, written by a program that the inventory names."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_prune
short_description: Have a program write a pruned checkpoint, and prove what it wrote
description:
  - Runs a program in its own checkout, which writes to C(<dest>.partial). A run that died begins anew, as nobody knows
    what such a program leaves behind.
  - Then reads the index and the header of every shard, and compares the experts of each layer with what was asked for.
    Only then the directory gets its name.
options:
  base:
    description: Directory of the whole checkpoint.
    type: path
    required: true
  dest:
    description: Directory of the pruned one.
    type: path
    required: true
  checkout:
    description: Directory of the program.
    type: path
    required: true
  source:
    description: The program with its revision in one word, kept with the checkpoint.
    type: str
    required: true
  argv:
    description: Command line. C({base}), C({output}) and C({experts}) are replaced in each word.
    type: list
    elements: str
    required: true
  experts:
    description: How many experts each layer with experts must have afterwards.
    type: int
    required: true
attributes:
  check_mode:
    description: Runs nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Leave 218 of 256 experts
  sparkwright.cluster.checkpoint_prune:
    base: /var/lib/sparkwright/models/glm52-awq
    dest: /var/lib/sparkwright/models/glm52-awq-15pct
    checkout: /var/lib/sparkwright/prune
    source: https://example.org/prune.git@0123456789abcdef0123456789abcdef01234567
    argv: [python3, prune.py, --model, "{base}", --output, "{output}", --keep, "{experts}"]
    experts: 218
"""

RETURN = r"""
argv:
  description: The command line as it is run.
  returned: success
  type: list
  elements: str
"""

import os
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.assembly import expert_faults
from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import read_weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.origin import ORIGIN_NAME, dump_origin, parse_origin
from ansible_collections.sparkwright.cluster.plugins.module_utils.part_reader import read_part
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import write_atomically
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import complete, total_bytes
from ansible_collections.sparkwright.cluster.plugins.module_utils.staging import Staging


def filled(argv: list[str], places: dict[str, str]) -> list[str]:
    """The command line with the places filled in."""
    words = []
    for word in argv:
        for name, value in places.items():
            word = word.replace(f"{{{name}}}", value)
        words.append(word)
    return words


def origin_of(base: str) -> list[str]:
    """Where the whole checkpoint came from."""
    path = Path(base) / ORIGIN_NAME
    return parse_origin(path.read_text(encoding="utf-8"))["sources"] if path.exists() else []


def faults(folder: Path, experts: int) -> list[str]:
    """What is wrong with what the program wrote."""
    weights = read_weights(Machine(), str(folder))
    if not complete(weights):
        return [weights["error"] or "its index names shards that are missing or damaged"]
    names = read_part(str(folder)).index
    if not any(".experts." in name for name in names):
        return ["it has no experts"]
    return expert_faults(names, experts)


def prune(module: AnsibleModule, staging: Staging, argv: list[str]) -> None:
    """Run the program, prove what it wrote, and give the directory its name. Fails otherwise."""
    asked = module.params
    shutil.rmtree(staging.partial, ignore_errors=True)
    staging.begin()
    need, free = total_bytes(read_weights(Machine(), asked["base"])), shutil.disk_usage(staging.partial).free
    if need > free:
        module.fail_json(
            msg=f"{staging.path} may take up to {need} bytes, as its base; limit: {free} bytes, which are free; "
            "remedy: free that much, or set model_store_path"
        )
    code, out, err = module.run_command(argv, cwd=asked["checkout"])
    lines = [line.strip() for line in f"{out}\n{err}".splitlines() if line.strip()]
    if code:
        module.fail_json(
            msg=f"{argv[0]} ended with {code}: {lines[-1] if lines else 'no word'}; limit: 0; remedy: correct "
            "model_store_prune.argv, or what the program needs"
        )
    wrong = faults(staging.partial, asked["experts"])
    if wrong:
        module.fail_json(
            msg=f"{staging.partial}: {wrong[0]}{f' and {len(wrong) - 1} more' if wrong[1:] else ''}; limit: a whole "
            f"checkpoint with {asked['experts']} experts a layer; remedy: correct model_store_prune"
        )
    origin = dump_origin([*origin_of(asked["base"]), asked["source"]], {})
    write_atomically(staging.partial / ORIGIN_NAME, origin.encode(), 0o644)
    staging.publish()


def main() -> None:
    """Run and return."""
    module = AnsibleModule(
        argument_spec={
            "base": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "checkout": {"type": "path", "required": True},
            "source": {"type": "str", "required": True},
            "argv": {"type": "list", "elements": "str", "required": True},
            "experts": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    asked, staging = module.params, Staging(module.params["dest"])
    places = {"base": asked["base"], "output": str(staging.partial), "experts": str(asked["experts"])}
    argv = filled(asked["argv"], places)
    with staging.held():
        due = not staging.done
        if due and not module.check_mode:
            prune(module, staging, argv)
    module.exit_json(changed=due, argv=argv)


if __name__ == "__main__":
    main()
