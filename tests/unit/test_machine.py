"""Files below two roots, and commands that are missing, late or many."""

from __future__ import annotations

import os
import sys
import time

import pytest
from trees import machine, runner, write

from ansible_collections.sparkwright.cluster.plugins.module_utils import machine as module
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine, run_command, together

# --- commands -------------------------------------------------------------------------------------------------------


def test_a_missing_command_is_a_failed_one():
    done = run_command(["no-such-command-here"])
    assert (done.returncode, done.stderr) == (127, "no-such-command-here is not installed")


def test_a_late_command_is_a_failed_one(monkeypatch):
    monkeypatch.setattr(module, "COMMAND_SECONDS", 0.2)
    done = run_command(["sleep", "3"])
    assert (done.returncode, done.stderr) == (124, "sleep did not answer within 0.2 s")


def test_commands_speak_english(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert run_command([sys.executable, "-c", "import os; print(os.environ['LC_ALL'])"]).stdout == "C\n"


def test_many_late_commands_take_the_time_of_one(monkeypatch):
    monkeypatch.setattr(module, "COMMAND_SECONDS", 0.3)
    started = time.monotonic()
    done = Machine().run_all([["sleep", "5"]] * 8)
    assert [found.returncode for found in done] == [124] * 8
    assert time.monotonic() - started < 2


def test_results_come_in_the_order_of_the_works():
    assert together([lambda n=n: (time.sleep(n / 50), n)[1] for n in (3, 1, 2)]) == [3, 1, 2]
    assert together([]) == []


@pytest.mark.parametrize(
    ("printed", "rows"),
    [('[{"a": 1}, {}]', [{"a": 1}]), ("[]", []), ("no JSON", []), ((1, "", "Cannot open netlink socket"), [])],
)
def test_rows_of_a_command(printed, rows):
    assert Machine(run=runner({"ip": printed})).json(["ip"]) == rows


# --- files ----------------------------------------------------------------------------------------------------------


def test_hardware_comes_first_and_the_root_has_what_it_lacks(tmp_path):
    write(tmp_path / "hardware", {"sys/speed": "200000\n"})
    write(tmp_path / "root", {"sys/speed": "-1\n", "sys/carrier": "1\n"})
    found = machine(tmp_path / "root", hardware=tmp_path / "hardware")
    assert [found.word(f"sys/{name}") for name in ("speed", "carrier", "mtu")] == ["200000", "1", ""]
    assert found.text("sys/speed") == "200000\n"
    assert found.names("sys") == ["speed"]
    assert found.unreadable == set()


def test_a_folder_is_that_of_the_first_root_or_of_all(tmp_path):
    write(tmp_path / "hardware", {"proc/meminfo": "", "proc/7/comm": ""})
    write(tmp_path / "root", {"proc/7/comm": "", "proc/12/comm": ""})
    found = machine(tmp_path / "root", hardware=tmp_path / "hardware")
    assert found.names("proc") == ["7", "meminfo"]
    assert found.all_names("proc") == ["12", "7", "meminfo"]
    assert (found.names("none"), found.all_names("none")) == ([], [])


def test_a_link_is_known_by_the_last_part_of_its_target(tmp_path):
    (tmp_path / "driver").symlink_to("../bus/mlx5_core")
    (tmp_path / "file").touch()
    found = machine(tmp_path)
    assert [found.target(name) for name in ("driver", "file", "nothing")] == ["mlx5_core", "", ""]


def test_what_an_ordinary_user_may_not_read_is_named(ordinary_user):
    root = ordinary_user.root
    write(root, {"etc/netplan/60.yaml": "network: {}\n", "etc/open": "x\n", "run/secret/file": "y\n"})
    (root / "etc/netplan/60.yaml").chmod(0)
    (root / "run/secret").chmod(0)
    found = machine(root)
    with ordinary_user:
        assert os.geteuid() != 0
        assert [found.text(name) for name in ("etc/netplan/60.yaml", "etc/open", "etc/none")] == ["", "x\n", ""]
        assert found.names("run/secret") == []
    assert found.unreadable == {"/etc/netplan/60.yaml", "/run/secret"}


def test_a_program_is_found_below_the_first_root_that_has_it(tmp_path):
    write(tmp_path, {"usr/bin/nvidia-smi": ""})
    assert machine(tmp_path).tool("usr/bin/nvidia-smi") == f"{tmp_path}/usr/bin/nvidia-smi"
    assert machine(tmp_path).tool("usr/bin/other") is None
