"""Every finding about a host's tuning, in the words that a person reads."""

from __future__ import annotations

import pytest
from builders import cluster, findings
from tuned import SWAPPINESS, fresh, ssh, swap, tuned, wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_tuning import term_line
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning import MIB, THP, earlyoom_argv

SITE = "remedy: run site.yml, which sets it"
KHO = ("kho=off",)


def told(facts, wanted=None, serving=False):
    """What is not ok when spark2 is like that."""
    intents = {"spark2": {"tuning": wanted}} if wanted else {}
    return findings(cluster(facts={("spark2", "tuning"): facts}, intents=intents, serving=serving))


def setting(value, writable=True, path=SWAPPINESS):
    return tuned(values={path: {"value": value, "writable": writable}})


@pytest.mark.parametrize(
    ("facts", "wanted", "line"),
    [
        (
            setting("60"),
            None,
            f"refuse tuning.sysctl spark2: vm.swappiness is 60; limit: vm.swappiness 1; {SITE}",
        ),
        (
            setting("60", writable=False),
            None,
            "warn tuning.sysctl spark2: vm.swappiness is 60 and cannot be set here; limit: vm.swappiness 1;"
            " remedy: set it on the machine around the container",
        ),
        (
            tuned(),
            wish(sysctl={"vm.swappines": {"value": "1", "reason": ""}}),
            "warn tuning.sysctl spark2: this kernel has no vm.swappines; limit: vm.swappines 1;"
            " remedy: take it out of the list",
        ),
        (setting("always", path=THP), None, f"refuse tuning.cpu spark2: {THP} is always; limit: {THP} madvise; {SITE}"),
        (
            tuned(swaps=[]),
            None,
            "warn tuning.swap spark2: 0.00 GiB of swap; limit: the same on all nodes, others have 0.00 to 16.00 GiB;"
            " remedy: set host_tuning_swap to off, or to size with host_tuning_swap_gib",
        ),
        (
            tuned(container=True),
            wish(swap="off"),
            "warn tuning.swap spark2: 16.00 GiB of swap, of the machine around this container; limit: policy off;"
            " remedy: set it on the machine around the container",
        ),
        (
            tuned(journal={"bytes": 100 * MIB, "stale": True}),
            None,
            "warn tuning.journal spark2: the journal takes 100 MiB and journald has not read its cap yet;"
            " limit: 256 MiB; remedy: run playbooks/stop.yml and site.yml, or `systemctl restart systemd-journald`",
        ),
        (
            tuned(journal={"bytes": 4 * GIB, "stale": False}),
            None,
            "warn tuning.journal spark2: the journal takes 4096 MiB; limit: 256 MiB; remedy: run playbooks/stop.yml"
            " and site.yml, or `systemctl restart systemd-journald`",
        ),
        (
            tuned(ssh=ssh(slice_memory_min=0)),
            None,
            "refuse tuning.ssh spark2: MemoryMin is 64 MiB for ssh.service and 0 MiB for system.slice around it;"
            f" limit: MemoryMin of 64 MiB; {SITE}",
        ),
        (
            tuned(ssh=ssh(in_force=0)),
            None,
            "refuse tuning.ssh spark2: 0 MiB are in force, sshd's oom_score_adj is -1000;"
            f" limit: MemoryMin of 64 MiB; {SITE}",
        ),
        (
            tuned(ssh=ssh(in_force=None)),
            None,
            "warn tuning.ssh spark2: nothing shows the control group of ssh: no sshd of the unit runs, or no memory"
            " controller is here; limit: MemoryMin of 64 MiB; remedy: look at `systemctl status ssh`",
        ),
        (
            tuned(ssh=ssh(in_force=0), container=True),
            None,
            "warn tuning.ssh spark2: 0 MiB are in force, sshd's oom_score_adj is -1000;"
            f" limit: MemoryMin of 64 MiB; {SITE}",
        ),
        (
            tuned(container=True),
            None,
            "warn tuning.memlock spark2: a container may not raise limits, and PAM would refuse every login;"
            " limit: memlock unlimited; remedy: set it on the machine around the container",
        ),
        (
            tuned(files={}),
            None,
            "refuse tuning.memlock spark2: /etc/security/limits.d/60-sparkwright.conf says something else, or is not"
            f" there; limit: memlock unlimited; {SITE}",
        ),
        (
            tuned(earlyoom={"installed": True, "argv": ["/usr/bin/earlyoom", "-r", "3600", "-m", "5"]}),
            None,
            "refuse tuning.earlyoom spark2: it ends processes below 6.08 GiB; limit: below the floor of 3.00 GiB;"
            " remedy: set host_tuning_earlyoom: true, or its arguments yourself",
        ),
        (
            tuned(boot_arguments=["ro", *KHO]),
            wish(kernel_arguments=KHO),
            "warn tuning.reboot-required spark2: reboot required: the next boot has kho=off, this one has not;"
            " remedy: reboot the node when it suits you",
        ),
        (
            tuned(),
            wish(kernel_arguments=KHO),
            "warn tuning.reboot-required spark2: neither this boot nor the next one has kho=off;"
            f" limit: kernel arguments kho=off; {SITE}",
        ),
        (
            tuned(grub=False),
            wish(kernel_arguments=KHO),
            "warn tuning.reboot-required spark2: neither this boot nor the next one has kho=off; limit: kernel"
            " arguments kho=off; remedy: set it in the boot loader of this machine; there is no update-grub",
        ),
    ],
)
def test_a_node_that_differs(facts, wanted, line):
    assert line in told(facts, wanted)


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (tuned(), wish()),
        (tuned(container=True), wish(memlock="")),
        (tuned(earlyoom={"installed": True, "argv": earlyoom_argv(3 * GIB)}), wish()),
        (tuned(kernel_arguments=["ro", *KHO], boot_arguments=[*KHO]), wish(kernel_arguments=KHO)),
        (tuned(ssh=ssh(memory_min=0)), wish(ssh_memory_mib=0)),
    ],
    ids=["tuned", "a container", "earlyoom as wanted", "booted with the arguments", "ssh without a wish"],
)
def test_a_node_that_is_right(facts, wanted):
    assert told(facts, wanted) == []


