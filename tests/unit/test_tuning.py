"""The wish that the variables of host_tuning make, and the text of every file."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict

import pytest
import yaml
from builders import REPO
from tuned import BOOST, POLICIES, SWAPPINESS, fresh, tuned, wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning import (
    EARLYOOM_FILE,
    GRUB_FILE,
    JOURNAL_FILE,
    KILL_SHARE,
    LIMITS_FILE,
    SLICE_FILE,
    SSH_FILE,
    SWAP_UNIT_FILE,
    SYSCTL_FILE,
    TERM_SHARE,
    THP,
    TMPFILES_FILE,
    TuningWish,
    earlyoom_argv,
    make_wish,
    merged_sysctl,
    sysctl_name,
    sysctl_path,
    wanted_files,
    wanted_values,
)

DEFAULTS = yaml.safe_load((REPO / "roles/host_tuning/defaults/main.yml").read_text())
INSTALLED = {"installed": True, "argv": []}


def by_default(**changes):
    values = {name.removeprefix("host_tuning_"): value for name, value in DEFAULTS.items()} | changes
    return make_wish(values.get, 3 * GIB)


def body(text):
    """A file's lines without comments."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_defaults_of_the_role():
    found = by_default()
    assert {name: one["value"] for name, one in found.sysctl.items()} == {
        "vm.swappiness": "1",
        "vm.watermark_boost_factor": "0",
        "vm.overcommit_memory": "1",
        "vm.page-cluster": "0",
        "vm.dirty_background_ratio": "1",
        "vm.dirty_ratio": "5",
    }
    assert all(len(one["reason"]) > 20 for one in found.sysctl.values())
    assert (found.swap, found.margin, found.kernel_arguments, found.floor) == ("keep", 2 * GIB, (), 3 * GIB)


def test_without_any_variable_nothing_is_wished():
    assert make_wish(lambda name: None, 0) == TuningWish()
    assert set(wanted_files(TuningWish(), fresh()).values()) == {None}


def test_a_wish_survives_json():
    whole = wish(kernel_arguments=("kho=off",))
    assert TuningWish.from_data(json.loads(json.dumps(asdict(whole)))) == whole


@pytest.mark.parametrize(
    ("extra", "swappiness"),
    [
        ([], "1"),
        ([{"name": "vm.swappiness", "value": 10, "reason": "ours"}], "10"),
        ([{"name": "vm.swappiness", "value": "", "reason": "leave it"}], None),
        ([{"name": "vm.swappiness", "value": 0, "reason": "zero is a value"}], "0"),
    ],
    ids=["the default", "another value", "taken out", "zero"],
)
def test_a_users_settings_win(extra, swappiness):
    found = merged_sysctl(DEFAULTS["host_tuning_sysctl"], extra)
    assert found.get("vm.swappiness", {}).get("value") == swappiness
    assert "vm.overcommit_memory" in found


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("vm.swappiness", SWAPPINESS),
        ("net/ipv4/conf/eth0.7/rp_filter", "/proc/sys/net/ipv4/conf/eth0.7/rp_filter"),
    ],
)
def test_names_of_settings(name, path):
    assert (sysctl_path(name), sysctl_name(path)) == (path, name)


def test_a_file_of_sys_is_named_by_its_path():
    assert sysctl_name(THP) == THP


