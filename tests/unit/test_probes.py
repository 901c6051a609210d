"""Questions to the other machines on the wire: stand-ins for ping, real frames where the tests may send some."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest
from builders import DEVICE0, DEVICE1, NETDEV0, NETDEV1, REPO, netdev
from trees import machine

from ansible_collections.sparkwright.cluster.plugins.module_utils import machine as machine_module
from ansible_collections.sparkwright.cluster.plugins.module_utils import probes
from ansible_collections.sparkwright.cluster.plugins.module_utils.arp import probe
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.probes import (
    ARP_COUNT,
    ARP_GAP,
    Probes,
    ask,
    claims,
    exchange,
    heard,
    neighbours,
    ping_all,
)

MAC0, MAC1, OTHER = "4c:bb:47:2c:10:0a", "4c:bb:47:2c:10:0e", "4c:bb:47:2c:20:0a"
LOCAL0, LOCAL1 = "fe80::4ebb:47ff:fe2c:100a", "fe80::4ebb:47ff:fe2c:100e"
LINKS = {
    NETDEV0: netdev("192.168.100.10/24", mac=MAC0, link_local=LOCAL0),
    NETDEV1: netdev("192.168.101.10/24", mac=MAC1, link_local=LOCAL1),
    "enp1s0f1np1": netdev(carrier=False, link_local=None),
}
WIRES = [NETDEV0, NETDEV1, "enp1s0f1np1", "gone0"]
DEVICES = {DEVICE0: {"netdev": NETDEV0}, DEVICE1: {"netdev": NETDEV1}, "rxe0": {"netdev": None}, "old": {"netdev": "x"}}


@pytest.fixture
def ping(tmp_path, monkeypatch):
    """Puts a stand-in for ping, a shell script, where commands are looked for first."""

    def install(script):
        path = tmp_path / "ping"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path

    return install


# --- pings ----------------------------------------------------------------------------------------------------------


def test_pings_are_sent_at_once_and_each_has_its_answer(ping):
    """The stand-in answers for one address, and takes long enough to show that none waits for another."""
    folder = ping('sleep 0.4; printf "%s\\n" "$*" >> "$0.log"; test "${!#}" = 192.168.100.11')
    peers = [f"192.168.100.{number}" for number in range(11, 17)]
    started = time.monotonic()
    found = ping_all(Machine(), [{"address": "192.168.100.10", "peer": peer, "size": 8972} for peer in peers], LINKS)
    assert time.monotonic() - started < len(peers) * 0.4
    assert found == {f"192.168.100.10 {peer}": peer == peers[0] for peer in peers}
    sent = (folder / "ping.log").read_text().splitlines()
    assert f"-n -q -M do -s 8972 -c 3 -i 0.2 -W 1 -I {NETDEV0} {peers[0]}" in sent


def test_a_ping_from_an_address_that_no_interface_has_is_not_answered(ping):
    folder = ping('touch "$0.log"')
    asked = [{"address": "192.168.102.10", "peer": "192.168.102.11", "size": 8972}]
    assert ping_all(Machine(), asked, LINKS) == {"192.168.102.10 192.168.102.11": False}
    assert not (folder / "ping.log").exists()


def test_without_a_ping_command_nobody_answers(tmp_path):
    asked = [{"address": "192.168.100.10", "peer": "192.168.100.11", "size": 8972}]
    assert ping_all(machine(tmp_path), asked, LINKS) == {"192.168.100.10 192.168.100.11": False}


# --- neighbours -----------------------------------------------------------------------------------------------------

# What ping prints: the node itself answers first, then two others, one of them after a duplicate.
ANSWERS = f"""\
PING ff02::1(ff02::1) from {LOCAL0}%{NETDEV0} {NETDEV0}: 56 data bytes
64 bytes from {LOCAL0}%{NETDEV0}: icmp_seq=1 ttl=64 time=0.124 ms
64 bytes from fe80::4ebb:47ff:fe2c:200a%{NETDEV0}: icmp_seq=1 ttl=64 time=0.185 ms (DUP!)
64 bytes from {LOCAL1}%{NETDEV0}: icmp_seq=1 ttl=64 time=0.188 ms
64 bytes from {LOCAL0}%{NETDEV0}: icmp_seq=2 ttl=64 time=0.050 ms
64 bytes from fe80::4ebb:47ff:fe2c:200a%{NETDEV0}: icmp_seq=2 ttl=64 time=0.067 ms
64 bytes from fe80::4ebb:47ff:fe2c:0f0a%{NETDEV0}: icmp_seq=2 ttl=64 time=0.069 ms
"""


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (ANSWERS, {NETDEV0: ["fe80::4ebb:47ff:fe2c:0f0a", "fe80::4ebb:47ff:fe2c:200a"]}),
        ((1, "3 packets transmitted, 0 received, 100% packet loss", ""), {NETDEV0: []}),
        ((2, "", f"ping: {NETDEV0}: Network is unreachable"), {}),
        ((127, "", "ping is not installed"), {}),
        ((124, "", "ping did not answer within 20 s"), {}),
    ],
    ids=["two others", "nobody", "no IPv6", "no ping", "a ping that hangs"],
)
def test_the_others_on_a_wire(tmp_path, answer, found):
    asked = machine(tmp_path, {f"ping -6 -n -c 3 -i 0.3 -W 1 -I {NETDEV0} ff02::1": answer})
    assert neighbours(asked, [NETDEV0], LINKS) == found


# --- claims ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "senders", "found"),
    [
        ((None, "192.168.100.10"), [], {f"{NETDEV0} 192.168.100.10": []}),
        ((None, "192.168.100.10"), [(OTHER, "192.168.100.10")] * 3, {f"{NETDEV0} 192.168.100.10": [OTHER]}),
        ((None, "192.168.100.10"), [(OTHER, "192.168.100.99")], {f"{NETDEV0} 192.168.100.10": []}),
        ((None, "192.168.100.10"), [(MAC1, "192.168.100.10")], {f"{NETDEV0} 192.168.100.10": []}),
        ((NETDEV1, "192.168.100.10"), [], {f"{NETDEV0} 192.168.100.10": []}),
        ((NETDEV1, "192.168.101.99"), [(OTHER, "192.168.101.99")], {f"{NETDEV1} 192.168.101.99": [OTHER]}),
        (
            (None, "192.168.101.99"),
            [(OTHER, "192.168.101.99")],
            {f"{NETDEV0} 192.168.101.99": [OTHER], f"{NETDEV1} 192.168.101.99": [OTHER]},
        ),
        (("enp1s0f1np1", "192.168.102.10"), [], {}),
        (("gone0", "192.168.102.10"), [], {}),
        ((None, "192.168.100.10"), None, {}),
    ],
    ids=[
        "nobody",
        "another one",
        "someone else's address",
        "the own twin on the same switch",
        "the owner counts, not the name",
        "nobody has it here, asked by name",
        "nobody has it here, and it may be any",
        "an interface without a carrier",
        "an interface that is not there",
        "frames may not be sent",
    ],
)
def test_who_claims_an_address(monkeypatch, asked, senders, found):
    monkeypatch.setattr(probes, "heard", lambda netdev, frame: senders)
    name, address = asked
    assert claims([{"netdev": name, "address": address}], WIRES, LINKS) == found


def test_a_probe_ends_in_time_on_a_silent_and_on_a_noisy_wire():
    for noise in (b"", b"x"):
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for _ in range(5 if noise else 0):
            other.send(noise)
        started = time.monotonic()
        assert list(exchange(own, b"who has it?")) == [noise] * (5 if noise else 0)
        assert ARP_COUNT * ARP_GAP <= time.monotonic() - started < 2 * ARP_COUNT * ARP_GAP
        assert [other.recv(99) for _ in range(ARP_COUNT)] == [b"who has it?"] * ARP_COUNT
        own.close()
        other.close()


def test_who_may_not_send_frames_hears_nothing(ordinary_user):
    with ordinary_user:
        assert heard("lo", probe(MAC0, "192.168.100.10")) is None


def test_an_interface_that_is_not_there_hears_nothing():
    assert heard("no-such-link", probe(MAC0, "192.168.100.10")) is None


def test_a_real_kernel_answers_a_real_probe():
    """A pair of links in a network namespace of their own; the kernel answers for an address of its other end."""
    setup = (
        "ip link add left type veth peer name right && ip link set left up && ip link set right address"
        f" {OTHER} up && ip addr add 192.168.100.11/24 dev right"
    )
    module = "ansible_collections.sparkwright.cluster.plugins.module_utils"
    script = (
        f"from {module} import arp, probes; "
        f"print(probes.heard('left', arp.probe('{MAC0}', '192.168.100.11')), "
        f"probes.heard('left', arp.probe('{MAC0}', '192.168.100.12')))"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", f'{setup} && exec {sys.executable} -c "$0"', script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPO / "collections")},
    )
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"this machine makes no network namespace: {done.stderr.strip()}")
    assert done.stdout == f"{[(OTHER, '192.168.100.11')] * ARP_COUNT} []\n", done.stderr


# --- all of it ------------------------------------------------------------------------------------------------------


def test_everything_is_asked_at_once_on_interfaces_with_a_rdma_device(ping, monkeypatch):
    monkeypatch.setattr(machine_module, "COMMAND_SECONDS", 5)
    monkeypatch.setattr(probes, "heard", lambda netdev, frame: time.sleep(0.5) or [])
    ping("sleep 0.5; exit 1")
    asked = Probes(
        [{"address": "192.168.100.10", "peer": "192.168.100.11", "size": 8972}],
        neighbours=True,
        arp=[{"netdev": None, "address": address} for address in ("192.168.100.10", "192.168.101.10")],
    )
    started = time.monotonic()
    assert ask(Machine(), asked, LINKS, DEVICES) == {
        "pings": {"192.168.100.10 192.168.100.11": False},
        "neighbours": {NETDEV0: [], NETDEV1: []},
        "macs": {f"{NETDEV0} 192.168.100.10": [], f"{NETDEV1} 192.168.101.10": []},
    }
    assert time.monotonic() - started < 1.5


def test_nothing_is_asked_unless_told_to(ping):
    folder = ping('touch "$0.log"')
    assert ask(Machine(), Probes(), LINKS, DEVICES) == {"pings": {}, "neighbours": {}, "macs": {}}
    assert not (folder / "ping.log").exists()
