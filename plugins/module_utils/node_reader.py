"""Reads everything about the node it runs on; its network is left to `fabric_reader.py`.

It uses the standard library alone, because it runs as a module under Ansible and again, without Ansible, when a node
starts its engine.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .bounded import TimedOut, bounded
from .fabric_reader import FabricReader
from .facts import SCHEMA, Container, Fabric, Footprint, NodeFacts, Platform, Runtime, Serving, Shard, Tuning, Weights
from .footprint_reader import FootprintReader
from .listeners import parse_listeners
from .machine import Machine, Run, json_or, run_command
from .meminfo import parse_meminfo
from .names import DAEMON_FILE, ENGINE_UNIT
from .probes import Probes
from .release import parse_release
from .safetensors_index import INDEX_NAME, LENGTH_BYTES, header_length, parse_header, parse_index
from .tuning_reader import TuningReader

SUBSETS = ("platform", "memory", "fabric", "runtime", "weights", "serving", "tuning", "footprint")

# Seconds for a whole checkpoint directory; a dead NFS mount never answers.
WEIGHTS_SECONDS = 30

NOTHING = Probes()


class NodeReader:
    """Reads one node. `sysctls` are the kernel settings to look at; `root` and `run` are changed by tests only."""

    def __init__(
        self, hardware_root: str = "/", root: str = "/", run: Run = run_command, sysctls: Sequence[str] = ()
    ) -> None:
        """Remember where to read."""
        self._machine = Machine(hardware_root, root, run)
        self._sysctls = sysctls

    def read(
        self,
        subsets: Iterable[str],
        weights_path: str | None = None,
        images: Sequence[str] = (),
        probes: Probes = NOTHING,
    ) -> NodeFacts:
        """Read the named subsets; `probes` belong to the fabric."""
        readers: dict[str, Callable[[], Any]] = {
            "platform": self.platform,
            "memory": lambda: parse_meminfo(self._machine.text("proc/meminfo")),
            "fabric": lambda: self.fabric(probes),
            "runtime": lambda: self.runtime(images),
            "serving": self.serving,
            "tuning": self.tuning,
            "footprint": self.footprint,
        }
        if weights_path:
            readers["weights"] = lambda: self.weights(weights_path)
        found = {name: read() for name, read in readers.items() if name in set(subsets)}
        # A mapping built by name cannot be matched with the keys of a TypedDict.
        return {"schema": SCHEMA, "reachable": True, "privileged": os.geteuid() == 0, **found}  # type: ignore[typeddict-item]

    def platform(self) -> Platform:
        """The machine, its system and its GPU."""
        system = parse_release(self._machine.text("etc/os-release"))
        dgx = self._machine.text("etc/dgx-release")
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

    def fabric(self, probes: Probes = NOTHING) -> Fabric:
        """The network, who configures it, and what the others on the wire answer."""
        return FabricReader(self._machine).read(probes)

    def runtime(self, images: Sequence[str] = ()) -> Runtime:
        """Docker: its version, runtimes, configuration file, the images asked for and every container."""
        info = self._machine.run(["docker", "info", "--format", "{{json .}}"])
        data = json_or(info.stdout, {}) if info.returncode == 0 else {}
        version = data.get("ServerVersion") or None
        errors = data.get("ServerErrors") or [info.stderr.strip() or "docker does not answer"]
        return {
            "version": version,
            "error": None if version else str(errors[0]),
            "runtimes": sorted(data.get("Runtimes") or {}),
            "containerd_store": "containerd" in json.dumps(data.get("DriverStatus")),
            "daemon_json": self._machine.text(DAEMON_FILE.lstrip("/")) or None,
            "images": {ref: self._image_id(ref) for ref in images} if version else {},
            "containers": self._containers() if version else [],
        }

    def serving(self) -> Serving:
        """The engine's unit and every listening TCP socket."""
        shown = self._machine.run(["systemctl", "show", ENGINE_UNIT, "--property=ActiveState,UnitFileState"]).stdout
        state = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        sockets = self._machine.run(["ss", "-H", "-l", "-t", "-n", "-p"]).stdout
        return {
            "unit": state.get("ActiveState", "unknown"),
            "enabled": state.get("UnitFileState", ""),
            "listeners": parse_listeners(sockets),
        }

    def tuning(self) -> Tuning:
        """Kernel settings, swap, journal, and how ssh is protected."""
        return TuningReader(self._machine, self._sysctls).read()

    def footprint(self) -> Footprint:
        """What the node uses by itself."""
        return FootprintReader(self._machine).read()

    def weights(self, path: str) -> Weights:
        """A checkpoint directory, within a bounded time even on a dead mount."""
        try:
            return bounded(lambda: read_weights(Path(path)), WEIGHTS_SECONDS)
        except TimedOut:
            return _no_weights(path, f"it did not answer within {WEIGHTS_SECONDS} s")
        except RuntimeError as error:
            return _no_weights(path, f"it cannot be read: {error}")

    def _gpus(self) -> tuple[list[str], str | None]:
        tool = self._machine.tool("usr/bin/nvidia-smi")
        if tool is None:
            return [], None
        done = self._machine.run([tool, "--query-gpu=name,driver_version", "--format=csv,noheader"])
        rows = [line.rsplit(",", 1) for line in done.stdout.splitlines() if "," in line] if not done.returncode else []
        return [name.strip() for name, _ in rows], rows[0][1].strip() if rows else None

    def _image_id(self, ref: str) -> str | None:
        done = self._machine.run(["docker", "image", "inspect", "--format", "{{.Id}}", ref])
        return done.stdout.strip() or None if done.returncode == 0 else None

    def _containers(self) -> list[Container]:
        ids = self._machine.run(["docker", "ps", "--all", "--quiet", "--no-trunc"]).stdout.split()
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
            for row in json_or(self._machine.run(["docker", "container", "inspect", *ids]).stdout, [])
        ]


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
