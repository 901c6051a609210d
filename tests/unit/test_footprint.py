"""What a node uses: how it is measured, and the table of before and after."""

from __future__ import annotations

import json

import pytest
from trees import machine, write
from tuned import footprint

from ansible_collections.sparkwright.cluster.plugins.action import footprint as action
from ansible_collections.sparkwright.cluster.plugins.module_utils import footprint_reader
from ansible_collections.sparkwright.cluster.plugins.module_utils.footprint import footprint_table, unit_rows
from ansible_collections.sparkwright.cluster.plugins.module_utils.footprint_reader import FootprintReader, unit_of

MEMINFO = "MemAvailable: 118000000 kB\nSwapTotal: 1000 kB\nSwapFree: 600 kB\n"
TCP = 'LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=1,fd=3))\n'
UDP = 'UNCONN 0 0 0.0.0.0:5353 0.0.0.0:* users:(("avahi-daemon",pid=2,fd=3))\n'


def process(number, group, pss=None, command="x"):
    """The files of one process; one whose memory cannot be read has no smaps_rollup."""
    files = {f"proc/{number}/cmdline": command, f"proc/{number}/cgroup": f"0::{group}\n"}
    return files | ({f"proc/{number}/smaps_rollup": f"Rss: 1 kB\nPss: {pss} kB\n"} if pss is not None else {})


def read(root):
    answers = {"ss -H -l -t": TCP, "ss -H -l -u": UDP}
    return FootprintReader(machine(root, answers)).read()


@pytest.fixture
def node(tmp_path):
    files = {"proc/meminfo": MEMINFO, "proc/bus/input": "", "run/log/journal/1/a.journal": "x" * 5000}
    files |= process(10, "/system.slice/cups.service", 9000)
    files |= process(11, "/system.slice/cups.service", 500)
    files |= process(12, "/user.slice/user-1000.slice/user@1000.service/session.slice/pipewire.service", 12000)
    files |= process(13, "/system.slice/ssh.service")
    files |= process(14, "/system.slice/docker-f00d.scope", 400_000)
    files |= process(15, "/", 7, command="")
    return write(tmp_path, files)


def test_a_node_is_measured(node):
    found = read(node)
    assert found["journal"] >= 5000
    assert found | {"journal": 0} == {
        "processes": 5,
        "unread": 1,
        "units": {"pipewire.service (user)": 12000, "cups.service": 9500, "ssh.service": 0},
        "memory_available": 118_000_000,
        "swap_used": 400,
        "journal": 0,
        "listeners": ["tcp 0.0.0.0:22 sshd", "udp 0.0.0.0:5353 avahi-daemon"],
    }


def test_memory_that_takes_too_long_is_left_unread(node, monkeypatch):
    monkeypatch.setattr(footprint_reader, "MEMORY_SECONDS", -1)
    monkeypatch.setattr(footprint_reader, "bounded", late)
    found = read(node)
    assert (found["units"], found["unread"], found["processes"]) == ({}, 5, 5)


def late(work, seconds):
    raise footprint_reader.TimedOut(f"no answer within {seconds} s")


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/cups.service\n", "cups.service"),
        ("0::/init.scope\n", "init.scope"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n", "init.scope (user)"),
        ("0::/user.slice/user-1000.slice/user@1000.service\n", "user@1000.service"),
        ("0::/system.slice/x.service/sub\n", "x.service"),
        ("12:cpu:/\n0::/../../system.slice/docker-1.scope\n", "docker-1.scope"),
        ("0::/\n", "other"),
        ("", "other"),
    ],
)
def test_the_unit_of_a_process(cgroup, unit):
    assert unit_of(cgroup) == unit


def test_the_table():
    units = {"systemd-journald.service": 22_500, "new.service": 4096}
    after = footprint(
        processes=150, units=units, memory_available=118_200_000, journal=0, listeners=["tcp 0.0.0.0:22 sshd"]
    )
    assert footprint_table({"spark1": footprint()}, {"spark1": after}) == "\n".join(
        [
            "spark1                             before   after  difference",
            "-------------------------------------------------------------",
            "processes                             190     150         -40",
            "resident memory of units, MiB          42      26         -16",
            "MemAvailable, MiB                  115234  115430        +195",
            "swap used, MiB                          0       0          +0",
            "journal on disk, MiB                  100       0        -100",
            "open ports                              2       1          -1",
            "  wireplumber.service (user), MiB      12       0         -12",
            "  cups.service, MiB                     9       0          -9",
            "  new.service, MiB                      0       4          +4",
        ]
    )


def test_what_could_not_be_read_is_said():
    assert footprint_table({"a": footprint(unread=2)}, {"a": footprint(unread=1)}).endswith(
        "\nthe memory of 3 processes could not be read"
    )


def test_a_node_that_was_measured_once_has_no_table():
    assert footprint_table({}, {"spark1": footprint()}) == ""


def test_ten_units_are_enough_for_a_person():
    many = {f"{n:02}.service": 1024 * (n + 2) for n in range(20)}
    rows = unit_rows(many, {})
    assert len(rows) == 10
    assert rows[0] == ("  19.service, MiB", 21, 0)


@pytest.mark.parametrize(
    ("now", "then", "processes"),
    [
        ({"tuning": {"first_footprint": footprint(processes=1)}}, {"footprint": footprint(processes=2)}, 1),
        ({"tuning": {"first_footprint": None}}, {"footprint": footprint(processes=2)}, 2),
        ({}, {"footprint": footprint(processes=2)}, 2),
        ({}, {}, None),
    ],
    ids=["recorded", "not recorded", "not asked for", "never measured"],
)
def test_before_is_what_the_node_recorded_first(now, then, processes):
    found = action.earlier(now, then)
    assert (found or {}).get("processes") == processes


def test_the_action_shows_and_writes_both(tmp_path, monkeypatch):
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda self, tmp, task_vars: {})
    monkeypatch.setattr(action, "report_path", lambda name, task_vars: tmp_path / f"{name}.json")
    shown = []
    monkeypatch.setattr(action.display, "display", shown.append)
    hosts = {
        "spark1": {"old": {"node": {"footprint": footprint(processes=9)}}, "new": {"node": {"footprint": footprint()}}},
        "spark2": {},
    }
    plugin = action.ActionModule.__new__(action.ActionModule)
    asked = {"before": "old", "after": "new"}
    monkeypatch.setattr(plugin, "validate_argument_spec", lambda argument_spec: (None, asked), raising=False)
    found = plugin.run(task_vars={"groups": {"sparks": list(hosts)}, "hostvars": hosts})
    assert found["changed"] is False
    assert list(found["after"]) == ["spark1"]
    assert json.loads((tmp_path / "footprint.json").read_text())["before"]["spark1"]["processes"] == 9
    assert shown[0].startswith("spark1 ")
