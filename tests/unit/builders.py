"""A healthy cluster of four nodes with two rails, and the one way in which tests break it."""

from __future__ import annotations

import copy
import json
import struct
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from tuned import footprint, tuned, wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.baseline import items_of, make_baseline
from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import CATALOGUE
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Cluster, Stage, Status
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import engine_runs
from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import Intent, RailEnd
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.memory_need import MemoryNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import env_file, nccl_env
from ansible_collections.sparkwright.cluster.plugins.module_utils.netplan import render_netplan
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_ports import filter_rules
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import INDEX_NAME
from ansible_collections.sparkwright.cluster.plugins.module_utils.share import ShareWish

REPO = Path(__file__).resolve().parents[2]
HARDWARE = REPO / "lab" / "hardware"

NETDEV0, NETDEV1 = "enp1s0f0np0", "enP2p1s0f0np0"
DEVICE0, DEVICE1 = "rocep1s0f0", "roceP2p1s0f0"
IMAGE = "registry.example/vllm:1"
IMAGE_ID = "sha256:" + "0123456789abcdef" * 4
OTHER_IMAGE_ID = "sha256:" + "fedcba9876543210" * 4
SHARD1, SHARD2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
# In a change: take the key away.
GONE = object()


def rails(rank: int, count: int = 4) -> tuple[RailEnd, ...]:
    """The ends of both rails on spark<rank + 1>, on a switch that joins `count` nodes."""
    return tuple(
        rail_end(name, netdev, rank, {f"spark{n + 1}": f"{subnet}.{10 + n}" for n in range(count)})
        for name, netdev, subnet in (("rail0", NETDEV0, "192.168.100"), ("rail1", NETDEV1, "192.168.101"))
    )


def rail_end(name: str, netdev: str, rank: int, addresses: dict[str, str], prefix: int = 24) -> RailEnd:
    """The end of spark<rank + 1> of a rail whose ends have these addresses."""
    own = f"spark{rank + 1}"
    peers = {host: address for host, address in addresses.items() if host != own}
    return RailEnd(name, netdev, addresses[own], f"{addresses[own]}/{prefix}", 9000, peers)


def intent(rank: int = 0, count: int = 4, **changes) -> Intent:
    """What spark<rank + 1> is meant to be."""
    ends = changes.get("rails") or rails(rank, count)
    memory = MemoryNeed(
        weights=90 * GIB,
        kv_cache=2 * GIB,
        graphs=GIB,
        activations=2 * GIB,
        runtime=3 * GIB,
        floor=3 * GIB,
        utilization=0.9,
        ways=4,
    )
    whole = Intent(
        host=f"spark{rank + 1}",
        rank=rank,
        world_size=count,
        management=f"10.0.0.{11 + rank}",
        head="spark1",
        head_address="192.168.100.10",
        topology="switch",
        rails=ends,
        socket_netdev=ends[0].netdev,
        socket_address=ends[0].address,
        socket_peers=ends[0].peers,
        accelerator="cuda",
        memory=memory,
        weights_path="/models/big",
        weights_pushed=False,
        image=IMAGE,
        image_id=IMAGE_ID,
        api_host="10.0.0.11",
        api_port=8210,
        master_port=29501,
        roll_port=29400,
        daemon_config={"log-driver": "json-file"},
        tuning=wish(),
        share=ShareWish(path="/models", folders=("big",), cache="/var/cache/sparkwright"),
    )
    return replace(whole, **changes)


def gid_of(address: str) -> str:
    """An IPv4 address as the kernel prints it in a GID table."""
    number = int(IPv4Address(address))
    return f"0000:0000:0000:0000:0000:ffff:{number >> 16:04x}:{number & 0xFFFF:04x}"


def gid_row(index: int, gid: str, kind: str = "RoCE v2", netdev: str = NETDEV0) -> dict:
    return {"index": index, "gid": gid, "type": kind, "netdev": netdev}


def rdma_device(rail: RailEnd) -> dict:
    """An ACTIVE device with fe80 at 0 and 1, the IPv4 address at 2 and 3, as on a Spark with one address."""
    local = "fe80:0000:0000:0000:4ebb:47ff:fe2c:100a"
    kinds = ("IB/RoCE v1", "RoCE v2")
    gids = [(local, kinds[0]), (local, kinds[1]), (gid_of(rail.address), kinds[0]), (gid_of(rail.address), kinds[1])]
    rows = [gid_row(index, gid, kind, rail.netdev) for index, (gid, kind) in enumerate(gids)]
    port = {"state": "ACTIVE", "phys_state": "LinkUp", "rate": "200 Gb/sec (4X HDR)", "link_layer": "Ethernet"}
    return {"netdev": rail.netdev, "firmware": "28.45.4028", "port": {**port, "gids": rows}}


