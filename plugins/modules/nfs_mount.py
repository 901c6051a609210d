#!/usr/bin/python
"""Mounts the weights by their unit, and waits for that no longer than it is told."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nfs_mount
short_description: Mount the weights by their systemd unit, within a bounded time
description:
  - Makes systemd read the units of the mount and of its read-ahead, enables both and starts them.
  - Waits until the mount is there, or until the time is up; then the unit goes on trying by itself. Whether it is the
    right mount is for C(node_facts) and C(verdict) to say.
  - A mount that is to be replaced is taken away first, also from under a server that does not answer.
options:
  path:
    description: The directory on which the weights are mounted.
    type: path
    required: true
  unit:
    description: The mount unit of that directory.
    type: str
    required: true
  remount:
    description: Take away what is mounted there first.
    type: bool
    default: false
  seconds:
    description: How long to wait for the mount.
    type: int
    default: 90
attributes:
  check_mode:
    description: Changes nothing and says that it would.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Mount the weights
  sparkwright.cluster.nfs_mount:
    path: /var/lib/sparkwright/models
    unit: var-lib-sparkwright-models.mount
"""

RETURN = r"""
active:
  description: Whether the mount was there in time.
  returned: always
  type: bool
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.names import READ_AHEAD_UNIT

PAUSE = 1
# Seconds until systemd has seen that a mount is gone.
NOTICE_SECONDS = 20


class Mounter:
    """Drives the units of one mount."""

    def __init__(self, module: AnsibleModule) -> None:
        """Remember the module that runs the commands."""
        self.module = module
        self.unit: str = module.params["unit"]

    def systemctl(self, *arguments: str) -> None:
        """Run systemctl, which must succeed."""
        self.module.run_command(["systemctl", *arguments], check_rc=True)

    def state(self) -> str:
        """The ActiveState of the mount unit."""
        _, out, _ = self.module.run_command(["systemctl", "show", self.unit, "--property=ActiveState", "--value"])
        return str(out).strip()

    def wait(self, seconds: float, *states: str) -> bool:
        """Whether the unit came to one of the states in time."""
        until = time.monotonic() + seconds
        while self.state() not in states:
            if time.monotonic() > until:
                return False
            time.sleep(PAUSE)
        return True

    def take_away(self) -> None:
        """Let go of what is mounted; a unit that still tries to mount is ended."""
        self.module.run_command(["umount", "--force", "--lazy", self.module.params["path"]])
        if not self.wait(NOTICE_SECONDS, "inactive", "failed"):
            self.systemctl("kill", "--signal=KILL", self.unit)

    def mount(self) -> bool:
        """Whether the mount is there in time."""
        self.systemctl("daemon-reload")
        self.systemctl("enable", self.unit, READ_AHEAD_UNIT)
        self.systemctl("start", "--no-block", self.unit)
        # A start that only waits in the queue still shows the state of before.
        self.wait(PAUSE, "activating", "active")
        there = self.wait(self.module.params["seconds"], "active", "failed") and self.state() == "active"
        if there:
            self.systemctl("restart", READ_AHEAD_UNIT)
        return there


def main() -> None:
    """Take away, mount, wait."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "unit": {"type": "str", "required": True},
            "remount": {"type": "bool", "default": False},
            "seconds": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, active=False)
    mounter = Mounter(module)
    if module.params["remount"]:
        mounter.take_away()
    module.exit_json(changed=True, active=mounter.mount())


if __name__ == "__main__":
    main()
