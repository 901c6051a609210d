#!/usr/bin/python
"""The tuning of one host in one call, with what was there before kept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning
short_description: Tune a host in one call and keep what was there before
description:
  - Writes and removes files, sets values of the kernel, and runs commands, as C(sparkwright.cluster.node_plan) found
    them to be due. It decides nothing itself, but that swap is not drained when memory has become short meanwhile.
  - Before anything is changed, what was there is recorded in C(/var/lib/sparkwright/before.json), once.
  - The first step that fails ends it. The next run finds what is left to do.
options:
  files:
    description: The files that differ.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: The whole text of the file. Without one the file is removed.
        type: str
  steps:
    description: What is done after the files are written, in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      does:
        description: The step in words.
        type: str
        required: true
      argv:
        description: Command to run.
        type: list
        elements: str
        default: []
      path:
        description: File of the kernel to write to, without a command.
        type: str
        default: ""
      value:
        description: What is written there.
        type: str
        default: ""
      drains:
        description: Whether it brings back memory from swap, which needs as much that is available.
        type: bool
        default: false
      restarts:
        description: Whether it restarts a daemon; for the planner only.
        type: bool
        default: false
  record:
    description: What was there before, as entries by section.
    type: dict
    default: {}
  margin:
    description: Bytes of MemAvailable that must be left when swap is drained.
    type: int
    default: 0
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Tune the host
  sparkwright.cluster.host_tuning:
    files:
      - path: /etc/sysctl.d/99-sparkwright.conf
        content: "vm.swappiness = 1\n"
    steps:
      - does: set vm.swappiness to 1
        path: /proc/sys/vm/swappiness
        value: "1"
    record:
      sysctl:
        vm.swappiness: {value: "60"}
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode, in words.
  returned: always
  type: list
  elements: str
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import parse_meminfo
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import (
    file_entry,
    remember,
    write_atomically,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning_swap import unsafe, used_in

FILE = {"path": {"type": "path", "required": True}, "content": {"type": "str"}}
STEP = {
    "does": {"type": "str", "required": True},
    "argv": {"type": "list", "elements": "str", "default": []},
    "path": {"type": "str", "default": ""},
    "value": {"type": "str", "default": ""},
    "drains": {"type": "bool", "default": False},
    "restarts": {"type": "bool", "default": False},
}

# What is read and written below; changed by tests only.
ROOT = Path("/")


class Refused(Exception):
    """Something cannot be done; the text is one plain line without the host."""


def here(path: str) -> Path:
    """A path below the root."""
    return ROOT / path.lstrip("/")


def record(files: list[dict[str, Any]], sections: dict[str, dict[str, Any]]) -> None:
    """Keep what is about to change. Raises ValueError when the record is not one of ours."""
    remember("files", {file["path"]: file_entry(here(file["path"])) for file in files})
    for section, entries in sections.items():
        remember(section, entries)


def write(file: dict[str, Any]) -> None:
    """Write a file, or take it away."""
    if file["content"] is None:
        here(file["path"]).unlink(missing_ok=True)
    else:
        write_atomically(here(file["path"]), file["content"].encode(), 0o644)


def take(module: AnsibleModule, step: dict[str, Any], margin: int) -> None:
    """Do one step. Raises Refused."""
    if step["drains"]:
        look_at_memory(step["argv"][-1], margin)
    if step["path"]:
        set_value(step["path"], step["value"])
        return
    code, out, err = module.run_command(step["argv"])
    if code:
        words = " ".join((err or out or f"exit status {code}").split())
        raise Refused(f"{step['does']}: `{' '.join(step['argv'])}` failed: {words}")


def look_at_memory(path: str, margin: int) -> None:
    """The node may have filled up since it was read. Raises Refused."""
    used = used_in(here("/proc/swaps").read_text(encoding="utf-8"), path)
    found = unsafe(used, parse_meminfo(here("/proc/meminfo").read_text(encoding="utf-8")), margin)
    if found:
        fact, limit, remedy = found
        raise Refused(f"{fact}; limit: {limit}; remedy: {remedy}")


def set_value(path: str, value: str) -> None:
    """Write one value to the kernel. Raises Refused with its reason."""
    try:
        here(path).write_text(f"{value}\n", encoding="utf-8")
    except OSError as error:
        remedy = "correct the value, or take it out of host_tuning_sysctl"
        raise Refused(f"{path} does not take {value} ({error.strerror}); remedy: {remedy}") from None


def differences(files: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The files as Ansible shows them, and the steps in words."""
    shown = []
    for file in files:
        path = here(file["path"])
        before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        headers = {"before_header": file["path"], "after_header": file["path"]}
        shown.append({**headers, "before": before, "after": file["content"] or ""})
    if steps:
        shown.append({"before": "", "after": "".join(f"{step['does']}\n" for step in steps)})
    return shown


def main() -> None:
    """Show, record, write, do."""
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "options": FILE, "required": True, "no_log": False},
            "steps": {"type": "list", "elements": "dict", "options": STEP, "required": True},
            "record": {"type": "dict", "default": {}},
            "margin": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    asked = module.params
    files, steps = asked["files"], asked["steps"]
    actions = [f"{'remove' if file['content'] is None else 'write'} {file['path']}" for file in files]
    actions += [step["does"] for step in steps]
    diff = differences(files, steps)
    if not module.check_mode:
        try:
            record(files, asked["record"])
            for file in files:
                write(file)
            for step in steps:
                take(module, step, asked["margin"])
        except (Refused, ValueError) as error:
            module.fail_json(msg=str(error), actions=actions)
    module.exit_json(changed=bool(actions), actions=actions, diff=diff)


if __name__ == "__main__":
    main()
