"""The names under which this project appears on a node: its container, its unit and its files."""

from __future__ import annotations

ENGINE_CONTAINER = "sparkwright-engine"
# Tries the container runtime after an update, and is gone after a second.
SMOKE_CONTAINER = "sparkwright-smoke"
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

# The registry on the head, which runs only while an image is on its way: one unit takes it in, one gives it out.
REGISTRY_PUSH_UNIT = "sparkwright-registry-push.service"
REGISTRY_PULL_UNIT = "sparkwright-registry.service"
REGISTRY_UNIT_FILES = (f"/etc/systemd/system/{REGISTRY_PUSH_UNIT}", f"/etc/systemd/system/{REGISTRY_PULL_UNIT}")
# What was found inside of the engine image, and the images that we brought to the node.
GATES_FILE = "/var/lib/sparkwright/image-gates.json"
IMAGES_FILE = "/var/lib/sparkwright/images.json"

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

# Where units of ours lie, and those that share the weights over NFS.
UNIT_FOLDER = "/etc/systemd/system"
NFS_SERVER_UNIT = "nfs-server.service"
RAILS_UNIT = "sparkwright-rails.service"
READ_AHEAD_UNIT = "sparkwright-read-ahead.service"
EXPORTS_FILE = "/etc/exports.d/60-sparkwright.exports"
NFS_CONF_FILE = "/etc/nfs.conf.d/60-sparkwright.conf"
NFS_SERVER_FILE = f"{UNIT_FOLDER}/{NFS_SERVER_UNIT}.d/60-sparkwright.conf"

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

# What the node was when it last served and answered, written anew after each such proof.
BASELINE_FILE = "/var/lib/sparkwright/provisioned.json"

# Keeps anybody's apt from changing what the engine stands on while it serves.
APT_GUARD_FILE = "/etc/apt/apt.conf.d/60-sparkwright"
APT_GUARD = f"{LIBRARY}/apt-guard"

# What the name of a checkpoint directory ends with until it is whole.
PARTIAL = ".partial"
# The manifests of checkpoints, and the unit that makes one.
MANIFESTS = "/var/lib/sparkwright/manifests"
MANIFEST_UNIT = "sparkwright-manifest.service"
# What that unit imports. It lies apart, as the engine's own files change only with the engine.
MANIFEST_LIBRARY = f"{LIBRARY}/manifest"
MANIFEST_FILES = ("facts", "gids", "manifest", "manifest_job", "names", "origin", "recorded")

# The files of the pure core that the node's start-up check needs; all of them use the standard library alone.
NODE_LIBRARY = (
    "arp",
    "baseline",
    "boot_menu",
    "bounded",
    "capacity",
    "catalogue",
    "checkpoint_reader",
    "checks",
    "checks_fabric",
    "checks_image",
    "checks_launch",
    "checks_links",
    "checks_memory",
    "checks_nccl",
    "checks_node",
    "checks_rails",
    "checks_ray",
    "checks_rdma",
    "checks_serving",
    "checks_share",
    "checks_tuning",
    "checks_updates",
    "checks_weights",
    "daemon_config",
    "debian_versions",
    "drift",
    "engine_client",
    "engine_log",
    "fabric_reader",
    "facts",
    "fanout",
    "first_failure",
    "footprint_reader",
    "gids",
    "image_need",
    "image_reader",
    "intent",
    "known_bad",
    "link_owners",
    "listeners",
    "machine",
    "meminfo",
    "memory_need",
    "memory_reader",
    "model_shape",
    "mounts",
    "names",
    "nccl_env",
    "netplan",
    "node_reader",
    "origin",
    "own_ports",
    "probes",
    "rails",
    "rank",
    "ray_plan",
    "rdma_schedule",
    "reboots",
    "release",
    "roll_call",
    "safetensors_index",
    "share",
    "share_reader",
    "shortage",
    "software_reader",
    "stages",
    "startup",
    "supervisor",
    "tuning",
    "tuning_plan",
    "tuning_reader",
    "tuning_steps",
    "tuning_swap",
    "update_wish",
    "watchdog",
    "watched",
)
