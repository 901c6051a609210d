#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: footprint
short_description: Show what each node used before and uses now
description:
  - Compares two readings of every node (processes, memory by unit, MemAvailable, swap, journal, open ports) in a table.
  - Where the node recorded its footprint before the first change of ours, that is what it is compared with.
  - Both go to C(reports/<inventory>-footprint.json) on the controller.
options:
  before:
    description: Name of the variable in which C(sparkwright.cluster.node_facts) was registered before the change.
    type: str
    required: true
  after:
    description: Name of the variable in which it was registered afterwards.
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
- name: Show what the hosts used before and use now
  sparkwright.cluster.footprint:
    before: __preflight_facts
    after: __host_tuning_evidence
  run_once: true
"""

RETURN = r"""
report:
  description: The file that was written.
  returned: success
  type: str
before:
  description: The earlier footprint of each node, as C(module_utils/facts.py) describes it.
  returned: success
  type: dict
after:
  description: The later one.
  returned: success
  type: dict
"""
