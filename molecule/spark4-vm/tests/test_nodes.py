"""What the machines are after the play, and again after a reboot, asked of the machines and not of the play."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
RAILS = (("enp1s0f0np0", "rocep1s0f0", "192.168.100"), ("enP2p1s0f0np0", "roceP2p1s0f0", "192.168.101"))
MASKED = ("cups.service", "cups.socket", "avahi-daemon.service", "ModemManager.service", "udisks2.service")
KEPT = ("ssh.service", "docker.service", "systemd-networkd.service", "dbus.service")


def rank_of(host) -> int:
    return int(host.check_output("hostname").removeprefix("spark")) - 1


def test_the_machine_is_up_without_a_failed_unit(host):
    assert host.check_output("systemctl is-system-running --wait") == "running"


@pytest.mark.parametrize(("netdev", "device", "subnet"), RAILS)
def test_each_rail_has_its_address_its_mtu_and_a_gid_in_the_kernel(host, netdev, device, subnet):
    own = f"{subnet}.{10 + rank_of(host)}"
    (link,) = json.loads(host.check_output("ip -json -4 address show dev %s", netdev))
    assert [address["local"] for address in link["addr_info"]] == [own]
    assert link["mtu"] == 9000

    hexed = bytes(int(part) for part in own.split(".")).hex()
    port = f"/sys/class/infiniband/{device}/ports/1"
    # Free slots cannot be read, and grep says so.
    found = host.run(f"cat {port}/state; grep -l ffff:{hexed[:4]}:{hexed[4:]} {port}/gids/* 2>/dev/null").stdout
    state, *rows = found.splitlines()
    assert state == "4: ACTIVE"
    assert len(rows) == 1
    assert host.file(rows[0].replace("/gids/", "/gid_attrs/types/")).content_string.strip() == "RoCE v2"


@pytest.mark.parametrize(("netdev", "device", "subnet"), RAILS)
def test_full_frames_reach_every_peer_on_each_rail(host, netdev, device, subnet):
    peers = [f"{subnet}.{10 + rank}" for rank in range(4) if rank != rank_of(host)]
    ping = f"ping -q -c 2 -W 3 -M do -s 8972 -I {netdev}"
    host.run_expect([0], f"for peer in {' '.join(peers)}; do {ping} $peer || exit 1; done")


def test_the_nccl_environment_names_the_devices_of_the_kernel(host):
    lines = host.file("/etc/sparkwright/nccl.env").content_string.splitlines()
    assert "NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0" in lines
    assert not [line for line in lines if line.startswith("NCCL_IB_GID_INDEX")]


def test_the_desktop_is_off_and_what_the_node_lives_on_is_not(host):
    states = host.run(f"systemctl is-enabled {' '.join(MASKED)}").stdout.split()
    assert states == ["masked"] * len(MASKED)
    assert host.check_output(f"systemctl is-active {' '.join(KEPT)}").split() == ["active"] * len(KEPT)
    assert host.run("pgrep --exact 'cupsd|avahi-daemon|ModemManager|colord|udisksd'").rc == 1
    assert host.check_output("systemctl get-default") == "multi-user.target"


def test_no_session_that_begins_from_now_on_starts_audio(host):
    names = "pipewire.socket pipewire.service wireplumber.service filter-chain.service"
    assert host.run(f"systemctl --global is-enabled {names}").stdout.split() == ["masked"] * 4


def test_docker_runs_with_the_configuration(host):
    config = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert config["log-opts"] == {"max-size": "100m", "max-file": "3"}
    assert host.check_output("docker info --format '{{.LoggingDriver}}'") == "json-file"


def test_the_checkpoint_is_there_byte_for_byte(host):
    source = REPO / "lab" / ".state" / "vm" / "model"
    wanted = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in source.iterdir()}
    listing = host.check_output("cd /var/lib/sparkwright/models/zeros && sha256sum *")
    assert {line.split()[1]: line.split()[0] for line in listing.splitlines()} == wanted
