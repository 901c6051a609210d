#!/usr/bin/python
"""A base and an overlay as one checkpoint of hard links."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_assemble
short_description: Assemble a checkpoint from a base and an overlay by hard links
description:
  - Links the shards and files of both into C(<dest>.partial), writes the merged index last, reads the headers of all
    shards, and renames the directory to C(dest) as the last step. A run that died is taken up by the next one.
  - Where a link cannot be made, as on another file system, the file is copied, once the disk has room for all copies.
  - The index takes every tensor that the overlay has from there, all others from the base; total_size is summed anew.
  - What is there under that name and is something else is refused, never replaced.
options:
  base:
    description: Directory of the base checkpoint.
    type: path
    required: true
  overlay:
    description: Directory of what is laid over it. It needs no index.
    type: path
    required: true
  dest:
    description: Directory of the assembled checkpoint.
    type: path
    required: true
  prefixes:
    description: Beginnings of tensor names that must be there, with what needs them.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Says in check mode what would be linked and written. Parts that are not there yet are no failure.
    support: full
  diff_mode:
    description: Lists every link with its source.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Lay the MTP layer over the base
  sparkwright.cluster.checkpoint_assemble:
    base: /var/lib/sparkwright/models/glm52-nvfp4
    overlay: /var/lib/sparkwright/models/glm52-nvfp4-mtp-layer
    dest: /var/lib/sparkwright/models/glm52-nvfp4-mtp
    prefixes:
      model.layers.78.: guessing 3 tokens ahead
"""

