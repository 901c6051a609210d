#!/usr/bin/python
"""Lets the next node of the chain read the weights, for the time of a copy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_sender
short_description: Let one other node read the weights for the time of a copy
description:
  - Starts one rsync daemon for each rail as a transient unit of systemd, or ends them. What they give is read-only, and
    to the addresses in their configuration alone.
  - They end by themselves after some hours, should nobody be left to end them. Nothing of them outlives a reboot.
options:
  state:
    description: Whether they run.
    type: str
    choices: [started, stopped]
    default: started
  config:
    description: The text of their configuration, as C(node_plan) gives it.
    type: str
  addresses:
    description: The addresses to listen on, one for each rail.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Does nothing.
    support: full
notes:
  - It never reports a change, because nothing of it stays.
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Let the next node read the weights
  sparkwright.cluster.weights_sender:
    config: "{{ plan.share.fanout.config }}"
    addresses: "{{ plan.share.fanout.listen }}"
"""

RETURN = r"""
units:
  description: The units that run.
  returned: always
  type: list
  elements: str
"""

import socket
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.fanout import PORT
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import write_atomically

# Gone with the next boot.
CONFIG = Path("/run/sparkwright/rsyncd.conf")
UNIT = "sparkwright-copy"
# Seconds after which a forgotten daemon ends: 410 GB over a network of 1 Gb/s take an hour.
LIFE = 6 * 3600
READY_SECONDS = 20
PAUSE = 0.2


def start(module: AnsibleModule, addresses: list[str]) -> list[str]:
    """Start a daemon on each address and wait until it takes connections."""
    write_atomically(CONFIG, module.params["config"].encode(), 0o600)
    units = []
    for number, address in enumerate(addresses):
        unit = f"{UNIT}-{number}.service"
        rsync = ["rsync", "--daemon", "--no-detach", f"--config={CONFIG}", f"--address={address}", f"--port={PORT}"]
        limits = ["--collect", "--quiet", f"--property=RuntimeMaxSec={LIFE}"]
        module.run_command(["systemd-run", f"--unit={unit}", *limits, "--", *rsync], check_rc=True)
        units.append(unit)
    for unit, address in zip(units, addresses, strict=True):
        if not answers(address):
            _, log, _ = module.run_command(["journalctl", f"--unit={unit}", "--lines=5", "--output=cat", "--no-pager"])
            stop(module)
            module.fail_json(
                msg=f"rsync does not listen on {address} port {PORT}: {' '.join(str(log).split())}; limit: an answer "
                f"within {READY_SECONDS} s; remedy: look who has the port with `ss -ltnp`, then run it again"
            )
    return units


def answers(address: str) -> bool:
    """Whether the daemon takes connections, soon."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection((address, PORT), READY_SECONDS).close()
        except OSError:
            time.sleep(PAUSE)
        else:
            return True
    return False


def stop(module: AnsibleModule) -> None:
    """End all of them, those of an earlier run too."""
    module.run_command(["systemctl", "stop", f"{UNIT}-*.service"])
    CONFIG.unlink(missing_ok=True)


def main() -> None:
    """End what is left of an earlier run, then start."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "stopped"], "default": "started"},
            "config": {"type": "str"},
            "addresses": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "started", ["config", "addresses"])],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, units=[])
    stop(module)
    wanted = module.params["addresses"] if module.params["state"] == "started" else []
    module.exit_json(changed=False, units=start(module, wanted) if wanted else [])


if __name__ == "__main__":
    main()
