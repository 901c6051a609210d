"""The names under which this project appears on a node: its container, its unit and its files."""

from __future__ import annotations

ENGINE_CONTAINER = "sparkwright-engine"
ENGINE_UNIT = "sparkwright-engine.service"
ENGINE_UNIT_FILE = f"/etc/systemd/system/{ENGINE_UNIT}"

# Labels of the engine's container.
LABEL_CONFIG = "sparkwright.config"
LABEL_RANK = "sparkwright.rank"

# The one netplan file that this project writes.
NETPLAN_FILE = "/etc/netplan/60-sparkwright.yaml"
SYSCTL_FILE = "/etc/sysctl.d/60-sparkwright-fabric.conf"
DAEMON_FILE = "/etc/docker/daemon.json"

# NCCL's own file for all processes of the host; the engine's container does not see it.
NCCL_CONF_FILE = "/etc/nccl.conf"
NCCL_ENV_FILE = "/etc/sparkwright/nccl.env"
ENGINE_ENV_FILE = "/etc/sparkwright/engine.env"
LAUNCH_FILE = "/etc/sparkwright/launch.json"
# The key of the API, on the head alone; empty where none is asked for.
API_ENV_FILE = "/etc/sparkwright/api.env"

# What this node's rank is doing, gone with a reboot; and how often the engine was started again, which outlives one.
RANK_FILE = "/run/sparkwright/rank.json"
WATCH_FILE = "/var/lib/sparkwright/watchdog.json"

# The pure core, as the node's own start-up check imports it.
LIBRARY = "/usr/local/lib/sparkwright"

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
    "checks_rdma",
    "checks_serving",
    "checks_tuning",
    "checks_weights",
    "daemon_config",
    "engine_client",
    "engine_log",
    "fabric_reader",
    "facts",
    "first_failure",
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
    "probes",
    "rails",
    "rank",
    "rdma_schedule",
    "release",
    "roll_call",
    "safetensors_index",
    "shortage",
    "stages",
    "startup",
    "supervisor",
    "tuning",
    "tuning_plan",
    "tuning_reader",
    "tuning_steps",
    "tuning_swap",
    "watchdog",
)
