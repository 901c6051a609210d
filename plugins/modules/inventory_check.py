#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inventory_check
short_description: Refuse a wrong inventory before any host is contacted
description:
  - Checks the whole inventory on the controller and fails with one line for each mistake.
  - Looks at the group C(sparks), the ranks, the management and fabric addresses, the names and types of all
    C(sparkwright_*) and C(<role>_*) variables, and whether the profile exists and its shape fits the number of nodes.
  - Variables are checked against every C(roles/*/meta/argument_specs.yml), without the conversions of Ansible.
  - The profile is C(profiles/<name>.yml) beside the inventory, or else that of the checkout. One that passes its schema
    is refused where it contradicts itself or can never work, such as weights that no such number of nodes can hold.
notes:
  - Never opens a connection. Run it once, with C(run_once), in a play that gathers no facts.
  - A play for a group that does not exist is skipped in silence. The play for C(sparks:localhost) runs and refuses.
  - Sees variables of the inventory and of the command line; those of plays and the defaults of roles are not seen.
attributes:
  check_mode:
    description: Does the same in check mode.
    support: full
author:
  - Sparkwright
"""

EXAMPLES = r"""
- name: Check the inventory
  hosts: sparks:localhost
  gather_facts: false
  tasks:
    - name: Refuse a wrong inventory
      sparkwright.cluster.inventory_check:
      run_once: true
"""

RETURN = r"""
msg:
  description: One line for each mistake, with the host, what is wrong and the remedy.
  returned: failure
  type: str
  sample: "spark2: sparkwright_rank 0 is also the rank of spark1; remedy: give each node its own rank"
profile_file:
  description: The file of the profile that the cluster serves, on the controller.
  returned: success
  type: str
  sample: profiles/glm52-awq15-mtp3-256k.yml
address_plan:
  description: The fabric addresses of all nodes.
  returned: success
  type: dict
  contains:
    head_address:
      description: Address of rank 0 on the first rail; in a ring the one by which it is managed.
      type: str
      sample: 192.168.100.10
    nodes:
      description: For each host, in the order of the ranks, its name, rank and rails.
      type: dict
      sample:
        spark1:
          host: spark1
          rank: 0
          rails:
            - name: rail0
              netdev: ""
              address: 192.168.100.10
              cidr: 192.168.100.10/24
              mtu: 9000
              peers:
                spark2: 192.168.100.11
"""