def test_swap_that_is_not_off():
    wanted = {"*": {"tuning": wish(swap="off")}}
    off = {(f"spark{n}", "tuning", "swaps"): [] for n in (1, 3, 4)}
    lines = findings(cluster(facts=off, intents=wanted))
    assert lines == [f"refuse tuning.swap spark2: 16.00 GiB of swap; limit: 0.00 GiB; {SITE}"]


@pytest.mark.parametrize(
    ("facts", "serving", "line"),
    [
        (
            tuned(swaps=[swap(used=200 * 1024 * 1024)]),
            False,
            "refuse tuning.due spark2: MemAvailable is 114.44 GiB and 200.00 GiB are in swap; limit: MemAvailable above"
            " 202.00 GiB (that and a margin of 2.00); remedy: end what takes memory until 87.56 GiB more are free,"
            " or reboot the node",
        ),
        (
            fresh() | {"swaps": tuned()["swaps"]},
            True,
            "refuse tuning.due spark2: the memory protection of ssh would be set; limit: no restart and no reload while"
            " the engine serves; remedy: run playbooks/stop.yml first",
        ),
    ],
    ids=["too little memory for what is in swap", "the engine serves"],
)
def test_what_cannot_be_done_now(facts, serving, line):
    assert line in told(facts, serving=serving)


@pytest.mark.parametrize(
    ("argv", "kb"),
    [
        (["earlyoom"], 100_000),
        (["earlyoom", "-m", "5"], 50_000),
        (["earlyoom", "-m", "5,2", "-r", "60"], 50_000),
        (["earlyoom", "-M", "2048,1024", "-s", "100"], 2048),
        (earlyoom_argv(3 * GIB), int(2.25 * 1024 * 1024)),
    ],
)
def test_the_line_of_earlyoom(argv, kb):
    assert term_line(argv, 1_000_000) == kb
