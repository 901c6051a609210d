#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: admission
short_description: Say for every node whether the launch fits into its memory
description:
  - From fresh facts of all nodes one table, a line a node, with total, available, reclaimable and needed memory in GiB,
    the verdict, the first rank that does not fit, and the remedy that would suffice.
  - Fails with one line for each refusal. C(docs/memory.md) explains the arithmetic.
options:
  facts:
    description: Name of the variable in which a task with C(sparkwright.cluster.node_facts) was registered. It must
      have read C(memory), C(processes), C(runtime) and C(serving), and C(weights) where the checkpoint is there.
    type: str
    required: true
  refuse:
    description: Fail when the launch does not fit. Otherwise the table alone says so.
    type: bool
    default: true
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
- name: Admit the launch
  sparkwright.cluster.admission:
    facts: __serving_facts
  run_once: true
"""

RETURN = r"""
admitted:
  description: Whether the launch fits on every node.
  returned: always
  type: bool
summary:
  description: The verdict for the cluster.
  returned: always
  type: str
  sample: "cluster: refused on spark2; the first rank that does not fit is 1 on spark2"
nodes:
  description: For each node that will load its rank the figures in bytes, and who holds memory.
  returned: always
  type: dict
checks:
  description:
    - Every result with its id, subject, host, status, fact, limit, remedy and its one-line message.
    - On failure only the refusals.
  returned: always
  type: list
  elements: dict
"""
