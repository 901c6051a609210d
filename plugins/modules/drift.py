#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drift
short_description: Show what changed on every node since it last served
description:
  - Compares facts with the note of the last proof on each node, shows a table a node, and says whether putting things
    back disturbs an engine that serves, and which nodes are to be rebooted.
  - What is to be thought of each difference is in C(docs/updates.md).
options:
  facts:
    description: Name of the variable in which a task with C(sparkwright.cluster.node_facts) was registered.
    type: str
    required: true
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
- name: Show what changed since the cluster last served
  sparkwright.cluster.drift:
    facts: now
  run_once: true
  register: drift
"""

RETURN = r"""
drifts:
  description: The differences of each node that has such a note, with severity and remedy.
  returned: always
  type: dict
stop:
  description: Whether the engine serves and must be stopped before they are put back.
  returned: always
  type: bool
reboots:
  description: Why nodes should be booted again, by host; only those for which C(os_update_reboot) is C(always).
  returned: always
  type: dict
"""
