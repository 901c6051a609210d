"""The names under which this project appears on a node: its container, its unit and its files."""

from __future__ import annotations

ENGINE_CONTAINER = "sparkwright-engine"
ENGINE_UNIT = "sparkwright-engine.service"
ENGINE_UNIT_FILE = f"/etc/systemd/system/{ENGINE_UNIT}"

# Labels of the engine's container.
LABEL_CONFIG = "sparkwright.config"
LABEL_RANK = "sparkwright.rank"
LABEL_RAY = "sparkwright.ray"

# The one netplan file that this project writes.
NETPLAN_FILE = "/etc/netplan/60-sparkwright.yaml"
SYSCTL_FILE = "/etc/sysctl.d/60-sparkwright-fabric.conf"
DAEMON_FILE = "/etc/docker/daemon.json"

# NCCL's own file for all processes of the host; the engine's container does not see it.
NCCL_CONF_FILE = "/etc/nccl.conf"
NCCL_ENV_FILE = "/etc/sparkwright/nccl.env"
ENGINE_ENV_FILE = "/etc/sparkwright/engine.env"
LAUNCH_FILE = "/etc/sparkwright/launch.json"

# The pure core, as the node's own start-up check imports it.
LIBRARY = "/usr/local/lib/sparkwright"

# What runs inside the container of a Ray, where `python3 LIBRARY` finds it whatever the image's own paths are.
CONTAINER_PROGRAM = "ray_rank"
CONTAINER_MAIN = '''"""Runs a rank of Ray inside its container."""

import sys

from sparkwright.ray_rank import main

sys.exit(main(sys.argv[1:]))
'''

# What was there before the first change of ours, written once.
RECORD_FILE = "/var/lib/sparkwright/before.json"

# The files of the pure core that the node's start-up check needs; all of them use the standard library alone.
NODE_LIBRARY = (
    "arp",
    "bounded",
    "capacity",
    "catalogue",
    "checkpoint_reader",
    "checks",
    "checks_fabric",
    "checks_launch",
    "checks_links",
    "checks_memory",
    "checks_nccl",
    "checks_node",
    "checks_rails",
    "checks_ray",
    "checks_rdma",
    "checks_tuning",
    "checks_weights",
    "daemon_config",
    "fabric_reader",
    "facts",
    "footprint_reader",
    "gids",
    "intent",
    "link_owners",
    "listeners",
    "machine",
    "meminfo",
    "memory_need",
    "memory_reader",
    "model_shape",
    "names",
    "nccl_env",
    "netplan",
    "node_reader",
    "own_ports",
    "probes",
    "rails",
    "ray_plan",
    "rdma_schedule",
    "release",
    "safetensors_index",
    "shortage",
    "startup",
    "tuning",
    "tuning_plan",
    "tuning_reader",
    "tuning_steps",
    "tuning_swap",
)
