#!/usr/bin/python
"""Packages that apt keeps as they are."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_holds
short_description: Hold exactly these packages, and let go those that this module held before
description:
  - Puts packages on hold and records when, in C(/var/lib/sparkwright/before.json), so that their age can be shown and
    a restore lets them go. Holds of somebody else are left alone.
  - Another program that holds a lock of apt or dpkg is waited for and named.
options:
  packages:
    description: The packages, by their exact names. One that is not installed is refused.
    type: list
    elements: str
    required: true
  lock_minutes:
    description: How long to wait for a lock.
    type: float
    default: 10
attributes:
  check_mode:
    description: Changes nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Keep the kernel
  sparkwright.cluster.apt_holds:
    packages: [linux-image-nvidia]
"""

RETURN = r"""
held:
  description: The packages that were put on hold.
  returned: success
  type: list
  elements: str
let_go:
  description: The packages that were let go.
  returned: success
  type: list
  elements: str
"""

import time
from collections.abc import Collection

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_lock import LockedError, wait_until_free
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import forget, load, remember
from ansible_collections.sparkwright.cluster.plugins.module_utils.software_reader import DPKG, parse_packages

SECTION = "holds"


def mark(module: AnsibleModule, verb: str, names: list[str]) -> None:
    """Hold or let go; none for no name."""
    if names:
        module.run_command(["apt-mark", verb, *names], check_rc=True)


def settle(module: AnsibleModule, held: list[str], let_go: list[str], installed: Collection[str]) -> None:
    """Record and mark, once nobody else changes what dpkg knows."""
    try:
        wait_until_free(module.params["lock_minutes"] * 60)
    except LockedError as error:
        module.fail_json(msg=str(error))
    remember(SECTION, {name: {"since": int(time.time())} for name in held})
    mark(module, "hold", held)
    mark(module, "unhold", [name for name in let_go if name in installed])
    for name in let_go:
        forget(SECTION, name)


def main() -> None:
    """Compare, record, mark."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "lock_minutes": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    wanted = list(dict.fromkeys(module.params["packages"]))
    try:
        ours = load().get(SECTION, {})
    except ValueError as error:
        module.fail_json(msg=str(error))
    if not wanted and not ours:
        module.exit_json(changed=False, held=[], let_go=[])
    _, out, _ = module.run_command([*DPKG], check_rc=True)
    installed = parse_packages(out)
    missing = [name for name in wanted if name not in installed]
    if missing:
        module.fail_json(
            msg=f"os_update_hold names {', '.join(missing)}, which is not installed here; limit: exact names of "
            "installed packages; remedy: correct the list, or set it for this host alone"
        )
    held = [name for name in wanted if installed[name][0][0] != "h"]
    let_go = [name for name in ours if name not in wanted]
    if (held or let_go) and not module.check_mode:
        settle(module, held, let_go, installed)
    module.exit_json(changed=bool(held or let_go), held=held, let_go=let_go)


if __name__ == "__main__":
    main()