@pytest.mark.parametrize(
    ("path", "wanted", "lines"),
    [
        (SYSCTL_FILE, {}, ["vm.swappiness = 1", "vm.watermark_boost_factor = 0"]),
        (
            TMPFILES_FILE,
            {},
            [
                f"w {THP} - - - - madvise",
                "w /sys/devices/system/cpu/cpufreq/policy*/scaling_governor - - - - performance",
            ],
        ),
        (TMPFILES_FILE, {"governor": ""}, [f"w {THP} - - - - madvise"]),
        (JOURNAL_FILE, {}, ["[Journal]", "SystemMaxUse=256M"]),
        (LIMITS_FILE, {}, ["* - memlock unlimited", "root - memlock unlimited"]),
        (SSH_FILE, {}, ["[Service]", "MemoryMin=64M", "OOMScoreAdjust=-900"]),
        (SSH_FILE, {"ssh_memory_mib": 0}, ["[Service]", "OOMScoreAdjust=-900"]),
        (SLICE_FILE, {}, ["[Slice]", "MemoryMin=64M"]),
        (GRUB_FILE, {"kernel_arguments": ("kho=off",)}, ['GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX kho=off"']),
        (
            GRUB_FILE,
            {"kernel_arguments": ('a="b $c"',)},
            ['GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX a=\\"b \\$c\\""'],
        ),
        (
            SWAP_UNIT_FILE,
            {"swap": "size", "swap_gib": 16},
            [
                "[Unit]",
                "Description=Swap of one size on all nodes",
                "[Swap]",
                "What=/var/lib/sparkwright/swap",
                "[Install]",
                "WantedBy=swap.target",
            ],
        ),
    ],
)
def test_a_file(path, wanted, lines):
    assert body(wanted_files(wish(**wanted), fresh())[path]) == lines


def test_every_setting_stands_below_its_reason():
    text = wanted_files(wish(), fresh())[SYSCTL_FILE]
    assert "# It costs memory.\nvm.watermark_boost_factor = 0\n" in text


@pytest.mark.parametrize(
    ("path", "wanted", "facts"),
    [
        (SYSCTL_FILE, {"sysctl": {}}, {}),
        (TMPFILES_FILE, {}, {"values": {SWAPPINESS: {"value": "60", "writable": True}}}),
        (JOURNAL_FILE, {"journal_mib": 0}, {}),
        (LIMITS_FILE, {"memlock": ""}, {}),
        (LIMITS_FILE, {}, {"container": True}),
        (SSH_FILE, {"ssh_memory_mib": 0, "ssh_oom_score_adjust": 0}, {}),
        (SLICE_FILE, {"ssh_memory_mib": 0}, {}),
        (EARLYOOM_FILE, {}, {}),
        (EARLYOOM_FILE, {"earlyoom": False}, {"earlyoom": INSTALLED}),
        (EARLYOOM_FILE, {"floor": 0}, {"earlyoom": INSTALLED}),
        (GRUB_FILE, {"kernel_arguments": ("kho=off",)}, {"grub": False}),
        (SWAP_UNIT_FILE, {}, {}),
    ],
)
def test_a_file_that_nobody_needs_is_not_there(path, wanted, facts):
    assert wanted_files(wish(**wanted), fresh() | facts)[path] is None


@pytest.mark.parametrize("floor", [0.1, 3, 6])
def test_earlyoom_acts_below_the_floor_and_by_memory_alone(floor):
    argv = earlyoom_argv(int(floor * GIB))
    term, kill = (int(line) * 1024 for line in argv[argv.index("-M") + 1].split(","))
    assert kill < term < floor * GIB
    assert [term / GIB, kill / GIB] == pytest.approx([TERM_SHARE * floor, KILL_SHARE * floor], rel=0.001)
    assert argv[argv.index("-s") + 1] == "100"


def test_systemd_reads_the_arguments_of_earlyoom_as_they_are_meant():
    text = wanted_files(wish(), fresh() | {"earlyoom": INSTALLED})[EARLYOOM_FILE]
    command = body(text)[-1].removeprefix("ExecStart=")
    assert body(text)[:2] == ["[Service]", "ExecStart="]
    assert [word.replace("$$", "$") for word in shlex.split(command)] == earlyoom_argv(3 * GIB)


def test_what_the_kernel_should_hold():
    wanted = {SWAPPINESS: "1", BOOST: "0", THP: "madvise", **dict.fromkeys(POLICIES, "performance")}
    assert wanted_values(wish(), tuned()) == wanted
    assert wanted_values(wish(thp="", governor=""), tuned()) == {SWAPPINESS: "1", BOOST: "0"}
