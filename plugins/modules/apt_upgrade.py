#!/usr/bin/python
"""The update of all packages that was planned, and nothing else."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_upgrade
short_description: Download or install the update that was planned
description:
  - Simulates C(apt-get dist-upgrade) once more and refuses when it is not what was planned any more. Then it downloads
    the packages, or installs them without asking anything. Configuration files that were changed on the node stay.
  - What an interrupted run left half done is set up first (C(dpkg --configure -a)).
  - Services are not restarted by needrestart, as the node is rebooted or its gates are run afterwards.
  - Another program that holds a lock of apt or dpkg is waited for and named.
options:
  step:
    description: What is done.
    type: str
    choices: [download, install]
    required: true
  digest:
    description: The digest of the plan that was agreed to.
    type: str
    required: true
  lock_minutes:
    description: How long to wait for a lock.
    type: float
    default: 10
attributes:
  check_mode:
    description: Says whether there is anything to do.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Download what the update needs
  sparkwright.cluster.apt_upgrade:
    step: download
    digest: "{{ update.digest }}"
"""

RETURN = r"""
waited:
  description: Whom it waited for.
  returned: success
  type: list
  elements: str
log:
  description: The last lines that apt printed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_lock import LockedError, wait_until_free
from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_simulation import (
    SAME_PHASE,
    SIMULATE,
    AptPlan,
    parse_simulation,
)

ENVIRONMENT = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
# A lock that is taken between our look and apt's is waited for by apt itself.
OPTIONS = ("-y", "-q", *SAME_PHASE, "-o", "DPkg::Lock::Timeout=60", "-o", "Dpkg::Options::=--force-confdef")
KEEP_FILES = ("-o", "Dpkg::Options::=--force-confold")
DOWNLOAD = ("apt-get", *OPTIONS, "--download-only", "dist-upgrade")
# That it removes something was agreed to with the plan.
INSTALL = ("apt-get", *OPTIONS, *KEEP_FILES, "dist-upgrade")
CONFIGURE = ("dpkg", "--configure", "-a", "--force-confdef", "--force-confold")
# Lines of apt's output that a failure shows.
LINES = 15


class Apt:
    """The commands of one module call."""

    def __init__(self, module: AnsibleModule) -> None:
        """Remember who runs them."""
        self._module = module

    def __call__(self, argv: tuple[str, ...]) -> str:
        """What a command prints; one that fails ends the module with its last lines."""
        code, out, err = self._module.run_command(list(argv), environ_update=ENVIRONMENT)
        if code:
            words = " | ".join((out + err).strip().splitlines()[-LINES:])
            remedy = "repair it by hand on the node, then run this again, which goes on"
            self._module.fail_json(msg=f"`{' '.join(argv)}` failed: {words}; remedy: {remedy}")
        return str(out)

    def plan(self) -> AptPlan:
        """What would be done now."""
        return parse_simulation(self(SIMULATE))


def refuse_another(module: AnsibleModule, plan: AptPlan) -> None:
    """The lists may have been refreshed in between, or somebody installed something."""
    if plan.digest != module.params["digest"]:
        module.fail_json(
            msg="apt would do something else than what was shown; limit: the plan that was agreed to; "
            "remedy: run this again, which shows the new plan"
        )


def main() -> None:
    """Wait, compare, act."""
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": ["download", "install"], "required": True},
            "digest": {"type": "str", "required": True},
            "lock_minutes": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    apt, step = Apt(module), module.params["step"]
    try:
        waited = [] if module.check_mode else wait_until_free(module.params["lock_minutes"] * 60)
    except LockedError as error:
        module.fail_json(msg=str(error))
    plan = apt.plan()
    refuse_another(module, plan)
    due = bool(plan.install) if step == "download" else not plan.empty
    if not due or module.check_mode:
        module.exit_json(changed=due, waited=waited, log=[])
    if step == "install" and plan.configure:
        apt(CONFIGURE)
    out = apt(DOWNLOAD if step == "download" else INSTALL)
    module.exit_json(changed=True, waited=waited, log=out.strip().splitlines()[-LINES:])


if __name__ == "__main__":
    main()
