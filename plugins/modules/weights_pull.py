#!/usr/bin/python
"""Copies some files of the weights from the node before, over all rails at once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_pull
short_description: Copy some files of the weights from another node
description:
  - Runs one rsync for each rail, all at once, against the daemons that C(weights_sender) started on the node before.
  - Files are written in place. So a copy that was cut off is continued by the next run, and not begun again; its size
    says until then that it is not whole.
  - A file that shares its data with another name is parted from it first, so that the other one stays as it is.
options:
  host:
    description: Name of the node, for messages.
    type: str
    required: true
  path:
    description: The directory that is shared.
    type: path
    required: true
  pulls:
    description: What to copy over which rail, as C(node_plan) gives it.
    type: list
    elements: dict
    required: true
    suboptions:
      rail:
        description: Name of the rail.
        type: str
        required: true
      own:
        description: Own address on the rail.
        type: str
        required: true
      source:
        description: Address of the node before on the rail.
        type: str
        required: true
      files:
        description: Names below the directory.
        type: list
        elements: str
        required: true
      size:
        description: Their bytes.
        type: int
        required: true
attributes:
  check_mode:
    description: Copies nothing and says that it would.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Copy what this round brings
  sparkwright.cluster.weights_pull:
    host: "{{ inventory_hostname }}"
    path: "{{ model_store_path }}"
    pulls: "{{ plan.share.fanout.rounds[0] }}"
"""

RETURN = r"""
received:
  description:
    - Bytes that came over each rail, rsync's own among them. They are fewer than those of the files where these were
      there in part.
  returned: always
  type: dict
seconds:
  description: How long it took.
  returned: always
  type: float
"""

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.fanout import PORT, pull_argv

PULL = {
    "rail": {"type": "str", "required": True},
    "own": {"type": "str", "required": True},
    "source": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "str", "required": True},
    "size": {"type": "int", "required": True},
}


def part_names(path: Path, files: list[str]) -> None:
    """Give a file that has other names data of its own, by removing this name."""
    for name in files:
        file = path / name
        if file.is_symlink() or (file.exists() and file.stat().st_nlink > 1):
            file.unlink()


def pull(one: dict[str, Any], path: Path, port: int = PORT) -> subprocess.CompletedProcess[str]:
    """Copy the files of one rail."""
    names = "".join(f"{name}\0" for name in one["files"])
    return subprocess.run(pull_argv(one, str(path), port), input=names, capture_output=True, text=True, check=False)


def received(output: str) -> int:
    """The bytes that came, from what rsync prints with --stats."""
    found = re.search(r"^Total bytes received: (\d+)", output, re.MULTILINE)
    return int(found.group(1)) if found else 0


def fault(host: str, one: dict[str, Any], done: subprocess.CompletedProcess[str]) -> str:
    """Why a copy failed, in one line."""
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return (
        f"{host}: rsync from {one['source']} over {one['rail']} ended with {done.returncode}: {' '.join(said[:2])}; "
        f"limit: {len(one['files'])} files of this round; remedy: run site.yml again, it goes on where it stopped"
    )


def main() -> None:
    """Copy over all rails at once."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "pulls": {"type": "list", "elements": "dict", "options": PULL, "required": True},
        },
        supports_check_mode=True,
    )
    pulls, path = module.params["pulls"], Path(module.params["path"])
    if module.check_mode or not pulls:
        module.exit_json(changed=bool(pulls), received={}, seconds=0.0)
    began = time.monotonic()
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    for one in pulls:
        part_names(path, one["files"])
    with ThreadPoolExecutor(len(pulls)) as pool:
        done = list(pool.map(lambda one: pull(one, path), pulls))
    faults = [fault(module.params["host"], one, end) for one, end in zip(pulls, done, strict=True) if end.returncode]
    if faults:
        module.fail_json(msg="\n".join(faults))
    bytes_of = {one["rail"]: received(end.stdout) for one, end in zip(pulls, done, strict=True)}
    module.exit_json(changed=True, received=bytes_of, seconds=round(time.monotonic() - began, 1))


if __name__ == "__main__":
    main()
