#!/usr/bin/python
"""One bounded step of waiting for the engine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_wait
short_description: Look for a bounded time at how far this node's rank has come
description:
  - Reads what the unit of the rank and its supervisor say. A rank that failed is a result and no failure of the task,
    so that the ranks of all nodes can be compared.
  - Returns at once when the rank serves or has failed, else after O(seconds). The role calls it on all nodes at once
    and again, so that a rank that fails on any node ends the launch within one such step.
  - Each stage has a limit, which the supervisor itself keeps; that of the roll call is kept here, because after a power
    cut a node may wait for the others for hours.
options:
  seconds:
    description: How long this call may take. The steps of a launch are nested includes, so there should be few of them.
    type: int
    default: 20
  roll_minutes:
    description: How long a launch by a person may wait for a rank that does not call.
    type: int
    default: 15
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Wait one step
  sparkwright.cluster.engine_wait:
  register: waited
"""

RETURN = r"""
ready:
  description: Whether the model generated a token and counted it.
  returned: success
  type: bool
fault:
  description: Why the rank does not run any more, empty while it does.
  returned: success
  type: str
line:
  description: Where the rank is, in a few words.
  returned: success
  type: str
  sample: "weights: 2 of 47 shards, for 3 min"
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import Rank
from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import Step, step_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_UNIT, RANK_FILE
from ansible_collections.sparkwright.cluster.plugins.module_utils.rank import parse_rank

# Seconds between two looks.
PAUSE = 1


def look(module: AnsibleModule) -> Step:
    """What the unit and the rank say now."""
    properties = "--property=ActiveState,Job,InvocationID"
    _, shown, _ = module.run_command(["systemctl", "show", ENGINE_UNIT, properties], check_rc=True)
    return step_of(str(shown), read_rank(), time.time(), module.params["roll_minutes"])


def read_rank(path: str = RANK_FILE) -> Rank | None:
    """What the rank last wrote."""
    try:
        return parse_rank(Path(path).read_text(encoding="utf-8"))
    except OSError:
        return None


def main() -> None:
    """Look until the time of this step is up."""
    module = AnsibleModule(
        argument_spec={"seconds": {"type": "int", "default": 20}, "roll_minutes": {"type": "int", "default": 15}},
        supports_check_mode=True,
    )
    until = time.monotonic() + module.params["seconds"]
    step = look(module)
    while not step.ready and not step.fault and time.monotonic() + PAUSE < until:
        time.sleep(PAUSE)
        step = look(module)
    module.exit_json(changed=False, ready=step.ready, fault=step.fault, line=step.line)


if __name__ == "__main__":
    main()
