#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: Render what a node is meant to be, without touching it
description:
  - From the inventory, the profile and the node's own facts to the text of every file and the command line of its rank.
  - A part whose facts were not read is null.
options:
  facts:
    description: Name of the variable in which a task with C(sparkwright.cluster.node_facts) was registered.
    type: str
    required: true
attributes:
  check_mode:
    description: Does the same in check mode.
    support: full
author:
  - Sparkwright
"""

EXAMPLES = r"""
- name: Plan the rails
  sparkwright.cluster.node_plan:
    facts: fabric_facts
  register: plan
"""

RETURN = r"""
intent:
  description: The node's rank, rails with addresses, peers, ports, image and memory need in bytes.
  returned: success
  type: dict
fabric:
  description:
    - What makes the rails what they should be. Fails when the interface of a rail cannot be found.
  returned: when the fabric was read
  type: dict
  contains:
    files:
      description: Our netplan file, the drop-in for sysctl and the NCCL environment, as for C(managed_files).
      type: list
      elements: dict
    rails_current:
      description: Whether every rail has its planned address and MTU now.
      type: bool
    strict:
      description: The interfaces of rails whose reverse path filter is strict now.
      type: list
      elements: str
    wake:
      description: Interfaces that must be up before anyone can say where the rails are; empty when they are known.
      type: list
      elements: str
daemon_json:
  description: Merged text of Docker's configuration; null when there is nothing to add.
  returned: success
  type: str
tuning:
  description: What tunes the host, in the words of C(host_tuning); null when its facts were not read.
  returned: success
  type: dict
  contains:
    files:
      description: Files that differ; null as content for one that must go.
      type: list
      elements: dict
    steps:
      description: What is due, in this order.
      type: list
      elements: dict
    record:
      description: What to record before, section by section.
      type: dict
    margin:
      description: Bytes of MemAvailable that must be left when swap is drained.
      type: int
    refused:
      description: Why it cannot be done now, a line each.
      type: list
      elements: str
weights_current:
  description: Whether the node's checkpoint is whole and the same as the controller's.
  returned: success
  type: bool
image_current:
  description: Whether the node has the image, and the pinned one.
  returned: success
  type: bool
launch:
  description: Argument list of the container, hash of the configuration, and the files of the serving role.
  returned: success
  type: dict
state:
  description: State of the whole cluster, one of running, down and partial.
  returned: success
  type: str
"""