def netdev(*addresses: str, mtu: int = 1500, **changes) -> dict:
    """An interface that is up, of no PCI device, without a reverse-path filter."""
    link = {
        "mtu": mtu,
        "speed": 200000,
        "operstate": "UP",
        "carrier": True,
        "mac": "4c:bb:47:2c:10:0a",
        "phys_port_name": None,
        "driver": None,
        "pci": None,
        "addresses": list(addresses),
        "link_local": "fe80::4ebb:47ff:fe2c:100a",
        "rp_filter": 0,
        "manager": "networkd",
    }
    return link | changes


def rail_netdev(rail: RailEnd) -> dict:
    """A twin of the first cage as a healthy Spark shows it: a PCIe link of generation 5 with four lanes."""
    domain = "0002" if rail.netdev.startswith("enP2") else "0000"
    pci = {"address": f"{domain}:01:00.0", "speed": 32.0, "max_speed": 32.0, "width": 4, "max_width": 4}
    return netdev(rail.cidr, mtu=rail.mtu, phys_port_name="p0", driver="mlx5_core", pci=pci, rp_filter=2)


def fabric(rank: int = 0) -> dict:
    ends = rails(rank, 8)
    others = [rails(n, 8) for n in range(8) if n != rank]
    found = {
        "netdevs": {
            "lo": netdev("127.0.0.1/8", mtu=65536),
            "enP7s7": netdev(f"10.0.0.{11 + rank}/24"),
            **{rail.netdev: rail_netdev(rail) for rail in ends},
        },
        "rdma": {name: rdma_device(rail) for name, rail in zip((DEVICE0, DEVICE1), ends, strict=True)},
        "routes": [
            {"dst": "default", "dev": "enP7s7", "gateway": "10.0.0.1"},
            {"dst": "10.0.0.0/24", "dev": "enP7s7", "gateway": None},
            *({"dst": str(IPv4Interface(end.cidr).network), "dev": end.netdev, "gateway": None} for end in ends),
        ],
        "netplan": {"/etc/netplan/60-sparkwright.yaml": [NETDEV1, NETDEV0], "/etc/netplan/50-lan.yaml": ["enP7s7"]},
        "profiles": {},
        "own_netplan": render_netplan(ends),
        "nccl_env": None,
        "nccl_conf": None,
        "pings": {f"{o.address} {p.address}": True for peer in others for o, p in zip(ends, peer, strict=True)},
        "neighbours": {},
        "macs": {f"{rail.netdev} {rail.address}": [] for rail in ends},
        "unreadable": [],
    }
    return {**found, "nccl_env": env_file(nccl_env(intent(rank, 8), found))}


def engine_container(host: str, state: str = "running") -> dict:
    labels = {"sparkwright.config": f"config-{host}"}
    return {"id": "f00", "name": "sparkwright-engine", "image_id": IMAGE_ID, "state": state, "labels": labels}


def image() -> dict:
    """The engine image, looked into and found good."""
    gates = {
        "python": "3.12.3",
        "machine": "aarch64",
        "vllm": "0.33.0",
        "commit": None,
        "ray": None,
        "nccl": "2.30.4",
        "nccl_from": "libnccl.so.2",
        "imports": {},
        "marks": {},
        "strays": [],
    }
    stored = {"id": IMAGE_ID, "architecture": "arm64", "digests": [IMAGE_ID], "build": None}
    return {**stored, "gates": gates, "error": None}


def engine_rank(**changes) -> dict:
    """What the supervisor of a rank keeps while it serves over both rails."""
    figures = {
        "kv_tokens": 132096,
        "context": 131072,
        "concurrency": 1.01,
        "backend": "nccl",
        "meets": "tcp://192.168.100.10:29501",
        "network": "IB",
        "devices": [DEVICE0, DEVICE1],
    }
    rank = {
        "invocation": "1d",
        "stage": "ready",
        "detail": "",
        "since": 1_796_057_541.0,
        "ready": True,
        "missing": [],
        "first": "",
        "available": 0,
        "figures": figures,
        "end": None,
    }
    return {**rank, **changes}


