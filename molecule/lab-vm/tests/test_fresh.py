"""What a fresh virtual machine is, before any role has touched it."""

from __future__ import annotations

import json
import time

PORTS = {
    "rocep1s0f0": "enp1s0f0np0",
    "roceP2p1s0f0": "enP2p1s0f0np0",
    "rocep1s0f1": "enp1s0f1np1",
    "roceP2p1s0f1": "enP2p1s0f1np1",
}


def test_every_service_started(host):
    assert host.check_output("systemctl is-system-running --wait") == "running"


def test_the_ports_have_the_names_and_the_state_of_a_new_spark(host):
    links = {link["ifname"]: link for link in json.loads(host.check_output("ip -json address"))}
    for netdev in PORTS.values():
        assert links[netdev]["operstate"] == "DOWN"
        assert links[netdev]["addr_info"] == []
    rank = int(host.check_output("hostname").removeprefix("spark")) - 1
    assert f"10.78.0.{11 + rank}" in [address["local"] for address in links["mgmt0"]["addr_info"]]
    assert links["enp1s0f0np0"]["address"] == f"4e:bb:48:04:00:0{rank}"


def test_every_port_has_its_rdma_device(host):
    links = {link["ifname"]: link for link in json.loads(host.check_output("rdma --json link"))}
    assert {name: link["netdev"] for name, link in links.items()} == PORTS


def test_the_clock_is_right(host):
    assert abs(int(host.check_output("date +%s")) - time.time()) < 10


def test_the_kernel_was_started_by_the_boot_loader_of_the_disk(host):
    assert "BOOT_IMAGE=/vmlinuz" in host.file("/proc/cmdline").content_string
    host.run_expect([0], "update-grub")
