#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verdict
short_description: Run the checks of one stage over all nodes and refuse in plain English
description:
  - Runs pure functions over the facts that a task registered on every node, and over what the inventory intends.
  - Shows a table with a line a check and a column a node, and fails with one line for each refusal.
  - The checks are listed in C(docs/checks.md).
options:
  facts:
    description: Name of the variable in which a task with C(sparkwright.cluster.node_facts) was registered.
    type: str
    required: true
  stage:
    description: Which checks are gates now. C(all) runs every check.
    type: str
    required: true
    choices: [preflight, host, fabric, weights, image, launch, serving, update, all]
  rdma:
    description: Name of the variable in which a task with C(sparkwright.cluster.rdma_probe) was registered.
    type: str
  hashes:
    description: Name of the variable in which a task with C(sparkwright.cluster.checkpoint_hashes) was registered.
    type: str
  report:
    description: Also write facts, intents, the rendered launch of every rank and results to
      C(reports/<inventory>-<report>.json) on the controller.
    type: str
  picture:
    description:
      - Also show the fabric as a table, an interface a line; with O(report), also draw it to
        C(reports/<inventory>-<report>.svg).
    type: bool
    default: false
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
- name: Decide before anything is changed
  sparkwright.cluster.verdict:
    facts: __preflight_facts
    stage: preflight
  run_once: true
"""

RETURN = r"""
checks:
  description:
    - Every result with its id, subject, host, status, fact, limit, remedy and its one-line message.
    - On failure only the refusals.
  returned: always
  type: list
  elements: dict
report:
  description: The file that was written.
  returned: when O(report) is given
  type: str
counts:
  description: Number of results by status.
  returned: always
  type: dict
  sample: {ok: 64, warn: 1, refuse: 0, unknown: 0}
"""