def listeners(rank: int, serving: bool) -> list[dict]:
    """What listens: ssh, and on a head that serves the API, the rendezvous of Ray and the roll call."""
    ours = {8210: "10.0.0.11", 29501: "192.168.100.10", 29400: "192.168.100.10"} if serving and rank == 0 else {}
    rows = [{"address": address, "port": port, "process": "python3"} for port, address in ours.items()]
    return [{"address": "0.0.0.0", "port": 22, "process": "sshd"}, *rows]


def weights() -> dict:
    shard = {"size": 5_000_000_000, "expected": 5_000_000_000, "tensors": 7, "header": "0123456789abcdef"}
    return {
        "path": "/models/big",
        "error": None,
        "tensors": {SHARD1: 7, SHARD2: 7},
        "shards": {SHARD1: dict(shard), SHARD2: dict(shard)},
        "prefixes": {"model.layers.0.": 9 * 10**9, "lm_head.": 10**9},
        "dtypes": {"BF16": 10**10},
        # Ninety GiB for each of four ranks, as in `intent`.
        "split": 4 * 90 * GIB,
        "repeated": 0,
        "config": {"num_hidden_layers": 1, "num_key_value_heads": 4, "head_dim": 32},
        "config_sha256": "c0ffee",
        "sources": [],
        "disk_free": 10**12,
        "disk_used": 10**10,
    }


def node_facts(rank: int = 0, serving: bool = False) -> dict:
    """Everything about a healthy node, with its engine running or not."""
    host = f"spark{rank + 1}"
    return {
        "schema": 1,
        "reachable": True,
        "privileged": True,
        "platform": {
            "os_id": "ubuntu",
            "os_version": "24.04",
            "architecture": "aarch64",
            "python": "3.12.3",
            "kernel": "6.17.0-1008-nvidia",
            "dgx": {"DGX_NAME": "DGX Spark", "DGX_OTA_VERSION": "7.4.0"},
            "gpus": ["NVIDIA GB10"],
            "driver": "580.95.05",
        },
        "memory": memory(),
        "processes": processes(),
        "fabric": fabric(rank),
        "runtime": {
            "version": "28.5.1",
            "error": None,
            "runtimes": ["nvidia", "runc"],
            "containerd_store": False,
            "insecure_registries": [],
            "daemon_json": '{"log-driver": "json-file"}',
            "images": {IMAGE: IMAGE_ID},
            "containers": [engine_container(host)] if serving else [],
        },
        "image": image(),
        "weights": weights(),
        "serving": {
            "unit": "active" if serving else "inactive",
            "listeners": listeners(rank, serving),
            "rank": engine_rank() if serving else None,
            "watchdog": None,
            "filter": filter_rules(intent(rank)) if serving else [],
            "ray": None,
        },
        "tuning": tuned(),
        "footprint": footprint(),
        "software": software(),
        "share": share(),
    }


def share() -> dict:
    """A node whose weights are on its own disk, with a kernel that knows NFS."""
    return {
        "container": False,
        "kernel": ["nfs", "nfsd"],
        "tools": [],
        "mount": None,
        "nested": [],
        "answer": "",
        "said": "",
        "reached": None,
        "connections": [],
        "threads": 0,
        "rdma": False,
        "listens": [],
        "exports": [],
        "files": {},
        "disk_free": 10**12,
        "cache_fstype": "ext4",
    }


def software(**changes) -> dict:
    """What an update may change on a healthy node, which has noted that it served as it is."""
    whole = {
        "packages": {
            "linux-image-6.17.0-1008-nvidia": "6.17.0-1008.8",
            "linux-image-nvidia": "6.17.0.1008.8",
            "linux-modules-nvidia-580-open-6.17.0-1008-nvidia": "6.17.0-1008.8",
            "nvidia-driver-580-open": "580.95.05-0ubuntu1",
            "nvidia-firmware-580": "580.95.05-0ubuntu1",
            "nvidia-kernel-common-580": "580.95.05-0ubuntu1",
            "libnvidia-compute-580": "580.95.05-0ubuntu1",
            "nvidia-container-toolkit": "1.17.8-1",
            "rdma-core": "50.0-2build2",
            "docker-ce": "5:28.5.1-1~ubuntu.24.04~noble",
        },
        "others": {"count": 1500, "digest": "0123456789ab"},
        "broken": [],
        "held": {},
        "kernels": ["6.17.0-1008-nvidia"],
        "next_kernel": "6.17.0-1008-nvidia",
        "reboot_required": [],
        "system_firmware": "5.36_0ACUM018 08/29/2025",
        "masked": ["cups.service"],
        "boot_target": "multi-user.target",
        "toolkit": {"mode": "auto", "digest": "ba9876543210"},
        "files": {"/etc/sparkwright/nccl.env": "111111111111"},
        "updaters": [],
        "baseline": None,
    }
    return whole | changes


