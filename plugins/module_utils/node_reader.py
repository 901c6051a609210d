"""Reads everything about the node it runs on; with `recorded.py` the only file here that touches a machine.

It uses the standard library alone, because it runs as a module under Ansible and again, without Ansible, when a node
starts its engine. Hardware files are read below `hardware_root`, and below / where that root lacks them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .bounded import TimedOut, bounded
from .facts import (
    SCHEMA,
    Container,
    Fabric,
    GidRow,
    Listener,
    Netdev,
    NodeFacts,
    Platform,
    RdmaDevice,
    RdmaPort,
    Route,
    Runtime,
    Serving,
    Shard,
    Weights,
)
from .meminfo import parse_meminfo
from .names import DAEMON_FILE, ENGINE_UNIT, NCCL_ENV_FILE, NETPLAN_FILE
from .release import parse_release
from .safetensors_index import INDEX_NAME, LENGTH_BYTES, header_length, parse_header, parse_index

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
T = TypeVar("T")

SUBSETS = ("platform", "memory", "fabric", "runtime", "weights", "serving")

# Seconds. No command asked here takes more than one on a healthy node; a hung daemon must not hang the play.
COMMAND_SECONDS = 20
# Seconds for a whole checkpoint directory; a dead NFS mount never answers.
WEIGHTS_SECONDS = 30
# Seconds that one ping may take, and how many are sent: the first one may be lost to address resolution.
PING_SECONDS = 1
PING_COUNT = 3

NETPLAN_FOLDERS = ("etc/netplan", "run/netplan", "usr/lib/netplan")


def run_command(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in the C locale; one that is missing or late comes back as a failed one."""
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, "", f"{argv[0]} is not installed")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"{argv[0]} did not answer within {COMMAND_SECONDS} s")


