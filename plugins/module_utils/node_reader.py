"""Reads everything about the node it runs on; network, processes and weights are left to readers of their own.

It uses the standard library alone, because it runs as a module under Ansible and again, without Ansible, when a node
starts its engine.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .checkpoint_reader import read_bounded
from .fabric_reader import FabricReader
from .facts import SCHEMA, Container, Fabric, Footprint, NodeFacts, Platform, Ray, Runtime, Serving, Software, Tuning
from .footprint_reader import FootprintReader
from .image_reader import read_image
from .listeners import parse_listeners
from .machine import Machine, Run, json_or, run_command
from .meminfo import parse_meminfo
from .memory_reader import read_processes
from .names import (
    DAEMON_FILE,
    ENGINE_CONTAINER,
    ENGINE_UNIT,
    LABEL_RANK,
    LABEL_RAY,
    LIBRARY,
    RANK_FILE,
    WATCH_FILE,
)
from .own_ports import CHAIN, parse_rules
from .probes import Probes
from .rank import parse_rank, parse_watchdog
from .release import parse_release
from .share_reader import ShareAsked, read_share
from .software_reader import SoftwareReader
from .tuning_reader import TuningReader

SUBSETS = (
    "platform",
    "memory",
    "processes",
    "fabric",
    "runtime",
    "image",
    "weights",
    "serving",
    "tuning",
    "footprint",
    "software",
    "share",
)

NOTHING = Probes()
UNSHARED = ShareAsked()


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
        image_key: str = "",
        weights_parts: Sequence[str] = (),
        share: ShareAsked = UNSHARED,
    ) -> NodeFacts:
        """Read the named subsets.

        `probes` belong to the fabric, `image_key` to the first of the images; `weights_parts` are what the checkpoint
        is made of.
        """
        readers: dict[str, Callable[[], Any]] = {
            "platform": self.platform,
            "memory": lambda: parse_meminfo(self._machine.text("proc/meminfo")),
            "processes": lambda: read_processes(self._machine),
            "fabric": lambda: self.fabric(probes),
            "runtime": lambda: self.runtime(images),
            "serving": self.serving,
            "tuning": self.tuning,
            "footprint": self.footprint,
            "software": self.software,
            "share": lambda: read_share(self._machine, share),
        }
        if images:
            readers["image"] = lambda: read_image(self._machine, images[0], image_key)
        if weights_path:
            readers["weights"] = lambda: read_bounded(self._machine, weights_path, parts=weights_parts)
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
        registries = (data.get("RegistryConfig") or {}).get("IndexConfigs") or {}
        return {
            "version": version,
            "error": None if version else str(errors[0]),
            "runtimes": sorted(data.get("Runtimes") or {}),
            "containerd_store": "containerd" in json.dumps(data.get("DriverStatus")),
            "insecure_registries": sorted(name for name, row in registries.items() if not row.get("Secure", True)),
            "daemon_json": self._machine.text(DAEMON_FILE.lstrip("/")) or None,
            "images": {ref: self._image_id(ref) for ref in images} if version else {},
            "containers": self._containers() if version else [],
        }

    def serving(self) -> Serving:
        """The engine's unit, what its rank and its watchdog say, who listens and who is let through, and Ray."""
        shown = self._machine.run(["systemctl", "show", ENGINE_UNIT, "--property=ActiveState"]).stdout
        state = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        sockets = self._machine.run(["ss", "-H", "-l", "-t", "-n", "-p"]).stdout
        return {
            "unit": state.get("ActiveState", "unknown"),
            "listeners": parse_listeners(sockets),
            "rank": parse_rank(self._machine.text(RANK_FILE.lstrip("/"))),
            "watchdog": parse_watchdog(self._machine.text(WATCH_FILE.lstrip("/"))),
            "filter": parse_rules(self._machine.run(["iptables", "--list-rules", CHAIN]).stdout),
            "ray": self._ray(),
        }

    def tuning(self) -> Tuning:
        """Kernel settings, swap, journal, and how ssh is protected."""
        return TuningReader(self._machine, self._sysctls).read()

    def footprint(self) -> Footprint:
        """What the node uses by itself."""
        return FootprintReader(self._machine).read()

    def software(self) -> Software:
        """What an update may change."""
        return SoftwareReader(self._machine).read()

    def _ray(self) -> Ray | None:
        """What the Ray in the engine's container says of itself; the head alone knows who has registered."""
        engine = next((one for one in self._containers() if one["name"] == ENGINE_CONTAINER), None)
        place = engine["labels"].get(LABEL_RAY) if engine and engine["state"] == "running" else None
        if engine is None or place is None:
            return None
        asked = [place] if engine["labels"].get(LABEL_RANK) == "0" else []
        done = self._machine.run(["docker", "exec", ENGINE_CONTAINER, "python3", LIBRARY, "ray-facts", *asked])
        silent = {"version": None, "nodes": None, "error": f"it does not say: {done.stderr.strip()[-200:]}"}
        found: Ray = json_or(done.stdout, silent)
        return found

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
