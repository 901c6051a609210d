"""Machines as trees of files and answers of commands, in the exact shapes of a Spark's kernel."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from builders import gid_of

from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine

V1, V2 = "IB/RoCE v1", "RoCE v2"
LOCAL_GID = "fe80:0000:0000:0000:4ebb:47ff:fe2c:100a"


def runner(answers):
    """A `run` that knows some commands by their beginning; any other one is not installed."""

    def run(argv):
        line = " ".join(argv)
        for start, answer in answers.items():
            if line.startswith(start):
                code, out, err = answer if isinstance(answer, tuple) else (0, answer, "")
                return subprocess.CompletedProcess(argv, code, out, err)
        return subprocess.CompletedProcess(argv, 127, "", f"{argv[0]} is not installed")

    return run


def machine(root, answers=None, hardware="/nowhere"):
    return Machine(str(hardware), str(root), runner(answers or {}))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


@dataclass(frozen=True)
class Port:
    """One function of a ConnectX-7: a PCIe device with a network and a RDMA device on it."""

    netdev: str
    device: str
    pci: str
    cage: str
    address: str = ""
    up: bool = True
    lanes: int = 4

    @property
    def gids(self) -> dict[int, tuple[str, str]]:
        """The table of a port that is up has its address behind the link-local pair, that of another one has not."""
        rows = {0: (LOCAL_GID, V1), 1: (LOCAL_GID, V2)}
        own = {2: (gid_of(self.address), V1), 3: (gid_of(self.address), V2)} if self.address and self.up else {}
        return rows | own

    @property
    def link(self) -> dict:
        """What `ip -j addr` prints about it."""
        found = [{"family": "inet", "local": self.address, "prefixlen": 24, "scope": "global"}] if self.address else []
        local = [{"family": "inet6", "local": "fe80::4ebb:47ff:fe2c:100a", "prefixlen": 64, "scope": "link"}]
        return {
            "ifindex": 3,
            "ifname": self.netdev,
            "mtu": 9000,
            "operstate": "UP" if self.up else "DOWN",
            "address": "4c:bb:47:2c:10:0a",
            "addr_info": found + (local if self.up else []),
        }


CAGE0 = (
    Port("enp1s0f0np0", "rocep1s0f0", "0000:01:00.0", "p0", "192.168.100.10"),
    Port("enP2p1s0f0np0", "roceP2p1s0f0", "0002:01:00.0", "p0", "192.168.101.10"),
)
CAGE1 = (
    Port("enp1s0f1np1", "rocep1s0f1", "0000:01:00.1", "p1", "192.168.102.10"),
    Port("enP2p1s0f1np1", "roceP2p1s0f1", "0002:01:00.1", "p1", "192.168.103.10"),
)


def plug(root: Path, *ports: Port) -> Path:
    """Write the ports below /sys as the kernel shows them."""
    for port in ports:
        function = f"sys/devices/pci{port.pci[:4]}:00/{port.pci[:4]}:00:00.0/{port.pci}"
        gbits = "32.0 GT/s PCIe\n"
        speeds = {"current_link_speed": gbits, "max_link_speed": gbits}
        widths = {"current_link_width": f"{port.lanes}\n", "max_link_width": "4\n"}
        write(root / function, speeds | widths | {f"net/{port.netdev}/ifindex": "3\n"})
        link(root / function / "driver", root / "sys/bus/pci/drivers/mlx5_core")
        network = {"phys_port_name": f"{port.cage}\n", "carrier": f"{int(port.up)}\n"}
        write(root / "sys/class/net" / port.netdev, network | {"speed": "200000\n" if port.up else "-1\n"})
        link(root / "sys/class/net" / port.netdev / "device", root / function)
        write(root / "sys/class/infiniband" / port.device, {"fw_ver": "28.45.4028\n", **port_files(port)})
        link(root / "sys/class/infiniband" / port.device / "device", root / function)
    return root


def port_files(port: Port) -> dict[str, str]:
    """The files of ports/1; an empty slot reads as zeros and has neither a type nor a netdev."""
    up = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)"}
    down = {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "40 Gb/sec (4X QDR)"}
    values = (up if port.up else down) | {"link_layer": "Ethernet"}
    zero = ":".join(["0000"] * 8)
    values |= {f"gids/{slot}": port.gids.get(slot, (zero, ""))[0] for slot in range(16)}
    values |= {f"gid_attrs/types/{slot}": kind for slot, (_, kind) in port.gids.items()}
    values |= {f"gid_attrs/ndevs/{slot}": port.netdev for slot in port.gids}
    return {f"ports/1/{name}": f"{value}\n" for name, value in values.items()}


def addresses(*links: dict) -> dict[str, str]:
    """The answer of `ip -j addr`, with the empty row that a filter leaves."""
    return {"ip -j addr": json.dumps([*links, {}])}
