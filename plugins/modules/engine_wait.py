#!/usr/bin/python
"""One bounded step of waiting for the engine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_wait
short_description: Wait a bounded time for the engine to answer
description:
  - Ready means that the model generated a completion; C(/health) keeps answering for minutes after an engine died.
  - Ends at once when the unit of this node's rank has failed, with the last lines of its log.
  - One call waits no longer than O(seconds). The role calls it on all nodes at once and again, so that a rank that
    fails on any node ends the launch within one such step.
options:
  host:
    description: Name of the node in messages.
    type: str
    required: true
  url:
    description: Base address of the engine's API, such as C(http://192.168.1.11:8000).
    type: str
    required: true
  model:
    description: The name under which the model is served.
    type: str
    required: true
  seconds:
    description: How long this call may take.
    type: int
    default: 15
  limit_minutes:
    description: Fail when the unit was started longer ago than this and still does not answer.
    type: int
    required: true
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Wait one step
  sparkwright.cluster.engine_wait:
    host: "{{ inventory_hostname }}"
    url: http://192.168.1.11:8000
    model: glm-5.2
    limit_minutes: 30
  register: waited
"""

RETURN = r"""
ready:
  description: Whether the model generated a token.
  returned: success
  type: bool
stage:
  description: What the engine's log showed last on this node.
  returned: success
  type: str
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import generate
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_UNIT

# Seconds between two looks; a look that fails costs the engine nothing.
PAUSE = 2
# Seconds for one token; the first one after a load compiles kernels.
ANSWER_SECONDS = 30
LOG_LINES = 40
# How the lines of the start-up check begin, see startup.py.
REFUSED = "refused: "
GONE = ("failed", "inactive", "deactivating")


class Rank:
    """This node's rank as systemd and its log show it."""

    def __init__(self, module: AnsibleModule) -> None:
        """Remember the module that runs the commands."""
        self.module = module

    def unit(self) -> tuple[str, float]:
        """The unit's ActiveState, and the minutes since it was last started."""
        properties = "--property=ActiveState,InactiveExitTimestampMonotonic"
        _, out, _ = self.module.run_command(["systemctl", "show", ENGINE_UNIT, properties], check_rc=True)
        shown = dict(line.split("=", 1) for line in str(out).splitlines())
        started = int(shown["InactiveExitTimestampMonotonic"]) / 1e6
        return shown["ActiveState"], (time.monotonic() - started) / 60

    def log(self, lines: int) -> list[str]:
        """The last lines of the unit's log that say anything."""
        command = ["journalctl", "--unit", ENGINE_UNIT, "--output=cat", "--no-pager", "--lines", str(lines)]
        _, out, _ = self.module.run_command(command)
        return [line for line in str(out).splitlines() if line.strip()]

    def fail(self, fact: str, limit: str) -> None:
        """End the launch with the log of this rank, or with the refusals of the node's own start-up check."""
        log = self.log(LOG_LINES)
        refused = [line.removeprefix(REFUSED) for line in log if line.startswith(REFUSED)]
        remedy = f"read the log below, the whole of it is in `journalctl -u {ENGINE_UNIT}`"
        msg = f"{self.module.params['host']}: {fact}; limit: {limit}; remedy: {remedy}"
        self.module.fail_json(msg="\n".join(dict.fromkeys(refused)) or msg, log=log)


def answers(url: str, model: str) -> bool:
    """Whether the model generates a token now."""
    try:
        return generate(url, model, "1", tokens=1, timeout=ANSWER_SECONDS).tokens > 0
    except (OSError, ValueError):
        return False


def main() -> None:
    """Look until the time of this step is up."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 15},
            "limit_minutes": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    asked, rank = module.params, Rank(module)
    until = time.monotonic() + asked["seconds"]
    while True:
        state, minutes = rank.unit()
        if state in GONE:
            rank.fail(f"the engine's unit is {state}", "active until the model answers")
        if answers(asked["url"], asked["model"]):
            module.exit_json(changed=False, ready=True, stage="serving")
        if minutes > asked["limit_minutes"]:
            rank.fail(f"no answer {minutes:.0f} minutes after the start", f"{asked['limit_minutes']} minutes")
        if time.monotonic() + PAUSE > until:
            module.exit_json(changed=False, ready=False, stage=(rank.log(1) or ["no log yet"])[-1])
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
