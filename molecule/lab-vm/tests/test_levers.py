"""Every lever of the lab, between spark1 and spark2: what it breaks is broken, and whole again when it is undone.

The tests build on each other's last state: both rails of both machines are configured.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
CONFIG = REPO / "lab" / ".state" / "vm" / "ssh_config"
OWN, PEER = "192.168.100.10", "192.168.100.11"
GIDS = "/sys/class/infiniband/rocep1s0f0/ports/1"


def lever(node: str, *words: str) -> None:
    subprocess.run([REPO / "lab/vm/lever", node, *words], check=True, timeout=1200)


def run(node: str, command: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(CONFIG), node, f"sudo {command}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def output(node: str, command: str) -> str:
    done = run(node, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def full_frames_pass(source: str = "spark1", target: str = PEER) -> bool:
    """Whether an unfragmented frame of 9000 bytes gets an answer on the first rail."""
    return run(source, f"ping -c 3 -i 0.5 -W 3 -M do -s 8972 -I enp1s0f0np0 {target}").returncode == 0


def gid_index(node: str, address: str) -> int | None:
    """The place of an IPv4 address in the GID table of the first rail."""
    hexed = bytes(int(part) for part in address.split(".")).hex()
    listing = run(node, f"grep --no-messages --with-filename ffff:{hexed[:4]}:{hexed[4:]} -r {GIDS}/gids").stdout
    return int(listing.split(":")[0].rsplit("/", 1)[1]) if listing else None


@pytest.fixture(scope="module", autouse=True)
def _configured_rails() -> None:
    for rank, node in enumerate(("spark1", "spark2")):
        for number in range(2):
            lever(node, "mtu", f"rail{number}", "9000")
            lever(node, "address", f"rail{number}", f"192.168.{100 + number}.{10 + rank}/24")


def test_full_frames_pass_between_the_machines():
    assert full_frames_pass()


def test_verbs_work_across_each_rail():
    for number, device in enumerate(("rocep1s0f0", "roceP2p1s0f0")):
        server = f"ibv_rc_pingpong -d {device} -g 1 -n 50"
        argv = ["ssh", "-F", str(CONFIG), "spark2", f"sudo timeout 60 {server}"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as waiting:
            time.sleep(5)
            assert "50 iters in" in output("spark1", f"timeout 50 {server} 192.168.{100 + number}.11")
            assert waiting.wait(60) == 0


def test_a_connection_is_made_over_each_rail():
    """Not as before, where both ends know each other: NFS asks for its connection by a datagram of its own."""
    for number in range(2):
        argv = ["ssh", "-F", str(CONFIG), "spark2", f"sudo timeout 60 rping -s -C 3 -a 192.168.{100 + number}.11"]
        with subprocess.Popen(argv) as waiting:
            time.sleep(5)
            output("spark1", f"timeout 50 rping -c -C 3 -a 192.168.{100 + number}.11")
            assert waiting.wait(60) == 0


def test_unplug_takes_the_carrier_and_the_port_and_plug_brings_them_back():
    lever("spark2", "unplug", "rail0")
    assert output("spark2", "cat /sys/class/net/enp1s0f0np0/carrier") == "0"
    assert output("spark2", f"cat {GIDS}/state") == "1: DOWN"
    assert not full_frames_pass()

    lever("spark2", "plug", "rail0")
    assert output("spark2", "cat /sys/class/net/enp1s0f0np0/carrier") == "1"
    assert output("spark2", f"cat {GIDS}/state") == "4: ACTIVE"
    assert full_frames_pass()


def test_a_smaller_mtu_loses_full_frames():
    # Those that it sends: unlike a real card, a virtual one takes larger frames than its own MTU.
    lever("spark2", "mtu", "rail0", "1500")
    assert not full_frames_pass("spark2", OWN)

    lever("spark2", "mtu", "rail0", "9000")
    assert full_frames_pass("spark2", OWN)


def test_another_address_replaces_the_old_one_and_its_gid():
    lever("spark2", "address", "rail0", "192.168.100.99/24")
    assert gid_index("spark2", PEER) is None
    assert gid_index("spark2", "192.168.100.99") == 1
    assert not full_frames_pass()

    lever("spark2", "address", "rail0", f"{PEER}/24")
    assert gid_index("spark2", PEER) == 1
    assert full_frames_pass()


def test_a_shifted_gid_has_the_same_address_at_another_index():
    lever("spark2", "gids", "rail0", "shift")
    assert gid_index("spark2", PEER) == 3
    assert output("spark2", "ip -4 -brief address show dev enp1s0f0np0").split()[2:] == [f"{PEER}/24"]
    assert full_frames_pass()

    lever("spark2", "gids", "rail0", "settle")
    assert gid_index("spark2", PEER) == 1


def test_a_skewed_clock_is_set_right_again():
    lever("spark2", "clock", "-7200")
    assert 7100 < time.time() - int(output("spark2", "date +%s")) < 7300

    lever("spark2", "clock", "right")
    assert abs(time.time() - int(output("spark2", "date +%s"))) < 10


def test_a_reboot_is_real_and_brings_the_names_and_devices_back():
    before = output("spark2", "cat /proc/sys/kernel/random/boot_id")

    lever("spark2", "reboot")

    assert output("spark2", "cat /proc/sys/kernel/random/boot_id") != before
    devices = "rocep1s0f0 roceP2p1s0f0 rocep1s0f1 roceP2p1s0f1"
    assert sorted(output("spark2", "ls /sys/class/infiniband").split()) == sorted(devices.split())
    # What nobody wrote to a file is gone.
    assert output("spark2", "ip -4 -brief address show dev enp1s0f0np0").split()[2:] == []


def test_a_power_cut_loses_what_was_not_written_and_keeps_what_was():
    output("spark2", "sh -c 'echo kept > /var/tmp/written && sync /var/tmp/written && echo > /dev/shm/lost'")

    lever("spark2", "off")
    assert run("spark2", "true").returncode != 0
    lever("spark2", "on")

    assert output("spark2", "cat /var/tmp/written") == "kept"
    assert run("spark2", "test -e /dev/shm/lost").returncode != 0
