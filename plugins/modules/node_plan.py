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
updates:
  description: What concerns updates.
  returned: success
  type: dict
  contains:
    files:
      description: The guard of apt, as for C(managed_files).
      type: list
      elements: dict
    reboot:
      description: Why the node should be booted again; null when that was not read.
      type: list
      elements: str
    smoke:
      description: Argument list of a container that looks at the GPU and ends.
      type: list
      elements: str
share:
  description: What makes the weights reach the node; null when its facts were not read.
  returned: success
  type: dict
  contains:
    mode:
      description: One of nfs, copy and local.
      type: str
    holds:
      description: Whether the node has data of its own before anything is shared.
      type: bool
    files:
      description: The files of the NFS server or client, as for C(managed_files).
      type: list
      elements: dict
    record:
      description: What to record before, section by section.
      type: dict
    busy:
      description: Whether an engine runs on any node.
      type: bool
    packages:
      description: The packages for NFS that the node lacks.
      type: list
      elements: str
    rsync_due:
      description: Whether files are to travel to or from the node by an rsync that it does not have.
      type: bool
    serves:
      description: Whether the node exports.
      type: bool
    server_current:
      description: Whether its NFS server runs as it should.
      type: bool
    exports_current:
      description: Whether it exports to every client.
      type: bool
    mounts:
      description: Whether the node mounts.
      type: bool
    mounted:
      description: Whether the mount is there as it should be.
      type: bool
    remount:
      description: Whether what is mounted must go first.
      type: bool
    unit:
      description: The mount unit of the directory.
      type: str
    fanout:
      description:
        - The node's part in a copy; null for another mode. C(rounds) has for each round what it copies, C(told) what a
          person is told, C(surplus) files to remove, C(listen) and C(config) what the next node reads from.
      type: dict
weights_current:
  description: Whether the node's checkpoint is whole and the same as the controller's.
  returned: success
  type: bool
weights_source:
  description: What brings the checkpoint onto the node, from the variables of the role model_store.
  returned: success
  type: dict
  contains:
    path:
      description: Directory of the checkpoint.
      type: str
    fetches:
      description: What is fetched from Hugging Face, with the directory of each.
      type: list
      elements: dict
    overlay:
      description: The directories that are assembled, or null.
      type: dict
    prune:
      description: The program that writes the checkpoint, or null.
      type: dict
    prefixes:
      description: Beginnings of tensor names that must be there, with what needs them.
      type: dict
    manifest:
      description: File of the manifest on the head.
      type: str
    unit:
      description: Unit that makes it.
      type: str
    library:
      description: Directory of what the unit imports.
      type: str
    files:
      description: What it imports, in the words of C(managed_files).
      type: list
      elements: dict
daemon_restart:
  description: Whether Docker must be restarted for what C(daemon_json) adds.
  returned: success
  type: bool
daemon_reload:
  description: Whether it is enough, and due, that Docker reads its configuration again.
  returned: success
  type: bool
image:
  description: Where the engine image is lacking and how it travels; null when its facts were not read.
  returned: success
  type: dict
  contains:
    current:
      description: Whether this node has it, the pinned or built one, and that of the head.
      type: bool
    settled:
      description: Whether all nodes have it.
      type: bool
    distribution:
      description: One of registry, archive and pull.
      type: str
    registry:
      description: Address and port of the head's registry; empty without one.
      type: str
    registry_files:
      description: Units and configurations of that registry, as for C(managed_files).
      type: list
      elements: dict
    source:
      description: How the head gets it, one of build, load and pull.
      type: str
launch:
  description: Argument list of the container, hash of the configuration, and the files of the serving role.
  returned: success
  type: dict
state:
  description: State of the whole cluster, one of running, down and partial.
  returned: success
  type: str
"""
