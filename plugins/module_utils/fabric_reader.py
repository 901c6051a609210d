"""Reads the network of the node it runs on: interfaces, RDMA devices, routes, and who else configures them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .facts import Fabric, GidRow, Netdev, PciLink, RdmaDevice, RdmaPort, Route
from .link_owners import is_generated, manager_of, netplan_interfaces, profile_interfaces
from .machine import Machine
from .names import NCCL_CONF_FILE, NCCL_ENV_FILE, NETPLAN_FILE
from .probes import Probes, ask

NETPLAN_FOLDERS = ("etc/netplan", "run/netplan", "usr/lib/netplan")
PROFILE_FOLDERS = tuple(f"{place}/NetworkManager/system-connections" for place in ("etc", "run", "usr/lib"))
# Profiles that netplan makes from its own files.
NETPLAN_PROFILE = "netplan-"

UNITS = ("systemd-networkd.service", "NetworkManager.service")


class FabricReader:
    """Reads one node's network through a machine."""

    def __init__(self, machine: Machine) -> None:
        """Remember where to read."""
        self._machine = machine

    def read(self, probes: Probes) -> Fabric:
        """All of it, and what the others on the wire answer to the probes."""
        machine = self._machine
        running = self._running()
        # Without `-4`, which would hide every interface that has no IPv4 address yet.
        netdevs = {link["ifname"]: self._netdev(link, running) for link in machine.json(["ip", "-j", "addr"])}
        devices = {name: self.device(name) for name in machine.names("sys/class/infiniband")}
        return {
            "netdevs": netdevs,
            "rdma": devices,
            "routes": routes_of(machine.json(["ip", "-j", "-4", "route"])),
            "netplan": self._netplan(netdevs),
            "profiles": self._profiles(netdevs),
            "own_netplan": machine.text(NETPLAN_FILE.lstrip("/")) or None,
            "nccl_env": machine.text(NCCL_ENV_FILE.lstrip("/")) or None,
            "nccl_conf": machine.text(NCCL_CONF_FILE.lstrip("/")) or None,
            **ask(machine, probes, netdevs, devices),
            "unreadable": sorted(machine.unreadable),
        }

    def _running(self) -> tuple[bool, bool]:
        """Whether networkd and NetworkManager run; their state files outlive them."""
        states = self._machine.run(["systemctl", "is-active", *UNITS]).stdout.split()
        networkd, network_manager = [state == "active" for state in states] if len(states) == 2 else (False, False)
        return networkd, network_manager

    def _netdev(self, link: dict[str, Any], running: tuple[bool, bool]) -> Netdev:
        word, name = self._machine.word, link["ifname"]
        folder = f"sys/class/net/{name}"
        speed = word(f"{folder}/speed")
        addresses = link.get("addr_info", [])
        return {
            "mtu": int(link.get("mtu", 0)),
            "speed": int(speed) if speed.isdigit() else None,
            "operstate": str(link.get("operstate", "UNKNOWN")),
            "carrier": {"1": True, "0": False}.get(word(f"{folder}/carrier")),
            "mac": str(link.get("address", "")),
            "phys_port_name": word(f"{folder}/phys_port_name") or None,
            "driver": self._machine.target(f"{folder}/device/driver") or None,
            "pci": self._pci(f"{folder}/device"),
            "addresses": [f"{a['local']}/{a['prefixlen']}" for a in addresses if a.get("family") == "inet"],
            "link_local": next((a["local"] for a in addresses if _is_link_local(a)), None),
            "rp_filter": self._rp_filter(name),
            "manager": self._manager(link.get("ifindex"), running),
        }

    def _pci(self, device: str) -> PciLink | None:
        parts = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")
        return pci_link(self._machine.target(device), *(self._machine.word(f"{device}/{part}") for part in parts))

    def _rp_filter(self, netdev: str) -> int | None:
        # The kernel takes the larger one of both (Documentation/networking/ip-sysctl.rst).
        texts = [self._machine.word(f"proc/sys/net/ipv4/conf/{who}/rp_filter") for who in ("all", netdev)]
        return max(map(int, texts)) if all(text.isdigit() for text in texts) else None

    def _manager(self, index: object, running: tuple[bool, bool]) -> str | None:
        files = (f"run/systemd/netif/links/{index}", f"run/NetworkManager/devices/{index}")
        states = [self._machine.text(file) if runs else "" for file, runs in zip(files, running, strict=True)]
        return manager_of(*states)

    def device(self, name: str) -> RdmaDevice:
        """One RDMA device with its whole GID table as it is now."""
        word, folder = self._machine.word, f"sys/class/infiniband/{name}"
        port = f"{folder}/ports/1"
        read: RdmaPort = {
            "state": _after_colon(word(f"{port}/state")),
            "phys_state": _after_colon(word(f"{port}/phys_state")),
            "rate": word(f"{port}/rate"),
            "link_layer": word(f"{port}/link_layer"),
            "gids": self._gids(port),
        }
        return {"netdev": self._netdev_of(folder, read), "firmware": word(f"{folder}/fw_ver") or None, "port": read}

    def _netdev_of(self, folder: str, port: RdmaPort) -> str | None:
        """Soft-RoCE has no device/ link; its `parent` is the network device, and so is every row of its table."""
        linked = self._machine.names(f"{folder}/device/net")
        rows = [row["netdev"] for row in port["gids"]]
        named = (*linked, self._machine.word(f"{folder}/parent"), *rows)
        return next((name for name in named if name), None)

    def _gids(self, port: str) -> list[GidRow]:
        """Every row that is not all zeros; a slot that cannot be read stays in, with an empty GID."""
        word = self._machine.word
        rows: list[GidRow] = []
        slots = {int(name): gid for name, gid in self._machine.words(f"{port}/gids").items() if name.isdigit()}
        for slot, gid in sorted(slots.items()):
            if gid and not gid.strip("0:"):
                continue
            kind, netdev = (word(f"{port}/gid_attrs/{part}/{slot}") for part in ("types", "ndevs"))
            rows.append({"index": slot, "gid": gid, "type": kind, "netdev": netdev})
        return rows

    def _netplan(self, netdevs: Mapping[str, Netdev]) -> dict[str, list[str]]:
        names = self._files(*NETPLAN_FOLDERS)
        texts = {name: text for name in names if name.endswith(".yaml") and (text := self._machine.text(name))}
        return {f"/{name}": netplan_interfaces(text, netdevs) for name, text in texts.items()}

    def _profiles(self, netdevs: Mapping[str, Netdev]) -> dict[str, list[str]]:
        names = [name for name in self._files(*PROFILE_FOLDERS) if f"/{NETPLAN_PROFILE}" not in name]
        texts = {name: text for name in names if (text := self._machine.text(name)) and not is_generated(text)}
        return {f"/{name}": profile_interfaces(text, netdevs) for name, text in texts.items()}

    def _files(self, *folders: str) -> list[str]:
        return [f"{folder}/{name}" for folder in folders for name in self._machine.names(folder)]


def routes_of(rows: list[dict[str, Any]]) -> list[Route]:
    """The routes that `ip -j route` printed; one with several next hops becomes several."""
    hops = [(row["dst"], hop) for row in rows for hop in row.get("nexthops", [row])]
    return [{"dst": dst, "dev": hop["dev"], "gateway": hop.get("gateway")} for dst, hop in hops if "dev" in hop]


def pci_link(address: str, speed: str, max_speed: str, width: str, max_width: str) -> PciLink | None:
    """A link from the texts of sysfs, such as `32.0 GT/s PCIe` and `4`; None for a device that has no such link."""
    speeds = [re.match(r"[\d.]+(?= GT/s)", text) for text in (speed, max_speed)]
    if speeds[0] is None or speeds[1] is None or not (width.isdigit() and max_width.isdigit()):
        return None
    return {
        "address": address,
        "speed": float(speeds[0].group()),
        "max_speed": float(speeds[1].group()),
        "width": int(width),
        "max_width": int(max_width),
    }


def _is_link_local(address: dict[str, Any]) -> bool:
    return address.get("family") == "inet6" and address.get("scope") == "link"


def _after_colon(text: str) -> str:
    return text.partition(":")[2].strip() or text
