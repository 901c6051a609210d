"""The modules that mount and that let other nodes read: which commands they run, and how long they wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.modules import nfs_mount, weights_pull, weights_sender

UNIT = "models.mount"
SHOW = f"systemctl show {UNIT} --property=ActiveState --value"


@pytest.fixture
def ran(monkeypatch):
    """The commands that were run; `answers` gives what some print, one after the other, the last one for ever."""
    lines: list[str] = []
    answers: dict[str, list[str]] = {}

    def run(self, argv, check_rc=False, **_):
        line = " ".join(argv)
        if line in answers:
            found = answers[line]
            return 0, found.pop(0) if len(found) > 1 else found[0], ""
        lines.append(line)
        return 0, "", ""

    monkeypatch.setattr(AnsibleModule, "run_command", run)
    return lines, answers


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while somebody sleeps."""
    now = [0.0]
    for module in (nfs_mount, weights_sender):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(module.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def mount(check_mode=False, **more):
    return run_module(nfs_mount.main, check_mode, path="/models", unit=UNIT, **more)


@pytest.mark.usefixtures("clock")
def test_a_mount_is_started_and_then_reads_ahead(ran):
    lines, answers = ran
    answers[SHOW] = ["inactive", "activating", "activating", "active"]
    assert mount() == {"active": True, "changed": True, "invocation": mount_arguments()}
    assert lines == [
        "systemctl daemon-reload",
        f"systemctl enable {UNIT} sparkwright-read-ahead.service",
        f"systemctl start --no-block {UNIT}",
        "systemctl restart sparkwright-read-ahead.service",
    ]


def mount_arguments(**more):
    return {"module_args": {"path": "/models", "unit": UNIT, "remount": False, "seconds": 90, **more}}


@pytest.mark.parametrize("state", ["activating", "failed"])
def test_a_server_that_does_not_come_costs_a_bounded_time(ran, clock, state):
    lines, answers = ran
    answers[SHOW] = [state]
    assert mount(seconds=30)["active"] is False
    assert clock[0] <= 33
    assert "systemctl restart sparkwright-read-ahead.service" not in lines


@pytest.mark.usefixtures("clock")
def test_another_mount_is_taken_away_first(ran):
    lines, answers = ran
    answers[SHOW] = ["active", "inactive", "active"]
    assert mount(remount=True)["active"] is True
    assert lines[:2] == ["umount --force --lazy /models", "systemctl daemon-reload"]


@pytest.mark.usefixtures("clock")
def test_a_unit_that_goes_on_trying_is_ended(ran):
    lines, answers = ran
    answers[SHOW] = ["activating"]
    mount(remount=True, seconds=5)
    assert lines[1] == f"systemctl kill --signal=KILL {UNIT}"


def test_in_check_mode_nothing_is_run(ran):
    assert mount(check_mode=True)["changed"] is True
    pull = {"rail": "rail0", "own": "a", "source": "b", "files": ["x"], "size": 1}
    found = run_module(weights_pull.main, True, host="spark2", path="/models", pulls=[pull])
    assert (found["changed"], found["received"]) == (True, {})
    assert run_module(weights_sender.main, True, config="", addresses=["127.0.0.1"])["units"] == []
    assert ran[0] == []


def test_without_pulls_nothing_changes():
    assert run_module(weights_pull.main, host="spark2", path="/models", pulls=[])["changed"] is False


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(weights_sender, "CONFIG", tmp_path / "run" / "rsyncd.conf")
    return tmp_path / "run" / "rsyncd.conf"


def test_one_daemon_for_each_rail_for_a_bounded_time(ran, config, monkeypatch):
    lines, _ = ran
    monkeypatch.setattr(weights_sender, "answers", lambda address: True)
    found = run_module(weights_sender.main, config="[weights]\n", addresses=["192.168.100.10", "192.168.101.10"])
    assert (found["units"], found["changed"]) == (["sparkwright-copy-0.service", "sparkwright-copy-1.service"], False)
    assert lines[0] == "systemctl stop sparkwright-copy-*.service"
    assert lines[1:] == [
        f"systemd-run --unit=sparkwright-copy-{number}.service --collect --quiet --property=RuntimeMaxSec=21600 --"
        f" rsync --daemon --no-detach --config={config} --address=192.168.10{number}.10 --port=18730"
        for number in (0, 1)
    ]
    assert (config.read_text(), config.stat().st_mode & 0o777) == ("[weights]\n", 0o600)


def test_they_are_ended_and_their_configuration_goes(ran, config):
    lines, _ = ran
    config.parent.mkdir()
    config.write_text("x")
    assert run_module(weights_sender.main, state="stopped")["units"] == []
    assert lines == ["systemctl stop sparkwright-copy-*.service"]
    assert not config.exists()


@pytest.mark.usefixtures("clock")
def test_a_daemon_that_does_not_listen_is_a_failure_and_is_ended(ran, config, monkeypatch):
    lines, answers = ran
    monkeypatch.setattr(weights_sender.socket, "create_connection", refuse)
    log = "journalctl --unit=sparkwright-copy-0.service --lines=5 --output=cat --no-pager"
    answers[log] = ["rsync: bind() failed: Address already in use\n"]
    found = run_module(weights_sender.main, config="", addresses=["192.168.100.10"])
    assert found["failed"]
    assert found["msg"] == (
        "rsync does not listen on 192.168.100.10 port 18730: rsync: bind() failed: Address already in use; limit: an"
        " answer within 20 s; remedy: look who has the port with `ss -ltnp`, then run it again"
    )
    assert lines[-1] == "systemctl stop sparkwright-copy-*.service"
    assert not Path(config).exists()


def refuse(*_):
    raise ConnectionRefusedError
