#!/usr/bin/python
"""The manifest of a checkpoint, made in the background."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_manifest
short_description: Have the manifest of a checkpoint made in the background, or wait for it
description:
  - The manifest holds size and SHA-256 of every file of the directory. A transient unit of the lowest priority for
    processor and disk makes it, goes on when the run ends, and writes the file in one step.
  - A file whose size and time of change are those of the manifest is not hashed again.
  - The first hash of a file stays the one that it must have, or the published one where the directory says it. So a
    byte that turns over later is found, and not taken for the right one.
options:
  path:
    description: Directory of the checkpoint.
    type: path
    required: true
  result:
    description: File of the manifest.
    type: path
    required: true
  unit:
    description: Name of the unit.
    type: str
    required: true
  library:
    description: Directory of what the unit imports.
    type: path
    default: /usr/local/lib/sparkwright/manifest
  start:
    description: Start the unit when the manifest is not of the directory as it is. Otherwise only look.
    type: bool
    default: false
  seconds:
    description: How long to wait for the manifest. It is an error when it is not there then; with 0 it is none.
    type: int
    default: 0
attributes:
  check_mode:
    description: Starts nothing in check mode, and says whether it would.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Hash the checkpoint beside other work
  sparkwright.cluster.checkpoint_manifest:
    path: /var/lib/sparkwright/models/name
    result: /var/lib/sparkwright/manifests/name.json
    unit: sparkwright-manifest.service
    start: true
"""

RETURN = r"""
manifest:
  description: The manifest, null while it is not of the directory as it is.
  returned: success
  type: dict
  contains:
    path:
      description: The directory.
      type: str
    files:
      description: Size, time of change, found and wanted SHA-256 of each file.
      type: dict
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.bounded import TimedOut, bounded
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import Manifest
from ansible_collections.sparkwright.cluster.plugins.module_utils.manifest import current, parse_manifest, unit_argv
from ansible_collections.sparkwright.cluster.plugins.module_utils.manifest_job import file_stats, read_text

# Seconds for the directory to answer, and between two looks.
ANSWER = 30
PAUSE = 2.0
RUNNING = ("active", "activating")


def look(path: Path, result: Path) -> Manifest | None:
    """The manifest, if it is of the directory as it is. Raises TimedOut and RuntimeError."""
    manifest = parse_manifest(read_text(result))
    stats = bounded(lambda: file_stats(path), ANSWER)
    return manifest if current(manifest, str(path), stats) else None


def runs(module: AnsibleModule, unit: str) -> bool:
    """Whether the unit is at work."""
    _, out, _ = module.run_command(["systemctl", "is-active", unit])
    return out.strip() in RUNNING


def wait(module: AnsibleModule, path: Path, result: Path) -> Manifest:
    """The manifest once it is there. Fails when its unit ended without it, or the time is over."""
    asked = module.params
    until = time.monotonic() + asked["seconds"]
    while True:
        working = runs(module, asked["unit"])
        found = look(path, result)
        if found is not None:
            return found
        if not working or time.monotonic() >= until:
            state = f"is not made after {asked['seconds']} s" if working else "was not made"
            module.fail_json(
                msg=f"the manifest of {path} {state}; limit: {result} of the directory as it is; remedy: look at "
                f"journalctl --unit {asked['unit']}, and run it again"
            )
        time.sleep(PAUSE)


def main() -> None:
    """Look, start, wait, return."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "result": {"type": "path", "required": True},
            "unit": {"type": "str", "required": True},
            "library": {"type": "path", "default": "/usr/local/lib/sparkwright/manifest"},
            "start": {"type": "bool", "default": False},
            "seconds": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    asked = module.params
    path, result = Path(asked["path"]), Path(asked["result"])
    try:
        found = look(path, result) if path.is_dir() or not module.check_mode else None
        starts = asked["start"] and found is None and not runs(module, asked["unit"])
        if starts and not module.check_mode:
            argv = unit_argv(asked["unit"], asked["library"], asked["path"], asked["result"])
            module.run_command(argv, check_rc=True)
        if found is None and asked["seconds"] and not module.check_mode:
            found = wait(module, path, result)
    except (TimedOut, RuntimeError) as error:
        module.fail_json(msg=f"{path} cannot be read: {error}; limit: an answer; remedy: check its disk or mount")
    module.exit_json(changed=starts, manifest=found)


if __name__ == "__main__":
    main()