class NodeReader:
    """Reads one node. `root` and `run` are changed by tests only."""

    def __init__(self, hardware_root: str = "/", root: str = "/", run: Run = run_command) -> None:
        """Remember where to read."""
        self._roots = [Path(hardware_root), Path(root)]
        self._root = Path(root)
        self._run = run

    def read(
        self,
        subsets: Iterable[str],
        weights_path: str | None = None,
        images: Sequence[str] = (),
        pings: Sequence[dict[str, Any]] = (),
    ) -> NodeFacts:
        """Read the named subsets; `pings` are {address, peer, size}, size in bytes of ICMP payload."""
        readers: dict[str, Callable[[], Any]] = {
            "platform": self.platform,
            "memory": lambda: parse_meminfo(self._text("proc/meminfo")),
            "fabric": lambda: self.fabric(pings),
            "runtime": lambda: self.runtime(images),
            "serving": self.serving,
        }
        if weights_path:
            readers["weights"] = lambda: self.weights(weights_path)
        found = {name: read() for name, read in readers.items() if name in set(subsets)}
        # A mapping built by name cannot be matched with the keys of a TypedDict.
        return {"schema": SCHEMA, "reachable": True, "privileged": os.geteuid() == 0, **found}  # type: ignore[typeddict-item]

    def platform(self) -> Platform:
        """The machine, its system and its GPU."""
        system = parse_release(self._text("etc/os-release"))
        dgx = self._text("etc/dgx-release")
        gpus, driver = self._gpus()
        return {
            "os_id": system.get("ID", ""),
            "os_version": system.get("VERSION_ID", ""),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "dgx": parse_release(dgx) if dgx else None,
            "gpus": gpus,
            "driver": driver,
        }

    def fabric(self, pings: Sequence[dict[str, Any]] = ()) -> Fabric:
        """Network and RDMA devices, default routes, who configures them, and which peers answer."""
        # Without `-4`, which would hide every interface that has no IPv4 address yet.
        netdevs = {link["ifname"]: self._netdev(link) for link in self._json(["ip", "-j", "addr"])}
        devices = {path.name: self._rdma(path) for path in self._children("sys/class/infiniband")}
        return {
            "netdevs": netdevs,
            "rdma": devices,
            "routes": routes_of(self._json(["ip", "-j", "-4", "route"])),
            "netplan": self._netplan(netdevs),
            "profiles": {},
            "own_netplan": self._text(NETPLAN_FILE.lstrip("/")) or None,
            "nccl_env": self._text(NCCL_ENV_FILE.lstrip("/")) or None,
            "nccl_conf": self._text("etc/nccl.conf") or None,
            "pings": ping_all(pings, netdevs),
            "neighbours": {},
            "macs": {},
            "unreadable": [],
        }

    def runtime(self, images: Sequence[str] = ()) -> Runtime:
        """Docker: its version, runtimes, configuration file, the images asked for and every container."""
        info = self._run(["docker", "info", "--format", "{{json .}}"])
        data = _json_or(info.stdout, {}) if info.returncode == 0 else {}
        version = data.get("ServerVersion") or None
        errors = data.get("ServerErrors") or [info.stderr.strip() or "docker does not answer"]
        return {
            "version": version,
            "error": None if version else str(errors[0]),
            "runtimes": sorted(data.get("Runtimes") or {}),
            "containerd_store": "containerd" in json.dumps(data.get("DriverStatus")),
            "daemon_json": self._text(DAEMON_FILE.lstrip("/")) or None,
            "images": {ref: self._image_id(ref) for ref in images} if version else {},
            "containers": self._containers() if version else [],
        }

    def serving(self) -> Serving:
        """The engine's unit and every listening TCP socket."""
        shown = self._run(["systemctl", "show", ENGINE_UNIT, "--property=ActiveState,UnitFileState"]).stdout
        state = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        sockets = self._run(["ss", "-H", "-l", "-t", "-n", "-p"]).stdout
        return {
            "unit": state.get("ActiveState", "unknown"),
            "enabled": state.get("UnitFileState", ""),
            "listeners": parse_listeners(sockets),
        }

    def weights(self, path: str) -> Weights:
        """A checkpoint directory, within a bounded time even on a dead mount."""
        try:
            return bounded(lambda: read_weights(Path(path)), WEIGHTS_SECONDS)
        except TimedOut:
            return _no_weights(path, f"it did not answer within {WEIGHTS_SECONDS} s")
        except RuntimeError as error:
            return _no_weights(path, f"it cannot be read: {error}")

    def _text(self, name: str) -> str:
        """The first readable file of that name below the roots, or an empty string."""
        for root in self._roots:
            try:
                return (root / name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
        return ""

    def _children(self, name: str) -> list[Path]:
        for root in self._roots:
            if (root / name).is_dir():
                return sorted((root / name).iterdir())
        return []

    def _json(self, argv: Sequence[str]) -> list[dict[str, Any]]:
        rows = _json_or(self._run(argv).stdout, [])
        # `ip -j` prints empty objects for the rows that a filter hides.
        return [row for row in rows if row]

    def _gpus(self) -> tuple[list[str], str | None]:
        tool = next((str(r / "usr/bin/nvidia-smi") for r in self._roots if (r / "usr/bin/nvidia-smi").exists()), None)
        if tool is None:
            return [], None
        done = self._run([tool, "--query-gpu=name,driver_version", "--format=csv,noheader"])
        rows = [line.rsplit(",", 1) for line in done.stdout.splitlines() if "," in line] if not done.returncode else []
        return [name.strip() for name, _ in rows], rows[0][1].strip() if rows else None

    def _netdev(self, link: dict[str, Any]) -> Netdev:
        name = link["ifname"]
        speed = self._text(f"sys/class/net/{name}/speed").strip()
        return {
            "mtu": int(link.get("mtu", 0)),
            "speed": int(speed) if speed.isdigit() else None,
            "operstate": str(link.get("operstate", "UNKNOWN")),
            "carrier": {"1": True, "0": False}.get(self._text(f"sys/class/net/{name}/carrier").strip()),
            "mac": str(link.get("address", "")),
            "phys_port_name": self._text(f"sys/class/net/{name}/phys_port_name").strip() or None,
            "driver": None,
            "pci": None,
            "addresses": [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a.get("family") == "inet"],
            "link_local": next((a["local"] for a in link["addr_info"] if a["local"].startswith("fe80:")), None),
            "rp_filter": self._rp_filter(name),
            "manager": None,
        }

    def _rp_filter(self, name: str) -> int | None:
        # The kernel takes the larger one of both (Documentation/networking/ip-sysctl.rst).
        folder = "proc/sys/net/ipv4/conf"
        texts = [self._text(f"{folder}/{who}/rp_filter").strip() for who in ("all", name)]
        return max(map(int, texts)) if all(text.isdigit() for text in texts) else None

    def _rdma(self, path: Path) -> RdmaDevice:
        port = path / "ports/1"
        read: RdmaPort = {
            "state": _after_colon(_file(port / "state")),
            "phys_state": _after_colon(_file(port / "phys_state")),
            "rate": _file(port / "rate"),
            "link_layer": _file(port / "link_layer"),
            "gids": _gid_rows(port),
        }
        # Soft-RoCE has no device/ link; there the first row of the table names the network device.
        linked = sorted(child.name for child in _listing(path / "device/net"))
        netdev = linked[0] if linked else _file(port / "gid_attrs/ndevs/0")
        return {"netdev": netdev or None, "firmware": _file(path / "fw_ver") or None, "port": read}

    def _netplan(self, netdevs: Iterable[str]) -> dict[str, list[str]]:
        files = [path for folder in NETPLAN_FOLDERS for path in _listing(self._root / folder) if path.suffix == ".yaml"]
        return {f"/{path.relative_to(self._root)}": names_in(_file(path), netdevs) for path in files}

    def _image_id(self, ref: str) -> str | None:
        done = self._run(["docker", "image", "inspect", "--format", "{{.Id}}", ref])
        return done.stdout.strip() or None if done.returncode == 0 else None

    def _containers(self) -> list[Container]:
        ids = self._run(["docker", "ps", "--all", "--quiet", "--no-trunc"]).stdout.split()
        if not ids:
            return []
        return [
            {
                "id": row["Id"],
                "name": row["Name"].lstrip("/"),
                "image_id": row["Image"],
                "state": row["State"]["Status"],
                "labels": row["Config"]["Labels"] or {},
            }
            for row in _json_or(self._run(["docker", "container", "inspect", *ids]).stdout, [])
        ]


def parse_listeners(text: str) -> list[Listener]:
    """The listening sockets from `ss -H -l -t -n -p`; a wildcard address comes as 0.0.0.0 or ::."""
    found: list[Listener] = []
    for line in text.splitlines():
        fields = line.split()
        address, _, port = fields[3].rpartition(":") if len(fields) > 3 else ("", "", "")
        if not port.isdigit():
            continue
        owner = re.search(r'users:\(\("([^"]+)"', line)
        # `%lo` names the interface that a socket is bound to; ::ffff: is IPv4 on a socket of both families.
        plain = address.split("%")[0].strip("[]").removeprefix("::ffff:")
        name = owner.group(1) if owner else ""
        found.append({"address": "0.0.0.0" if plain == "*" else plain, "port": int(port), "process": name})
    return found


def names_in(text: str, names: Iterable[str]) -> list[str]:
    """Which of the names stand in a netplan file outside of comments, as a key or as a value."""
    words = set(re.findall(r"[\w.-]+", "\n".join(line.split("#")[0] for line in text.splitlines())))
    return sorted(words.intersection(names))


def routes_of(rows: Iterable[dict[str, Any]]) -> list[Route]:
    """The routes that `ip -j route` printed; one with several next hops becomes several."""
    hops = [(row["dst"], hop) for row in rows for hop in row.get("nexthops", [row])]
    return [{"dst": dst, "dev": hop["dev"], "gateway": hop.get("gateway")} for dst, hop in hops if "dev" in hop]


def ping_all(pings: Sequence[dict[str, Any]], netdevs: Mapping[str, Netdev]) -> dict[str, bool]:
    """Send every ping at once, unfragmented and bound to its interface; {`own address, peer's address`: answered}.

    Without a ping command, or an interface that has the address, nobody answers.
    """
    owner = {address.split("/")[0]: name for name, link in netdevs.items() for address in link["addresses"]}
    known = shutil.which("ping") is not None
    running = {
        f"{ping['address']} {ping['peer']}": subprocess.Popen(
            _ping_argv(owner[ping["address"]], str(ping["peer"]), int(ping["size"])),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for ping in pings
        if known and ping["address"] in owner
    }
    answers = {key: process.wait() == 0 for key, process in running.items()}
    return {f"{ping['address']} {ping['peer']}": False for ping in pings} | answers


def _ping_argv(netdev: str, address: str, size: int) -> list[str]:
    pace = ["-c", str(PING_COUNT), "-i", "0.2", "-W", str(PING_SECONDS)]
    return ["ping", "-n", "-q", "-M", "do", "-s", str(size), *pace, "-I", netdev, address]


def read_weights(path: Path) -> Weights:
    """Read a checkpoint directory: its index, every shard's size and header, and the hash of its configuration."""
    try:
        tensors = parse_index((path / INDEX_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _no_weights(str(path), f"{INDEX_NAME} is not there")
    except (OSError, ValueError) as error:
        return _no_weights(str(path), f"{INDEX_NAME} cannot be read: {error}")
    config = path / "config.json"
    return {
        "path": str(path),
        "error": None,
        "tensors": tensors,
        "shards": {file.name: _shard(file) for file in sorted(path.glob("*.safetensors"))},
        "config_sha256": hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else None,
        "disk_free": _disk_free(path),
    }


def _no_weights(path: str, error: str) -> Weights:
    return {
        "path": path,
        "error": error,
        "tensors": {},
        "shards": {},
        "config_sha256": None,
        "disk_free": 0,
    }


def _shard(path: Path) -> Shard:
    """A shard that cannot be opened, such as a link to nowhere, comes back as an empty one without a header."""
    try:
        with path.open("rb") as file:
            first = file.read(LENGTH_BYTES)
            header = parse_header(first, file.read(header_length(first) or 0))
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return {"size": 0, "expected": None, "tensors": 0}
    return {
        "size": size,
        "expected": header.file_bytes if header else None,
        "tensors": header.tensors if header else 0,
    }


def _disk_free(path: Path) -> int:
    return shutil.disk_usage(path).free


def _gid_rows(port: Path) -> list[GidRow]:
    """Every row that is not all zeros; a slot that cannot be read stays in, with an empty GID."""
    rows: list[GidRow] = []
    slots = [path for path in _listing(port / "gids") if path.name.isdigit()]
    for path in sorted(slots, key=lambda slot: int(slot.name)):
        gid = _file(path)
        if gid and not gid.strip("0:"):
            continue
        attributes = port / "gid_attrs"
        kind, netdev = _file(attributes / "types" / path.name), _file(attributes / "ndevs" / path.name)
        rows.append({"index": int(path.name), "gid": gid, "type": kind, "netdev": netdev})
    return rows


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _listing(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _after_colon(text: str) -> str:
    return text.partition(":")[2].strip() or text


def _json_or(text: str, default: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return default
