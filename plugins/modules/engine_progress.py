#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_progress
short_description: Show where every rank is, and say which failed first
description:
  - From what C(engine_wait) found on every node shows a line a node, and decides whether to wait on.
  - With O(stopped) it fails, and names the rank that failed first with the reason, or what start-up checks refused.
options:
  waited:
    description: Name of the variable in which a task with C(sparkwright.cluster.engine_wait) was registered.
    type: str
    required: true
  stopped:
    description: Name of the variable in which a task with C(sparkwright.cluster.engine_stopped) was registered.
    type: str
notes:
  - Run it once, with C(run_once), in a play over all nodes. No host is contacted.
attributes:
  check_mode:
    description: Does the same in check mode.
    support: full
author:
  - Sparkwright
"""

EXAMPLES = r"""
- name: Say where the ranks are
  sparkwright.cluster.engine_progress:
    waited: __serving_waited
  run_once: true
  register: __serving_progress
"""

RETURN = r"""
outcome:
  description: C(wait), C(ready) or C(failed).
  returned: success
  type: str
log:
  description: The last lines of the rank that failed first.
  returned: failure
  type: list
  elements: str
"""
