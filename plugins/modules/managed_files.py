#!/usr/bin/python
"""All files of a role in one call, with what was there before kept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Write all files of a role in one call and keep what was there before
description:
  - Writes files atomically, and only those whose content or mode differs.
  - Before the first change of a file, what was there is recorded in C(/var/lib/sparkwright/before.json). That entry is
    written once and never overwritten, so the file can be put back as the user had it.
  - Before a file of C(/etc/sysctl.d) or C(/etc/netplan) is written, the live values of the settings that it names, or
    the state of the links, are recorded as well.
options:
  files:
    description: The files that must be there.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: The whole text of the file.
        type: str
        required: true
      mode:
        description: Mode of the file in octal, as a string.
        type: str
        default: "0644"
      diff:
        description: What the diff shows of it, C(text) or only a C(digest), for program text that nobody reviews there.
        type: str
        choices: [text, digest]
        default: text
  record:
    description:
      - What else was there before, by section of the record and name, for what the files bring about later. It is
        remembered before the first of them is written.
    type: dict
    default: {}
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Write both environment files
  sparkwright.cluster.managed_files:
    files:
      - path: /etc/sparkwright/nccl.env
        content: "NCCL_NET=IB\n"
      - path: /etc/sparkwright/engine.env
        content: "HF_HUB_OFFLINE=1\n"
        mode: "0600"
"""

RETURN = r"""
paths:
  description: The files that were written, or would be in check mode.
  returned: always
  type: list
  elements: str
recorded:
  description: The files whose former state was recorded by this call.
  returned: always
  type: list
  elements: str
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import (
    file_entry,
    link_entries,
    link_names,
    remember,
    setting_entries,
    write_atomically,
)

# Files that change the running node when they are applied: the section of the record and what is in it, by folder.
LIVE: Mapping[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "/etc/sysctl.d": ("sysctl", setting_entries),
    "/etc/netplan": ("links", lambda text: link_entries(link_names(text))),
}

FILE = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True},
    "mode": {"type": "str", "default": "0644"},
    "diff": {"type": "str", "choices": ["text", "digest"], "default": "text"},
}


def state_of(path: Path) -> tuple[str | None, int | None]:
    """A file's text and mode, or None for both when there is no file."""
    if not path.exists():
        return None, None
    # Not read_text, which would hide that line ends differ.
    return path.read_bytes().decode("utf-8", errors="replace"), path.stat().st_mode & 0o7777


def digest(text: str | None) -> str:
    """A text in one line."""
    return "" if text is None else f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]}\n"


def difference(wanted: dict[str, Any], text: str | None, mode: int | None) -> dict[str, str]:
    """One file's entry of the diff that Ansible prints."""
    headers = {"before_header": wanted["path"], "after_header": wanted["path"]}
    if wanted["diff"] == "digest":
        return {**headers, "before": digest(text), "after": digest(wanted["content"])}
    if text == wanted["content"]:
        return {**headers, "before": f"mode {mode:04o}\n", "after": f"mode {wanted['mode']}\n"}
    return {**headers, "before": text or "", "after": wanted["content"]}


def apply(changed: list[dict[str, Any]], record: Mapping[str, dict[str, Any]]) -> list[str]:
    """Record, then write; the result names the files that were recorded. Raises ValueError like `remember`."""
    os.umask(0o022)
    for section, entries in record.items():
        remember(section, entries)
    for wanted in changed:
        live = LIVE.get(str(Path(wanted["path"]).parent))
        if live:
            remember(live[0], live[1](wanted["content"]))
    recorded = remember("files", {wanted["path"]: file_entry(Path(wanted["path"])) for wanted in changed})
    for wanted in changed:
        write_atomically(Path(wanted["path"]), wanted["content"].encode(), int(wanted["mode"], 8))
    return recorded


def main() -> None:
    """Compare, record, write."""
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "options": FILE, "required": True, "no_log": False},
            "record": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    changed, diffs = [], []
    for wanted in module.params["files"]:
        text, mode = state_of(Path(wanted["path"]))
        if text != wanted["content"] or mode != int(wanted["mode"], 8):
            changed.append(wanted)
            diffs.append(difference(wanted, text, mode))
    recorded: list[str] = []
    if changed and not module.check_mode:
        try:
            recorded = apply(changed, module.params["record"])
        except ValueError as error:
            module.fail_json(msg=str(error))
    paths = [wanted["path"] for wanted in changed]
    module.exit_json(changed=bool(paths), paths=paths, recorded=recorded, diff=diffs)


if __name__ == "__main__":
    main()