RETURN = r"""
linked:
  description: Files that were linked by this call, or would be in check mode.
  returned: success
  type: int
copied:
  description: Files that were copied because they could not be linked.
  returned: success
  type: int
"""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.assembly import (
    Assembly,
    AssemblyError,
    Step,
    assemble,
    steps,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import read_weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.part_reader import read_part
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import write_atomically
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import damaged, missing, surplus
from ansible_collections.sparkwright.cluster.plugins.module_utils.staging import Staging

# What a copy is called until it is whole.
HALF = ".half"
# Another file system, one without links, a file with the most links it can have, or an owner that may make none.
UNLINKABLE = (errno.EXDEV, errno.EOPNOTSUPP, errno.EMLINK, errno.EPERM)


def current(folder: Path, wanted: Assembly) -> dict[str, bool]:
    """For each entry of a directory whether it is what is wanted."""
    entries = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return {name: is_right(folder / name, name, wanted) for name in entries}


def is_right(path: Path, name: str, wanted: Assembly) -> bool:
    """A link is one file with its source; a copy has its size and its time of change."""
    if name in wanted.texts:
        return path.is_file() and path.read_text(encoding="utf-8") == wanted.texts[name]
    if name not in wanted.links or not path.is_file():
        return False
    found, source = path.stat(), Path(wanted.links[name]).stat()
    return (found.st_size, found.st_mtime_ns) == (source.st_size, source.st_mtime_ns)


def do(step: Step, folder: Path) -> bool:
    """Carry out one step; whether a file had to be copied."""
    path = folder / step.name
    if step.action == "write":
        write_atomically(path, step.value.encode(), 0o644)
        return False
    remove(path)
    return step.action == "link" and link_or_copy(Path(step.value).resolve(), path)


def remove(path: Path) -> None:
    """Whatever is there goes."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_or_copy(source: Path, path: Path) -> bool:
    """A hard link, or a copy where there can be none; whether it is a copy."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in UNLINKABLE:
            raise
        half = path.with_name(path.name + HALF)
        shutil.copy2(source, half)
        half.rename(path)
        return True
    return False


def bytes_to_copy(due: list[Step], folder: Path) -> int:
    """The bytes of the files that lie on another file system than the directory."""
    there = next(place for place in (folder, *folder.parents) if place.is_dir()).stat().st_dev
    stats = [Path(step.value).stat() for step in due if step.action == "link"]
    return sum(stat.st_size for stat in stats if stat.st_dev != there)


def faults(folder: Path) -> list[str]:
    """What is wrong with the finished directory by its index and the headers of its shards."""
    weights = read_weights(Machine(), str(folder))
    found = [("missing", missing), ("damaged", damaged), ("not in the index", surplus)]
    lines = [f"{what}: {', '.join(names(weights))}" for what, names in found if names(weights)]
    return [weights["error"]] if weights["error"] else lines


def fail(module: AnsibleModule, msg: str) -> None:
    """End the module; Ansible names the host."""
    module.fail_json(msg=msg)


def plan(module: AnsibleModule) -> Assembly:
    """What the directory must hold. Fails when the parts cannot give it, and ends a check mode without parts."""
    asked = module.params
    absent = [path for path in (asked["base"], asked["overlay"]) if not Path(path).is_dir()]
    if absent and module.check_mode:
        module.exit_json(changed=True, linked=0, copied=0)
    if absent:
        fail(module, f"{absent[0]} is not there; limit: both parts; remedy: fetch it, or correct model_store_overlay")
    try:
        return assemble(read_part(asked["base"]), read_part(asked["overlay"]), asked["prefixes"])
    except (AssemblyError, OSError, ValueError) as error:
        fail(module, str(error))
        raise


def refuse_other(module: AnsibleModule, staging: Staging, wanted: Assembly) -> None:
    """Fail when the directory has its name and is not what is wanted."""
    due = steps(wanted, current(staging.path, wanted))
    if due:
        words = {"remove": "has also", "link": "lacks, or has otherwise,", "write": "has another"}
        fail(
            module,
            f"{staging.path} {words[due[0].action]} {due[0].name}{f' and {len(due) - 1} more' if due[1:] else ''}; "
            "limit: what base and overlay give; remedy: remove it and run again, links take no time",
        )


def refuse_full(module: AnsibleModule, due: list[Step], staging: Staging) -> None:
    """Fail when the disk has no room for what must be copied."""
    need = bytes_to_copy(due, staging.partial)
    free = shutil.disk_usage(next(place for place in staging.partial.parents if place.is_dir())).free
    if need > free:
        fail(
            module,
            f"{staging.partial}: {need} bytes lie on another file system and are to be copied; limit: {free} bytes, "
            "which are free; remedy: free that much, or keep the parts below model_store_path",
        )


def build(module: AnsibleModule, staging: Staging, wanted: Assembly) -> dict[str, Any]:
    """Bring the directory to what is wanted and give it its name."""
    staging.begin()
    due = steps(wanted, current(staging.partial, wanted))
    copies = [do(step, staging.partial) for step in due]
    wrong = faults(staging.partial)
    if wrong:
        fail(module, f"{staging.partial}: {'; '.join(wrong)}; limit: a whole checkpoint; remedy: fetch its parts again")
    staging.publish()
    links = sum(step.action == "link" for step in due)
    return {"linked": links - sum(copies), "copied": sum(copies)}


def main() -> None:
    """Plan, build, return."""
    module = AnsibleModule(
        argument_spec={
            "base": {"type": "path", "required": True},
            "overlay": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "prefixes": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    staging, wanted = Staging(module.params["dest"]), plan(module)
    with staging.held():
        if staging.done:
            refuse_other(module, staging, wanted)
            module.exit_json(changed=False, linked=0, copied=0)
        due = steps(wanted, current(staging.partial, wanted))
        refuse_full(module, due, staging)
        lines = [f"{step.name} <- {step.value}\n" for step in due if step.action == "link"]
        diff = {"before": "", "after": "".join(lines), "before_header": "", "after_header": str(staging.path)}
        if module.check_mode:
            module.exit_json(changed=True, linked=len(lines), copied=0, diff=diff)
        try:
            made = build(module, staging, wanted)
        except OSError as error:
            fail(module, f"{staging.partial}: {error}; limit: every file in place; remedy: run it again, it goes on")
    module.exit_json(changed=True, diff=diff, **made)


if __name__ == "__main__":
    main()
