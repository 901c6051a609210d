#!/usr/bin/python
"""The kernel that last served, for the next boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_once
short_description: Have the next boot start the kernel with which the node last served
description:
  - Looks up the kernel in the note of the last proof (C(/var/lib/sparkwright/provisioned.json)), finds its entry in
    GRUB's menu and selects it for the next boot, by C(grub-reboot). The boots after that are as before.
  - Where that cannot be done it says why and changes nothing.
options:
  take_back:
    description: Let the next boot be as ever instead, where it was to start that kernel once.
    type: bool
    default: false
  kernel:
    description: The release of the kernel; without one that of the note.
    type: str
attributes:
  check_mode:
    description: Changes nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Go back to the kernel of before with the next boot
  sparkwright.cluster.boot_once:
"""

RETURN = r"""
kernel:
  description: The kernel that the next boot starts; empty when nothing was selected.
  returned: always
  type: str
reason:
  description: Why nothing was selected, or what was.
  returned: always
  type: str
"""

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.baseline import items_in
from ansible_collections.sparkwright.cluster.plugins.module_utils.boot_menu import (
    next_kernel,
    parse_environment,
    parse_menu,
    path_to,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import BASELINE_FILE

# Changed by tests only.
MENU = Path("/boot/grub/grub.cfg")
ENVIRONMENT = Path("/boot/grub/grubenv")
NOTE = Path(BASELINE_FILE)


def text_of(path: Path) -> str:
    """The file's text, empty when there is none."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def served_with() -> str:
    """The kernel of the note, or none."""
    try:
        note: Any = json.loads(text_of(NOTE) or "null")
    except ValueError:
        return ""
    return (items_in(note if isinstance(note, dict) else None) or {}).get("kernel", "")


def nothing(module: AnsibleModule, reason: str) -> None:
    """End without a change."""
    module.exit_json(changed=False, kernel="", reason=reason)


def take_back(module: AnsibleModule, selected: bool) -> None:
    """End with a next boot that is as ever."""
    if not selected:
        nothing(module, "no kernel was selected for one boot")
    if not module.check_mode:
        module.run_command(["grub-editenv", str(ENVIRONMENT), "unset", "next_entry"], check_rc=True)
    module.exit_json(changed=True, kernel="", reason="the next boot is as ever")


def main() -> None:
    """Look up, find, select."""
    module = AnsibleModule(
        argument_spec={"kernel": {"type": "str"}, "take_back": {"type": "bool", "default": False}},
        supports_check_mode=True,
    )
    wanted = module.params["kernel"] or served_with()
    if not wanted:
        nothing(module, "no note says with which kernel it served")
    menu, environment = parse_menu(text_of(MENU)), parse_environment(text_of(ENVIRONMENT))
    if module.params["take_back"]:
        take_back(module, environment.get("next_entry") == (path_to(menu, wanted) or ""))
    if next_kernel(menu, environment) == wanted:
        module.exit_json(changed=False, kernel=wanted, reason=f"the next boot starts kernel {wanted} anyway")
    entry, tool = path_to(menu, wanted), module.get_bin_path("grub-reboot")
    if not entry or not tool:
        nothing(module, f"the boot loader has no entry for kernel {wanted}" if tool else "there is no grub-reboot")
    if not module.check_mode:
        module.run_command([tool, entry], check_rc=True)
    module.exit_json(changed=True, kernel=wanted, reason=f"the next boot starts kernel {wanted}, once")


if __name__ == "__main__":
    main()
