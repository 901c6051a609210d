"""Tuned virtual machines: their kernels have settings, swap, control groups and boots of their own.

The tests build on each other: what the first run set, then swap on one node, a reboot of it, and at last the restore.
"""

from __future__ import annotations

import subprocess
import time

import pytest
from driver import REPO, play

CONVERGE, RESTORE = "molecule/tuning/converge.yml", "playbooks/restore.yml"
NODES = ("spark1", "spark2", "spark3", "spark4")
SWAP, SWAP_UNIT = "/swap.lab", "swap.lab.swap"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
ARGUMENT = "sparkwright.lab=1"
# The machines have 1.2 GiB in all, so the usual margin of 2 GiB is never there.
SMALL_MARGIN = {"host_tuning_swap_margin_gib": 0.05}
OFF = SMALL_MARGIN | {"host_tuning_swap": "off"}
REBOOTED = OFF | {"host_tuning_kernel_arguments": [ARGUMENT]}
# 150 MiB of which a control group lets 48 stay in memory; then the limit goes, and the rest stays in swap.
SWAPPER = "import time; kept = bytes([120]) * (150 << 20); time.sleep(36000)"


def in_swap(on_node) -> int:
    """What is in swap on spark2, in kB; -1 when there is none."""
    rows = on_node("spark2", "cat /proc/swaps").splitlines()[1:]
    return sum(int(row.split()[3]) for row in rows) if rows else -1


def live(on_node, node: str) -> list[str]:
    return on_node(
        node, f"sysctl -n vm.swappiness vm.watermark_boost_factor vm.overcommit_memory; cat {THP}"
    ).splitlines()


TUNED = ["1", "0", "1", "always [madvise] never"]


@pytest.mark.parametrize("node", NODES)
def test_values_are_live(on_node, node):
    assert live(on_node, node) == TUNED


@pytest.mark.parametrize("node", NODES)
def test_the_memory_of_ssh_is_protected_up_to_the_root(on_node, node):
    assert on_node(node, "systemctl show ssh -p MemoryMin") == "MemoryMin=67108864"
    groups = "/sys/fs/cgroup/system.slice/memory.min /sys/fs/cgroup/system.slice/ssh.service/memory.min"
    assert on_node(node, f"cat {groups}").split() == ["67108864", "67108864"]
    pid = on_node(node, "systemctl show ssh -P MainPID")
    assert on_node(node, f"cat /proc/{pid}/oom_score_adj") == "-1000"


@pytest.fixture(scope="module")
def swap(on_node):
    """A swap file of 256 MiB in fstab of spark2, with more than 64 MiB in it."""
    make = f"fallocate -l 256M {SWAP} && chmod 600 {SWAP} && mkswap -q {SWAP}"
    on_node("spark2", f"{make} && echo {SWAP} none swap sw 0 0 >> /etc/fstab && systemctl daemon-reload")
    on_node("spark2", f"systemctl start {SWAP_UNIT}")
    on_node("spark2", f"systemd-run --unit=swapper -p MemoryMax=48M python3 -c '{SWAPPER}'")
    until = time.monotonic() + 120
    while in_swap(on_node) < 90 * 1024 and time.monotonic() < until:
        time.sleep(2)
    on_node("spark2", "systemctl set-property --runtime swapper.service MemoryMax=infinity")
    assert in_swap(on_node) > 64 * 1024


@pytest.mark.usefixtures("swap")
def test_swap_is_not_drained_into_memory_that_is_not_there(on_node):
    run = play(CONVERGE)
    assert run.code != 0
    assert run.changed == []
    assert any(line.startswith("spark2: MemAvailable is ") and "a margin of 2.00" in line for line in run.failures)
    assert in_swap(on_node) > 64 * 1024


@pytest.mark.usefixtures("swap")
def test_swap_is_drained_and_stays_on(on_node):
    run = play(CONVERGE, variables=SMALL_MARGIN)
    assert run.code == 0, run.output
    assert run.changed == ["spark2: Tune the host"]
    assert 0 <= in_swap(on_node) < 64 * 1024
    assert on_node("spark2", "systemctl is-active swapper") == "active"
    assert "warn: [tuning.swap] spark2: 0.25 GiB of swap" in run.output


@pytest.mark.usefixtures("swap")
def test_swap_is_turned_off(on_node):
    # In memory, what was drained would leave too little for the launch of the machines' profile, and is refused.
    on_node("spark2", "systemctl stop swapper")
    run = play(CONVERGE, variables=OFF)
    assert run.code == 0, run.output
    assert in_swap(on_node) == -1
    assert on_node("spark2", f"systemctl is-enabled {SWAP_UNIT} || true") == "masked"
    assert play(CONVERGE, variables=OFF).changed == []


@pytest.mark.usefixtures("swap")
def test_a_kernel_argument_waits_for_a_reboot_and_everything_comes_back_with_it(on_node):
    run = play(CONVERGE, variables=REBOOTED)
    assert run.code == 0, run.output
    assert f"reboot required: the next boot has {ARGUMENT}, this one has not" in run.output
    assert ARGUMENT not in on_node("spark2", "cat /proc/cmdline")
    subprocess.run([REPO / "lab/vm/lever", "spark2", "reboot"], check=True, timeout=1200)
    assert ARGUMENT in on_node("spark2", "cat /proc/cmdline").split()
    assert live(on_node, "spark2") == TUNED
    assert in_swap(on_node) == -1
    assert on_node("spark2", "cat /sys/fs/cgroup/system.slice/ssh.service/memory.min") == "67108864"
    run = play(CONVERGE, variables=REBOOTED)
    assert run.changed == []
    assert "[tuning.reboot-required] spark2" not in run.output


@pytest.mark.usefixtures("swap")
def test_a_restore_leaves_nothing_behind(on_node):
    run = play(RESTORE)
    assert run.code == 0, run.output
    for node in NODES:
        assert on_node(node, "tuning-snapshot | diff /var/tmp/tuning-before.txt - || true") == ""
        assert ARGUMENT not in on_node(node, "cat /boot/grub/grub.cfg")
    assert in_swap(on_node) >= 0
    assert play(RESTORE).changed == []
