#!/usr/bin/python
"""Network interfaces brought up, to see which of them have a cable."""

from __future__ import annotations

DOCUMENTATION = r"""
module: links_up
short_description: Bring network interfaces up and wait for their carriers
description:
  - The kernel says nothing about the cable of an interface that is administratively down. This brings interfaces up and
    does no more. It lasts until the next reboot, unless something configures them.
  - It then waits until enough of them have a carrier and their link-local addresses can be used, or for C(seconds).
    Interfaces without a carrier are no failure.
options:
  netdevs:
    description: The interfaces.
    type: list
    elements: str
    required: true
  carriers:
    description: How many carriers are worth waiting for.
    type: int
    required: true
  seconds:
    description: Longest wait. A link of 200 Gb/s trains for some seconds.
    type: int
    default: 15
attributes:
  check_mode:
    description: Brings nothing up in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: See which cage has the cable
  sparkwright.cluster.links_up:
    netdevs: [enp1s0f0np0, enP2p1s0f0np0, enp1s0f1np1, enP2p1s0f1np1]
    carriers: 2
"""

RETURN = r"""
raised:
  description: The interfaces that were down.
  returned: always
  type: list
  elements: str
carriers:
  description: The interfaces that have a carrier now.
  returned: always
  type: list
  elements: str
"""

import json
import time
from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# Seconds between two looks.
PAUSE = 0.5


def links(module: AnsibleModule, *scope: str) -> dict[str, dict[str, Any]]:
    """The interfaces as `ip` shows them, by name; a scope leaves the others out."""
    _, out, _ = module.run_command(["ip", "-j", *scope], check_rc=True)
    return {link["ifname"]: link for link in json.loads(out or "[]") if "ifname" in link}


def with_carrier(module: AnsibleModule, netdevs: Iterable[str]) -> list[str]:
    """Which of the interfaces have a carrier."""
    found = links(module, "link", "show")
    return [name for name in netdevs if "LOWER_UP" in found.get(name, {}).get("flags", [])]


def tentative(module: AnsibleModule, netdevs: Iterable[str]) -> list[str]:
    """Which of the interfaces have an IPv6 address that is still looked for elsewhere, and so cannot be used yet."""
    found = links(module, "-6", "address", "show", "tentative")
    return [name for name in netdevs if found.get(name, {}).get("addr_info")]


def wait(module: AnsibleModule, netdevs: list[str], carriers: int, seconds: float) -> list[str]:
    """Wait until so many carriers are there and their addresses usable, or for that long; the carriers that are."""
    until = time.monotonic() + seconds
    while True:
        up = with_carrier(module, netdevs)
        if (len(up) >= carriers and not tentative(module, up)) or time.monotonic() >= until:
            return up
        time.sleep(PAUSE)


def main() -> None:
    """Bring up, wait, return."""
    module = AnsibleModule(
        argument_spec={
            "netdevs": {"type": "list", "elements": "str", "required": True},
            "carriers": {"type": "int", "required": True},
            "seconds": {"type": "int", "default": 15},
        },
        supports_check_mode=True,
    )
    asked = module.params
    found = links(module, "link", "show")
    down = [name for name in asked["netdevs"] if "UP" not in found.get(name, {}).get("flags", [])]
    missing = [name for name in down if name not in found]
    if missing:
        module.fail_json(msg=f"there is no interface {', '.join(missing)}, only {', '.join(sorted(found))}")
    if module.check_mode:
        module.exit_json(changed=bool(down), raised=down, carriers=with_carrier(module, asked["netdevs"]))
    for name in down:
        module.run_command(["ip", "link", "set", "dev", name, "up"], check_rc=True)
    up = wait(module, asked["netdevs"], asked["carriers"], asked["seconds"])
    module.exit_json(changed=bool(down), raised=down, carriers=up)


if __name__ == "__main__":
    main()
