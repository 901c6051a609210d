#!/usr/bin/python
"""Everything about one node in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_facts
short_description: Read everything about one node in one call
description:
  - Reads platform, memory, fabric, container runtime, weights and serving state of a node and returns them as data.
  - It changes nothing. Every command and every look at the weights is bounded in time.
  - An action plugin of the same name fills in what the inventory knows (the root of the hardware files, the checkpoint,
    the image, the peers to ping). A node that cannot be reached, or where sudo fails, comes back as data with
    C(reachable) false and a reason, so that one table can name all nodes that fail.
options:
  subsets:
    description: What to read. Less is faster.
    type: list
    elements: str
    choices: [platform, memory, processes, fabric, runtime, image, weights, serving, tuning, footprint, software, share]
    default: [platform, memory, processes, fabric, runtime, image, weights, serving, tuning, footprint, software, share]
  probe_paths:
    description: Also send pings of the full MTU, unfragmented, to every peer on every rail.
    type: bool
    default: false
  probe_wires:
    description:
      - Also ask who else claims an address of a rail, and in a ring or between two nodes who is at the other end.
    type: bool
    default: false
  hardware_root:
    description: Root below which hardware files are read first. Filled in from C(sparkwright_hardware_root).
    type: path
    default: /
  weights_path:
    description: Directory of the checkpoint on the node. Filled in from the profile.
    type: path
  weights_parts:
    description: Directories that it is assembled from, which take disk as well. Filled in from the inventory.
    type: list
    elements: str
    default: []
  images:
    description: Image references whose image IDs are wanted. Filled in from C(engine_image_ref).
    type: list
    elements: str
    default: []
  image_key:
    description: Which look inside of the image counts. Filled in from the profile.
    type: str
    default: ""
  sysctls:
    description: Kernel settings that belong to C(tuning). Filled in from the variables of the role C(host_tuning).
    type: list
    elements: str
    default: []
  share:
    description: How the weights reach the node, as far as it must be asked for. Filled in from the inventory.
    type: dict
    suboptions:
      path:
        description: Directory of the weights.
        type: path
        default: ""
      server:
        description: Address of the NFS server that must answer; empty for none.
        type: str
        default: ""
      folders:
        description: Directories below whose files are wanted with their sizes.
        type: list
        elements: str
        default: []
      cache:
        description: Directory of the engine's caches.
        type: path
        default: ""
  pings:
    description: The pings to send. Filled in from the address plan.
    type: list
    elements: dict
    default: []
    suboptions:
      address:
        description: Own address; the ping is sent from the interface that has it. Without one there is no answer.
        type: str
        required: true
      peer:
        description: Address of the peer.
        type: str
        required: true
      size:
        description: Bytes of payload, the MTU less 28.
        type: int
        required: true
  neighbours:
    description:
      - Also ask who else is on the wire of every interface that has a RDMA device. Filled in from the topology.
    type: bool
    default: false
  arp:
    description:
      - Addresses to ask for by ARP probes, which teach nobody anything. Answers of the node itself do not count.
      - Only root can ask; what could not be asked is missing in the answer. Filled in from the address plan.
    type: list
    elements: dict
    default: []
    suboptions:
      netdev:
        description:
          - Interface to ask on while no interface has the address. Without one, all that have a RDMA device are tried.
          - An interface without a carrier is left out.
        type: str
      address:
        description: The IPv4 address.
        type: str
        required: true
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Read the fabric of every node and try every path
  sparkwright.cluster.node_facts:
    subsets: [fabric]
    probe_paths: true
  register: fabric_facts
"""

RETURN = r"""
node:
  description:
    - What was read; sections that were not asked for are absent.
    - The file C(module_utils/facts.py) of this collection describes every key.
  returned: always
  type: dict
  contains:
    reachable:
      description: Whether the node answered and the account could become root.
      type: bool
    reason:
      description: Why not, in the words of ssh or sudo.
      type: str
      returned: when the node could not be read
    platform:
      description: System, kernel, Python, GPU and driver.
      type: dict
    memory:
      description: The figures of /proc/meminfo in kB.
      type: dict
    processes:
      description: Who holds memory on the GPU, the largest resident processes, earlyoom and the NFS server.
      type: dict
    fabric:
      description: Network devices, RDMA devices with their GID tables, routes, who configures them, who answered.
      type: dict
    runtime:
      description: Docker, its images that were asked for, and all containers.
      type: dict
    image:
      description: The engine image, and what was found inside of it when C(sparkwright.cluster.image_gates) looked.
      type: dict
    weights:
      description: The checkpoint's index and shards with their sizes in bytes, and what the tensors add up to.
      type: dict
    serving:
      description: State of the engine's unit, and all listening TCP sockets.
      type: dict
    tuning:
      description: Kernel settings, swap, journal, the protection of ssh, earlyoom, kernel arguments.
      type: dict
    share:
      description: Mounts and exports of the weights, the NFS server, the files of copies, the disk of the caches.
      type: dict
    footprint:
      description: Processes, memory by unit, swap in use, size of the journal, open ports.
      type: dict
    software:
      description: Packages, kernels, holds, masked units, files of ours, and what was noted when it last served.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import SUBSETS, NodeReader
from ansible_collections.sparkwright.cluster.plugins.module_utils.probes import Probes
from ansible_collections.sparkwright.cluster.plugins.module_utils.share_reader import ShareAsked


def main() -> None:
    """Read and return."""
    ping = {
        "address": {"type": "str", "required": True},
        "peer": {"type": "str", "required": True},
        "size": {"type": "int", "required": True},
    }
    share = {
        "path": {"type": "path", "default": ""},
        "server": {"type": "str", "default": ""},
        "folders": {"type": "list", "elements": "str", "default": []},
        "cache": {"type": "path", "default": ""},
    }
    arp = {"netdev": {"type": "str"}, "address": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "subsets": {"type": "list", "elements": "str", "choices": list(SUBSETS), "default": list(SUBSETS)},
            "probe_paths": {"type": "bool", "default": False},
            "probe_wires": {"type": "bool", "default": False},
            "hardware_root": {"type": "path", "default": "/"},
            "weights_path": {"type": "path"},
            "weights_parts": {"type": "list", "elements": "str", "default": []},
            "images": {"type": "list", "elements": "str", "default": []},
            "image_key": {"type": "str", "default": "", "no_log": False},
            "sysctls": {"type": "list", "elements": "str", "default": []},
            "share": {"type": "dict", "options": share, "apply_defaults": True},
            "pings": {"type": "list", "elements": "dict", "options": ping, "default": []},
            "neighbours": {"type": "bool", "default": False},
            "arp": {"type": "list", "elements": "dict", "options": arp, "default": []},
        },
        supports_check_mode=True,
    )
    asked = module.params
    reader = NodeReader(asked["hardware_root"], sysctls=asked["sysctls"])
    probes = Probes(asked["pings"], asked["neighbours"], asked["arp"])
    node = reader.read(
        asked["subsets"],
        asked["weights_path"],
        asked["images"],
        probes,
        asked["image_key"],
        asked["weights_parts"],
        ShareAsked(**asked["share"]),
    )
    module.exit_json(changed=False, node=node)


if __name__ == "__main__":
    main()
