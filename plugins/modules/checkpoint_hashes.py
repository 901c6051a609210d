#!/usr/bin/python
"""A checkpoint compared with the manifest of the head."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_hashes
short_description: Compare every file of a checkpoint with a manifest
description:
  - Compares names and sizes, and with C(hash) the SHA-256 of every file, several at once.
  - Takes a bounded time, also where the directory lies on a mount that is dead. What is wrong is returned and no
    failure; C(sparkwright.cluster.verdict) decides.
options:
  path:
    description: Directory of the checkpoint.
    type: path
    required: true
  manifest:
    description: What C(sparkwright.cluster.checkpoint_manifest) returned on the head. Null compares nothing.
    type: dict
  own:
    description: The manifest was made from this very directory, so its hashes count as found here.
    type: bool
    default: false
  how:
    description: C(headers) compares names and sizes, C(hash) the content as well.
    type: str
    choices: [headers, hash]
    default: headers
  seconds:
    description: Longest time.
    type: int
    default: 3600
attributes:
  check_mode:
    description: Does the same in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Hash every file
  sparkwright.cluster.checkpoint_hashes:
    path: /var/lib/sparkwright/models/name
    manifest: "{{ hostvars.spark1.head_manifest.manifest }}"
    how: hash
  register: hashes
"""

RETURN = r"""
hash_report:
  description: What differs, null without a manifest.
  returned: success
  type: dict
  contains:
    error:
      description: Why the directory could not be read, or null.
      type: str
    missing:
      description: Files that only the manifest has.
      type: list
    surplus:
      description: Files that only the directory has.
      type: list
    truncated:
      description: Files of another size.
      type: list
    corrupt:
      description: Files with another SHA-256.
      type: list
    hashed:
      description: How many files were compared by content.
      type: int
    files:
      description: How many files the manifest has.
      type: int
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.bounded import TimedOut, bounded
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import HashReport, Manifest
from ansible_collections.sparkwright.cluster.plugins.module_utils.manifest import compare, own_hashes, unreadable
from ansible_collections.sparkwright.cluster.plugins.module_utils.manifest_job import file_stats, hash_files


def report(path: Path, manifest: Manifest, how: str, own: bool) -> HashReport:
    """Compare a directory, however long that takes."""
    stats = file_stats(path)
    hashes = own_hashes(manifest, stats) if own else {}
    if how == "hash":
        hashes = hash_files(path, manifest["files"].keys() & stats.keys())
    return compare(manifest, {name: size for name, (size, _) in stats.items()}, hashes)


def main() -> None:
    """Compare and return."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "manifest": {"type": "dict"},
            "own": {"type": "bool", "default": False},
            "how": {"type": "str", "choices": ["headers", "hash"], "default": "headers"},
            "seconds": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    asked = module.params
    path, manifest = Path(asked["path"]), asked["manifest"]
    if not manifest:
        module.exit_json(changed=False, hash_report=None)
    try:
        found = bounded(lambda: report(path, manifest, asked["how"], asked["own"]), asked["seconds"])
    except TimedOut:
        found = unreadable(f"it was not read within {asked['seconds']} s")
    except RuntimeError as error:
        found = unreadable(f"it cannot be read: {error}")
    module.exit_json(changed=False, hash_report=found)


if __name__ == "__main__":
    main()
