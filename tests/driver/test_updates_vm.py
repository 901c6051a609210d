"""What updates do to virtual machines, with kernels, boot loaders and GID tables of their own.

The tests build on each other: the cluster serves, then everything is broken at once as updates break it, then it is
whole again; at last two boots.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from driver import REPO, inventory_with, module, play

REPROVISION, DOCTOR = "playbooks/reprovision.yml", "playbooks/doctor.yml"
NODES = ("spark1", "spark2", "spark3", "spark4")
OTHER_FILE = "/etc/netplan/90-other.yaml"
OTHER = "network: {version: 2, ethernets: {enp1s0f0np0: {addresses: [10.9.9.9/24]}}}"
ARGUMENT = "sparkwright.lab=1"
# Stands in for a kernel with KHO: more of CMA is free than there is.
MEMINFO = "/opt/sparkwright-lab/hardware/proc/meminfo"
NEWER = "9.9.9-1-lab"
GNOME = '[{"name": "gnome-shell", "version": "46.0"}]'


def lever(node: str, *words: str) -> None:
    subprocess.run([REPO / "lab/vm/lever", node, *words], check=True, timeout=1200)


def note(on_node, node):
    return json.loads(on_node(node, "cat /var/lib/sparkwright/provisioned.json"))["items"]


def engine_started(on_node, node):
    return on_node(node, "systemctl show sparkwright-engine -P ExecMainStartTimestampMonotonic")


@pytest.fixture(scope="module")
def broken(on_node):
    """All at once, and what doctor says about it."""
    on_node("spark1", "systemctl unmask avahi-daemon.service avahi-daemon.socket")
    script = "/opt/updates/repository /opt/updates/desktop && dpkg --install /opt/updates/desktop/gnome-shell_*.deb"
    encoded = subprocess.run(["base64"], input=GNOME, capture_output=True, text=True, check=True).stdout.strip()
    on_node("spark1", f"echo {encoded} | base64 --decode | {script}")
    lever("spark2", "mtu", "rail0", "1500")
    on_node("spark3", f"umask 077; echo '{OTHER}' > {OTHER_FILE}")
    lever("spark4", "gids", "rail0", "shift")
    return play(DOCTOR)


@pytest.mark.parametrize("node", NODES)
def test_every_node_noted_its_kernel_its_rails_and_its_gids(on_node, node):
    items = note(on_node, node)
    assert items["kernel"] == on_node(node, "uname -r")
    assert items["gid rail0"].startswith("rocep1s0f0 ")
    assert items["unit avahi-daemon.service"] == "masked"


@pytest.mark.parametrize(
    "line",
    [
        "[drift.ours unit] spark1: unit avahi-daemon.service is gone, it was masked",
        "[drift.ours package] spark1: package gnome-shell is new (46.0) since it last served",
        "[drift.ours link] spark2: link rail0 is enp1s0f0np0 MTU 1500 192.168.100.11/24",
        f"[drift.decide netplan] spark3: netplan {OTHER_FILE} is new (enp1s0f0np0) since it last served",
        "[drift.harmless gid] spark4: gid rail0 is rocep1s0f0 3, it was rocep1s0f0 1 since it last served",
    ],
)
def test_each_is_found_by_name(broken, line):
    assert line in broken.output
    assert broken.changed == []


@pytest.mark.usefixtures("broken")
def test_a_file_that_is_not_ours_stops_it_before_anything_is_changed(on_node):
    before = {node: engine_started(on_node, node) for node in NODES}
    run = play(REPROVISION)
    assert run.code != 0
    assert run.changed == []
    assert any(line.startswith(f"spark3: netplan {OTHER_FILE} is new") for line in run.failures), run.output
    assert {node: engine_started(on_node, node) for node in NODES} == before


@pytest.mark.usefixtures("broken")
def test_without_it_what_is_ours_is_put_back_and_it_serves_again(on_node):
    on_node("spark3", f"rm {OTHER_FILE}")
    run = play(REPROVISION)
    assert run.code == 0, run.output
    # An MTU is put back by netplan, which nothing serves through.
    assert "spark1: Stop the engine and wait until it is gone" in run.changed
    assert "spark2: Apply netplan" in run.changed
    assert on_node("spark2", "cat /sys/class/net/enp1s0f0np0/mtu") == "9000"
    assert on_node("spark1", "systemctl is-enabled avahi-daemon.service || true") == "masked"
    assert note(on_node, "spark1")["package gnome-shell"] == "46.0"
    again = play(REPROVISION)
    assert again.code == 0, again.output
    assert again.changed == []


def test_memory_that_a_kernel_took_is_refused_before_anything_is_changed(on_node):
    cma = "CmaTotal: 131072 kB\\nCmaFree: 9800000 kB\\n"
    fake = f"grep -v ^Cma /proc/meminfo; printf '{cma}'"
    on_node("spark2", f"mkdir -p $(dirname {MEMINFO})")
    on_node("spark2", f"({fake}) > /var/tmp/meminfo && cp /var/tmp/meminfo {MEMINFO}")
    run = play(REPROVISION)
    on_node("spark2", f"rm {MEMINFO}")
    assert run.code != 0
    assert run.changed == []
    assert any(line.startswith("spark2: memory CMA is 131072 kB, more free than there is") for line in run.failures)


def test_a_kernel_argument_is_written_booted_and_served_with(on_node, tmp_path):
    wanted = {"spark2": {"host_tuning_kernel_arguments": [ARGUMENT], "os_update_reboot": "always"}}
    boots = {node: on_node(node, "cat /proc/sys/kernel/random/boot_id") for node in NODES}
    run = play(REPROVISION, inventory_with(tmp_path, wanted))
    assert run.code == 0, run.output
    assert ARGUMENT in on_node("spark2", "cat /proc/cmdline").split()
    rebooted = [node for node in NODES if on_node(node, "cat /proc/sys/kernel/random/boot_id") != boots[node]]
    assert rebooted == ["spark2"]
    assert ARGUMENT in note(on_node, "spark2")["kernel arguments"]
    assert on_node("spark2", "systemctl is-enabled sparkwright-engine") == "enabled"


def test_the_kernel_with_which_it_served_is_booted_once(on_node):
    """A copy of the kernel under a newer name is what the next boot would start."""
    served = note(on_node, "spark4")["kernel"]
    on_node(
        "spark4",
        f"cp /boot/vmlinuz-{served} /boot/vmlinuz-{NEWER}; cp /boot/initrd.img-{served} /boot/initrd.img-{NEWER}",
    )
    on_node("spark4", "update-grub")
    assert f"the next boot starts kernel {NEWER}, now it runs {served}" in play(DOCTOR).output
    run = module("spark4", "sparkwright.cluster.boot_once")
    assert f"the next boot starts kernel {served}, once" in run.output
    lever("spark4", "reboot")
    assert f"BOOT_IMAGE=/boot/vmlinuz-{served}" in on_node("spark4", "cat /proc/cmdline")
    assert "next_entry=gnulinux" not in on_node("spark4", "grub-editenv list")
    on_node("spark4", f"rm /boot/vmlinuz-{NEWER} /boot/initrd.img-{NEWER}; update-grub")
