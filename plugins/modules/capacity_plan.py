#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: capacity_plan
short_description: Say what a profile takes of every node, before there is any
description:
  - Shows weights a rank, the tokens that the engine will print, the memory of a rank on both classes of GB10 nodes, and
    everything that is refused about the profile. Fails when something is.
  - With another number of nodes the profile is resized; the largest power of two of them computes.
  - Reads the profile alone. C(docs/memory.md) explains the arithmetic.
options:
  profile:
    description: Name of the profile, a file of C(profiles/) beside the inventory or of the checkout. Without it the
      profile of the inventory.
    type: str
  nodes:
    description: Number of nodes, which may be text. Without it as many as the profile is for.
    type: raw
  image:
    description: Reference of the engine image, where the stock image should be told from a patched one.
    type: str
    default: ""
attributes:
  check_mode:
    description: Does the same in check mode.
    support: full
author:
  - Sparkwright
"""

EXAMPLES = r"""
- name: Say whether it will fit
  sparkwright.cluster.capacity_plan:
    profile: glm52-nvfp4-dcp4-mtp3-128k
    nodes: 4
"""

RETURN = r"""
plan:
  description: The plan as data.
  returned: always
  type: dict
  contains:
    refusals:
      description: One line for each thing that cannot work, with the remedy.
      type: list
      elements: str
    memory:
      description: Bytes of rank 0 by what takes them, for each class of MemTotal in GiB.
      type: dict
    kv_cache:
      description: Blocks, tokens and concurrency as the engine prints them, where the profile gives the cache a size.
      type: dict
      sample: {blocks: 516, tokens: 132096, concurrency: 1.01}
    commands:
      description: Argument lists and environment of head and worker, with addresses of an example.
      returned: when nothing is refused
      type: dict
"""
