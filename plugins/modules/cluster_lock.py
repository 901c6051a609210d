#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_lock
short_description: Let one run at a time work on a cluster
description:
  - Holds a lock on the head from this task until the C(ansible-playbook) that took it ends, however it ends.
  - Nothing can leave the lock behind. It is a C(flock) of a process on the head that lives as long as its connection.
  - A second run, from this controller or another, fails with the account, the machine and the process that hold it.
notes:
  - Run it on the head alone. The controller must be Linux.
attributes:
  check_mode:
    description: A run in check mode changes nothing and needs no lock; do not call it there.
    support: none
author:
  - Sparkwright
"""

EXAMPLES = r"""
- name: Hold the lock on the head until this run ends
  sparkwright.cluster.cluster_lock:
  when: sparkwright_rank == 0
"""

RETURN = r"""
msg:
  description: Who holds the lock.
  returned: failure
  type: str
  sample: "spark1: another run works on this cluster: alice@desk pid 4312 since 10:31 UTC"
"""
