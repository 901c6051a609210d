"""Keep the stand-in of /sys/class/infiniband in step with the real links of this lab node.

On a ConnectX the GID table of an RDMA port follows the addresses of its netdev. The kernel of a lab node has no RDMA,
so this service does the same to a tree of plain files: the table starts with the link-local GID that the card makes
from its MAC address (RoCE v1 at index 0, v2 at 1), each address adds such a pair at the first free place, and a removed
address leaves a hole. Rows that are empty read as the zero GID and have no type and no netdev.
"""

from __future__ import annotations

import json
import subprocess
import sys
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

# Netdev behind each RDMA device; twins share a cage and differ in the PCI domain.
NETDEVS = {
    "rocep1s0f0": "enp1s0f0np0",
    "roceP2p1s0f0": "enP2p1s0f0np0",
    "rocep1s0f1": "enp1s0f1np1",
    "roceP2p1s0f1": "enP2p1s0f1np1",
}
TYPES = ("IB/RoCE v1", "RoCE v2")
PAIRS = 8
"""Places for addresses in a table. A real card has more, all of them empty."""


def gid(address: str) -> str:
    """The address as sysfs prints a GID: eight groups of four hex digits, an IPv4 address mapped into IPv6."""
    mapped = f"::ffff:{IPv4Address(address)}" if "." in address else address
    return IPv6Address(mapped).exploded


def link_local(mac: str) -> str:
    """The EUI-64 link-local address of a MAC address."""
    octets = bytes.fromhex(mac.replace(":", ""))
    interface = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return str(IPv6Address(bytes.fromhex("fe80000000000000") + interface))


def place(table: list[str | None], wanted: list[str]) -> list[str | None]:
    """The table with every wanted GID in it: known ones stay where they are, new ones take the first free place."""
    kept = [row if row in wanted else None for row in table]
    for row in wanted:
        if row not in kept:
            kept[kept.index(None)] = row
    return kept


def write(path: Path, text: str) -> None:
    """Replace a file in one step, so that no reader sees half of it, nor a file that the kernel would not show."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent.with_name(f".{path.name}")
    partial.write_text(text + "\n")
    partial.replace(path)


def write_rows(port: Path, netdev: str, table: list[str | None]) -> None:
    """Write the GID table of one port, two rows (RoCE v1 and v2) for each place."""
    for index in range(2 * len(table)):
        row = table[index // 2]
        write(port / "gids" / str(index), row or IPv6Address(0).exploded)
        kind, owner = port / "gid_attrs/types" / str(index), port / "gid_attrs/ndevs" / str(index)
        if row is None:
            kind.unlink(missing_ok=True)
            owner.unlink(missing_ok=True)
        else:
            write(kind, TYPES[index % 2])
            write(owner, netdev)


def write_port(root: Path, device: str, up: bool, table: list[str | None]) -> None:
    """Write everything that changes when a link goes up or down or gets another address."""
    netdev = NETDEVS[device]
    port = root / "sys/class/infiniband" / device / "ports/1"
    write(port / "state", "4: ACTIVE" if up else "1: DOWN")
    write(port / "phys_state", "5: LinkUp" if up else "3: Disabled")
    write(port / "rate", "200 Gb/sec (4X HDR)" if up else "40 Gb/sec (4X QDR)")
    write(root / "sys/class/net" / netdev / "speed", "200000" if up else "-1")
    write_rows(port, netdev, table)


def refresh(root: Path, tables: dict[str, list[str | None]]) -> None:
    """Read all links of this host once and write the ports whose netdev exists."""
    output = subprocess.run(["ip", "-json", "address"], check=True, capture_output=True, text=True).stdout
    links = {link["ifname"]: link for link in json.loads(output)}
    for device, netdev in NETDEVS.items():
        link = links.get(netdev)
        if link is None:
            continue
        addresses = [link_local(link["address"]), *(entry["local"] for entry in link["addr_info"])]
        tables[device] = place(tables[device], [gid(address) for address in addresses])
        write_port(root, device, "LOWER_UP" in link["flags"], tables[device])


def main() -> None:
    """Write the ports now and after every change of a link or an address."""
    root = Path(sys.argv[1])
    tables: dict[str, list[str | None]] = {device: [None] * PAIRS for device in NETDEVS}
    with subprocess.Popen(["ip", "-oneline", "monitor", "link", "address"], stdout=subprocess.PIPE) as monitor:
        refresh(root, tables)
        assert monitor.stdout is not None
        for _ in monitor.stdout:
            refresh(root, tables)
    sys.exit("ip monitor ended")


if __name__ == "__main__":
    main()
