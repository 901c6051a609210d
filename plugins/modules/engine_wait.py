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
  api_key:
    description: Bearer token of the API, where one is set.
    type: str
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Wait one step
  sparkwright.cluster.engine_wait:
    url: http://192.168.1.11:8000
    model: glm-5.2
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
import urllib.error

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import generate
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_UNIT

# Seconds between two looks; a look that fails costs the engine nothing.
PAUSE = 2
LOG_LINES = 40
GONE = ("failed", "inactive", "deactivating")


def unit_state(module: AnsibleModule) -> str:
    """The unit's ActiveState."""
    _, out, _ = module.run_command(["systemctl", "show", ENGINE_UNIT, "--property=ActiveState", "--value"])
    return str(out).strip()


def log(module: AnsibleModule, lines: int) -> list[str]:
    """The last lines of the unit's log in its present run."""
    command = ["journalctl", "--unit", ENGINE_UNIT, "--output=cat", "--no-pager", "--lines", str(lines)]
    _, out, _ = module.run_command(command)
    return [line for line in str(out).splitlines() if line.strip()]


def main() -> None:
    """Look until the time is up."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 15},
            "api_key": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    until = time.monotonic() + asked["seconds"]
    while True:
        state = unit_state(module)
        if state in GONE:
            last = log(module, LOG_LINES)
            module.fail_json(
                msg=f"the engine's unit is {state}; limit: active until it serves; remedy: read the log below",
                log=last,
            )
        try:
            answer = generate(asked["url"], asked["model"], "1", tokens=1, timeout=PAUSE * 5, api_key=asked["api_key"])
            module.exit_json(changed=False, ready=answer.tokens > 0, stage="serving")
        except (urllib.error.URLError, OSError, ValueError):
            pass
        if time.monotonic() + PAUSE > until:
            module.exit_json(changed=False, ready=False, stage=(log(module, 1) or ["no log yet"])[-1])
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
