#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: update_plan
short_description: Show what an update would do to every node, and refuse one that would break the cluster
description:
  - Shows what apt would install and remove, a package a line and a node a column.
  - Refuses removals that C(os_update_removals) does not allow, a kernel without the modules of the driver, a driver
    in several versions or without its firmware, downgrades, versions that are known to be bad, and nodes that would
    not be alike afterwards.
options:
  plans:
    description: Name of the variable in which a task with C(sparkwright.cluster.apt_plan) was registered.
    type: str
    required: true
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
- name: Decide whether the update may be made
  sparkwright.cluster.update_plan:
    plans: plans
    facts: facts
  run_once: true
  register: order
"""

RETURN = r"""
due:
  description: The nodes that have something to do, be it only a reboot.
  returned: success
  type: list
  elements: str
canary:
  description: The node that is updated first.
  returned: success
  type: str
batches:
  description: The other nodes, in groups that are updated at once.
  returned: success
  type: list
  elements: list
told:
  description: What is no refusal but worth knowing, such as packages on hold, firmware, and who held a lock.
  returned: success
  type: list
  elements: str
"""
