"""Reading what the role host_tuning looks after, from trees of files and answers of systemctl."""

from __future__ import annotations

import json
import os

import pytest
from trees import machine, write
from tuned import footprint

from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning import FILES, JOURNAL_FILE, SYSCTL_FILE, THP
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning_reader import (
    TuningReader,
    boot_arguments,
    chosen,
    number,
)

UNITS = """\
Id=ssh.service
MemoryMin=67108864
OOMScoreAdjust=-900
MainPID=700
ControlGroup=/system.slice/ssh.service
ExecMainStartTimestamp=@1000

Id=system.slice
MemoryMin=0
ControlGroup=/system.slice

Id=earlyoom.service
MainPID=0

Id=systemd-journald.service
MainPID=300
ExecMainStartTimestamp=@2000
"""
SWAP_UNITS = """\
Id=dev-dm\\x2d1.swap
UnitFileState=

Id=swap.img.swap
UnitFileState=generated

Id=old.swap
UnitFileState=masked
"""
SWAPS = """\
Filename				Type		Size		Used		Priority
/swap.img                               file		16777212	1024		-2
/dev/sda\\040x                           partition	1000		0		5
"""
POLICY = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"


def read(root, sysctls=(), units=UNITS):
    answers = {"systemctl show ssh.service": units, "systemctl show *.swap": SWAP_UNITS}
    return TuningReader(machine(root, answers), sysctls).read()


def test_a_machine_without_anything(tmp_path):
    found = TuningReader(machine(tmp_path), ["vm.swappiness"]).read()
    assert found["files"] == dict.fromkeys(FILES)
    assert (found["container"], found["values"], found["swaps"], found["swap_units"]) == (False, {}, [], {})
    assert found["journal"] == {"bytes": 0, "stale": False}
    assert found["ssh"] == {
        "memory_min": 0,
        "slice_memory_min": 0,
        "in_force": None,
        "oom_score_adjust": 0,
        "oom_score_adj": None,
    }
    assert (found["earlyoom"], found["grub"]) == ({"installed": False, "argv": []}, False)
    assert (found["boot_arguments"], found["kernel_arguments"], found["first_footprint"]) == ([], [], None)


def test_values_are_those_asked_for_and_those_of_sys(tmp_path):
    thp = THP.lstrip("/")
    write(tmp_path, {"proc/sys/vm/swappiness": "60\n", thp: "always [madvise] never\n", POLICY: "performance\n"})
    assert read(tmp_path, ["vm.swappiness", "vm.absent"])["values"] == {
        "/proc/sys/vm/swappiness": {"value": "60", "writable": True},
        THP: {"value": "madvise", "writable": True},
        f"/{POLICY}": {"value": "performance", "writable": True},
    }


def test_what_cannot_be_written_is_said(ordinary_user):
    file = "proc/sys/vm/swappiness"
    write(ordinary_user.root, {file: "60\n"})
    (ordinary_user.root / file).chmod(0o444)
    with ordinary_user:
        # The question is asked for the real user, which is root where the tests run as root.
        wanted = os.access(ordinary_user.root / file, os.W_OK)
        found = read(ordinary_user.root, ["vm.swappiness"])["values"]["/proc/sys/vm/swappiness"]
    assert found == {"value": "60", "writable": wanted}


def test_swaps_and_the_units_that_bring_them_back(tmp_path):
    write(tmp_path, {"proc/swaps": SWAPS, "swap.img": ""})
    found = read(tmp_path)
    assert found["swaps"] == [
        {"path": "/swap.img", "size": 16777212, "used": 1024, "priority": -2, "here": True},
        {"path": "/dev/sda x", "size": 1000, "used": 0, "priority": 5, "here": False},
    ]
    assert found["swap_units"] == {"swap.img.swap": "generated"}


def test_how_ssh_is_protected(tmp_path):
    group = "sys/fs/cgroup/system.slice/ssh.service/memory.min"
    write(tmp_path, {"proc/700/oom_score_adj": "-1000\n", group: "67108864\n"})
    assert read(tmp_path)["ssh"] == {
        "memory_min": 67108864,
        "slice_memory_min": 0,
        "in_force": 67108864,
        "oom_score_adjust": -900,
        "oom_score_adj": -1000,
    }


@pytest.mark.parametrize(("written", "stale"), [(1999, False), (2000.9, False), (2002, True)])
def test_a_cap_that_was_written_after_journald_started(tmp_path, written, stale):
    write(tmp_path, {JOURNAL_FILE.lstrip("/"): "[Journal]\n", "var/log/journal/1/system.journal": "x" * 9000})
    os.utime(tmp_path / JOURNAL_FILE.lstrip("/"), (written, written))
    found = read(tmp_path)["journal"]
    assert found["stale"] is stale
    assert found["bytes"] >= 9000


def test_earlyoom_is_asked_how_it_was_started(tmp_path):
    write(tmp_path, {"usr/bin/earlyoom": "", "proc/9/cmdline": "/usr/bin/earlyoom\0-m\0005\0"})
    found = read(tmp_path, units="Id=earlyoom.service\nMainPID=9\n")["earlyoom"]
    assert found == {"installed": True, "argv": ["/usr/bin/earlyoom", "-m", "5"]}


def test_files_boot_loader_and_record(tmp_path):
    record = {"schema": 1, "footprint": {"first": footprint()}}
    write(
        tmp_path,
        {
            SYSCTL_FILE.lstrip("/"): "vm.swappiness = 1\n",
            "usr/sbin/update-grub": "",
            "boot/grub/grub.cfg": "menuentry 'x' {\n\tlinux\t/vmlinuz root=UUID=1 ro kho=off\n}\n",
            "proc/cmdline": "root=UUID=1 ro\n",
            "run/systemd/container": "podman\n",
            "var/lib/sparkwright/before.json": json.dumps(record),
        },
    )
    found = read(tmp_path)
    assert (found["files"][SYSCTL_FILE], found["container"], found["grub"]) == ("vm.swappiness = 1\n", True, True)
    assert (found["boot_arguments"], found["kernel_arguments"]) == (
        ["root=UUID=1", "ro", "kho=off"],
        ["root=UUID=1", "ro"],
    )
    assert found["first_footprint"] == footprint()


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", []),
        ("menuentry {\n}\n", []),
        ("linux /vmlinuz a=1 b\ninitrd /x\nlinux /other c\n", ["a=1", "b"]),
    ],
)
def test_the_first_entry_of_the_boot_menu(text, arguments):
    assert boot_arguments(text) == arguments


@pytest.mark.parametrize(("text", "value"), [("always [madvise] never", "madvise"), ("60", "60"), ("", "")])
def test_the_choice_in_brackets(text, value):
    assert chosen(text) == value


@pytest.mark.parametrize(("text", "value"), [("67108864", 67108864), ("-900", -900), ("[not set]", 0), ("infinity", 0)])
def test_numbers(text, value):
    assert number(text) == value
