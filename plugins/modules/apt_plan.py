#!/usr/bin/python
"""What an update of all packages would do on one node, without doing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_plan
short_description: Say what an update of all packages would do, without doing it
description:
  - Refreshes the package lists, simulates C(apt-get dist-upgrade) and returns what it would do. Nothing is installed.
  - Another program that holds a lock of apt or dpkg is waited for and named.
  - Pending firmware is read from fwupd, where that is installed; nothing is applied. Its list is refreshed with those
    of apt, as the role C(headless) switches its timer off, and it is left as it was, running or not.
options:
  refresh:
    description: Whether the package lists are refreshed first; they are not in check mode.
    type: bool
    default: true
  lock_minutes:
    description: How long to wait for a lock.
    type: float
    default: 10
attributes:
  check_mode:
    description: Simulates with the package lists that are there.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: See what an update would do
  sparkwright.cluster.apt_plan:
  register: update
"""

RETURN = r"""
plan:
  description: Packages to install with old and new version, to remove, kept back, and unpacked ones to configure.
  returned: always
  type: dict
  sample: {install: {runc: {old: "1.1", new: "1.2"}}, remove: {}, kept: [], configure: []}
digest:
  description: A short hash of the plan, which C(apt_upgrade) compares.
  returned: always
  type: str
waited:
  description: Whom it waited for.
  returned: always
  type: list
  elements: str
firmware:
  description: Devices for which fwupd knows newer firmware, with both versions.
  returned: always
  type: list
  elements: str
"""

import json

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_lock import LockedError, wait_until_free
from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_simulation import (
    SIMULATE,
    AptPlan,
    parse_simulation,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.firmware import parse_updates

ENVIRONMENT = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
# What cannot be fetched is an error, and not only a warning (apt-get(8)).
REFRESH = ("apt-get", "-o", "APT::Update::Error-Mode=any", "update")
REFRESH_FIRMWARE = ("timeout", "60", "fwupdmgr", "refresh")
FIRMWARE = ("timeout", "60", "fwupdmgr", "get-updates", "--json")
FWUPD = "fwupd.service"


def run(module: AnsibleModule, argv: tuple[str, ...], what: str) -> str:
    """What a command of apt prints; one that fails ends the module with its own words."""
    code, out, err = module.run_command(list(argv), environ_update=ENVIRONMENT)
    if code:
        module.fail_json(msg=f"{what} failed: {' '.join((err or out).split())}; remedy: repair apt on the node")
    return str(out)


def simulate(module: AnsibleModule) -> AptPlan:
    """The plan of now."""
    return parse_simulation(run(module, SIMULATE, "the simulation of apt"))


def firmware(module: AnsibleModule, refresh: bool) -> list[str]:
    """What fwupd would update, nothing where it is not there or does not answer."""
    if not module.get_bin_path("fwupdmgr"):
        return []
    # Asking starts it.
    idle, _, _ = module.run_command(["systemctl", "is-active", "--quiet", FWUPD])
    if refresh:
        module.run_command(list(REFRESH_FIRMWARE), environ_update=ENVIRONMENT)
    _, out, _ = module.run_command(list(FIRMWARE), environ_update=ENVIRONMENT)
    if idle:
        module.run_command(["systemctl", "stop", FWUPD])
    try:
        return parse_updates(json.loads(out))
    except ValueError:
        return []


def main() -> None:
    """Wait, refresh, simulate."""
    module = AnsibleModule(
        argument_spec={
            "refresh": {"type": "bool", "default": True},
            "lock_minutes": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    waited: list[str] = []
    refresh = module.params["refresh"] and not module.check_mode
    if refresh:
        try:
            waited = wait_until_free(module.params["lock_minutes"] * 60)
        except LockedError as error:
            module.fail_json(msg=str(error))
        run(module, REFRESH, "refreshing the package lists")
    plan = simulate(module)
    pending = firmware(module, refresh)
    module.exit_json(changed=False, plan=plan.as_data(), digest=plan.digest, waited=waited, firmware=pending)


if __name__ == "__main__":
    main()