def cluster(count: int = 4, serving: bool = False, facts: dict | None = None, intents: dict | None = None, **other):
    """A healthy cluster but for the changes.

    `facts` is {(host, key, key ...): value or GONE}, `intents` is {host or "*": {field: value}}.
    """
    hosts = {f"spark{rank + 1}": rank for rank in range(count)}
    all_facts = {host: node_facts(rank, serving) for host, rank in hosts.items()}
    changes = intents or {}
    planned = {h: intent(rank, count, **changes.get("*", {}), **changes.get(h, {})) for h, rank in hosts.items()}
    # What was noted is the node before it was changed.
    for host, found in all_facts.items():
        found["software"]["baseline"] = make_baseline(items_of(found, planned[host]), {}, "2026-01-01T00:00:00+00:00")
    for path, value in (facts or {}).items():
        _put(all_facts, path, value)
    return Cluster(all_facts, planned, other.pop("config_hashes", {host: f"config-{host}" for host in hosts}), **other)


def findings(found: Cluster) -> list[str]:
    """All that is not ok, of every stage that fits: `status id host: fact; limit: ...; remedy: ...`.

    Whatever is wrong has also changed since the node last served; `drifting` has the checks that say so.
    """
    serving = any(engine_runs(facts) for facts in found.facts.values())
    stages = {Stage.UPDATE} | (set() if serving else {Stage.SERVING})
    return _not_ok([rule for rule in CATALOGUE if rule.stages - stages], found)


def drifting(found: Cluster) -> list[str]:
    """The same of the stage `update`."""
    return _not_ok([rule for rule in CATALOGUE if Stage.UPDATE in rule.stages], found)


def _not_ok(rules: list, found: Cluster) -> list[str]:
    checks = [check for rule in rules for check in rule.run(found)]
    assert len({(check.name, check.host) for check in checks}) == len(checks), "a check has two results for one thing"
    return [f"{check.status} {check.id} {check}" for check in checks if check.status is not Status.OK]


def _put(data: dict, path: tuple, value: object) -> None:
    *parents, last = path
    for key in parents:
        data = data[key]
    if value is GONE:
        del data[last]
    else:
        data[last] = copy.deepcopy(value)


def shard_bytes(tensors: int, payload: int = 64, prefix: str = "") -> bytes:
    """A valid safetensors file with that many tensors of `payload` bytes each, named after the prefix."""
    entries = {
        f"{prefix}t{n}": {"dtype": "U8", "shape": [payload], "data_offsets": [n * payload, (n + 1) * payload]}
        for n in range(tensors)
    }
    return safetensors(entries) + bytes(tensors * payload)


def safetensors(entries: dict) -> bytes:
    """The header of a safetensors file, with its length in front."""
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(header)) + header


def memory() -> dict:
    """A node of the larger class, 121.68 GiB, with 114.44 GiB available, 2 GiB of it in the page cache."""
    file_pages = {"Active(file)": 1_500_000, "Inactive(file)": 600_000, "SReclaimable": 200_000, "Mapped": 100_000}
    swap = {"SwapTotal": 16_777_212, "SwapFree": 16_777_212}
    totals = {"MemTotal": 127_590_000, "MemFree": 118_000_000, "MemAvailable": 120_000_000, "AnonPages": 900_000}
    return {**totals, **file_pages, **swap, "CmaTotal": 65_536, "CmaFree": 60_000}


def processes() -> dict:
    resident = [
        {"pid": 812, "name": "dockerd", "bytes": 85_000_000},
        {"pid": 640, "name": "multipathd", "bytes": 22_000_000},
    ]
    return {"gpu": [], "resident": resident, "low_watermark": 200_000_000, "earlyoom": None, "nfs_threads": 0}


def write_checkpoint(path: Path) -> Path:
    """A whole checkpoint of two shards with two and three tensors."""
    path.mkdir(parents=True, exist_ok=True)
    counts = {SHARD1: 2, SHARD2: 3}
    names = [(f"{shard}.t{n}", shard) for shard, count in counts.items() for n in range(count)]
    (path / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": dict(names)}))
    (path / "config.json").write_text('{"model_type": "llama"}')
    for shard, count in counts.items():
        (path / shard).write_bytes(shard_bytes(count, prefix=f"{shard}."))
    return path
