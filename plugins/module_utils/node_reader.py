"""Reads everything about the node it runs on; with `recorded.py` the only file here that touches a machine.

It uses the standard library alone, because it runs as a module under Ansible and again, without Ansible, when a node
starts its engine. Hardware files are read below `hardware_root`, and below / where that root lacks them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .checkpoint_reader import read_bounded
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
    Runtime,
    Serving,
)
from .meminfo import parse_meminfo
from .memory_reader import read_processes
from .names import DAEMON_FILE, ENGINE_UNIT, NETPLAN_FILE
from .release import parse_release

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
T = TypeVar("T")

SUBSETS = ("platform", "memory", "processes", "fabric", "runtime", "weights", "serving")

# Seconds. No command asked here takes more than one on a healthy node; a hung daemon must not hang the play.
COMMAND_SECONDS = 20
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
        """Read the named subsets; `pings` are {netdev, address, size}, size in bytes of ICMP payload."""
        readers: dict[str, Callable[[], Any]] = {
            "platform": self.platform,
            "memory": lambda: parse_meminfo(self._text("proc/meminfo")),
            "processes": lambda: read_processes(self._roots, self._run),
            "fabric": lambda: self.fabric(pings),
            "runtime": lambda: self.runtime(images),
            "serving": self.serving,
        }
        if weights_path:
            readers["weights"] = lambda: read_bounded(weights_path)
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
        routes = self._json(["ip", "-j", "-4", "route", "show", "default"])
        return {
            "netdevs": netdevs,
            "rdma": devices,
            "default_routes": sorted({route["dev"] for route in routes if "dev" in route}),
            "netplan": self._netplan(netdevs),
            "pings": ping_all(pings),
            "own_netplan": self._text(NETPLAN_FILE.lstrip("/")) or None,
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
            "mac": str(link.get("address", "")),
            "phys_port_name": self._text(f"sys/class/net/{name}/phys_port_name").strip() or None,
            "addresses": [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a.get("family") == "inet"],
        }

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
        return {"netdev": netdev or None, "port": read}

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


def ping_all(pings: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """Send every ping at once, unfragmented and bound to its interface; {`netdev address`: answered}.

    Without a ping command nobody answers.
    """
    if shutil.which("ping") is None:
        return {f"{ping['netdev']} {ping['address']}": False for ping in pings}
    running = {
        f"{ping['netdev']} {ping['address']}": subprocess.Popen(
            _ping_argv(str(ping["netdev"]), str(ping["address"]), int(ping["size"])),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for ping in pings
    }
    return {key: process.wait() == 0 for key, process in running.items()}


def _ping_argv(netdev: str, address: str, size: int) -> list[str]:
    pace = ["-c", str(PING_COUNT), "-i", "0.2", "-W", str(PING_SECONDS)]
    return ["ping", "-n", "-q", "-M", "do", "-s", str(size), *pace, "-I", netdev, address]


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
