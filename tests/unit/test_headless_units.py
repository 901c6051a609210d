"""The module that turns units off, against a systemd that only remembers."""

from __future__ import annotations

import json
from functools import partial

import pytest
import yaml
from builders import REPO
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import load, remember
from ansible_collections.sparkwright.cluster.plugins.modules import headless_units

PRINT = {"name": "print", "reason": "Nothing prints.", "units": ["cups.socket", "cups.service"]}
FIRMWARE = {"name": "firmware", "reason": "Too early.", "action": "disable", "units": ["fwupd-refresh.timer"]}
AUDIO = {"name": "audio", "reason": "No sound.", "user_units": ["pipewire.socket"]}


class FakeSystemd:
    """Unit files with their state and activity, by scope, and the verbs that were called."""

    def __init__(self):
        self.states = {
            "--system": {"cups.socket": "enabled", "cups.service": "enabled", "fwupd-refresh.timer": "enabled"},
            "--global": {"pipewire.socket": "enabled"},
        }
        self.active = {"cups.socket", "cups.service", "ssh.service"}
        self.target = "graphical.target"
        self.calls = []

    def __call__(self, *arguments, names=()):
        verb = next(word for word in arguments if not word.startswith("-"))
        scope = arguments[0] if arguments[0] in self.states else "--system"
        answer = {"list-unit-files": self.unit_files, "list-units": self.units, "get-default": self.get_default}
        if verb in answer:
            return answer[verb](scope)
        self.calls.append(" ".join([*arguments, *names]))
        self.act(verb, scope, names)
        return ""

    def unit_files(self, scope):
        return json.dumps([{"unit_file": name, "state": state} for name, state in self.states[scope].items()])

    def units(self, scope):
        return json.dumps([{"unit": name, "active": "active"} for name in sorted(self.active)])

    def get_default(self, scope):
        return f"{self.target}\n"

    def act(self, verb, scope, names):
        if verb == "stop":
            self.active -= set(names)
        elif verb == "set-default":
            (self.target,) = names
        else:
            self.states[scope].update(dict.fromkeys(names, {"mask": "masked", "disable": "disabled"}[verb]))


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    fake = FakeSystemd()
    fake.record = str(tmp_path / "before.json")
    monkeypatch.setattr(headless_units.Systemctl, "__call__", staticmethod(fake.__call__))
    monkeypatch.setattr(headless_units, "remember", partial(remember, path=fake.record))
    return fake


def run(*policy, check_mode=False, **more):
    return run_module(headless_units.main, check_mode, policy=list(policy), **more)


def test_the_first_run_turns_off_and_the_second_finds_nothing(systemd):
    asked = {"default_target": "multi-user.target"}
    first = run(PRINT, FIRMWARE, AUDIO, **asked)
    assert first["actions"] == [
        "mask cups.socket",
        "mask cups.service",
        "disable fwupd-refresh.timer",
        "mask pipewire.socket for all users",
        "boot into multi-user.target",
    ]
    assert systemd.calls == [
        "--system stop cups.socket cups.service",
        "--system mask cups.socket cups.service",
        "--system disable fwupd-refresh.timer",
        "--global mask pipewire.socket",
        "set-default multi-user.target",
    ]
    systemd.calls.clear()
    second = run(PRINT, FIRMWARE, AUDIO, **asked)
    assert (second["changed"], second["actions"], systemd.calls) == (False, [], [])


def test_what_was_there_is_recorded_once(systemd):
    run(PRINT, AUDIO, default_target="multi-user.target")
    systemd.states["--system"]["cups.service"] = "enabled"
    run(PRINT)
    found = load(systemd.record)
    assert found["units"] == {name: {"state": "enabled", "active": True} for name in PRINT["units"]}
    assert found["user_units"] == {"pipewire.socket": {"state": "enabled", "active": False}}
    assert found["default_target"] == {"name": "graphical.target"}


def test_check_mode_changes_and_records_nothing(systemd, tmp_path):
    found = run(PRINT, check_mode=True, default_target="multi-user.target")
    assert (found["changed"], systemd.calls, list(tmp_path.iterdir())) == (True, [], [])
    assert found["diff"] == {
        "before": "cups.socket: enabled, active\ncups.service: enabled, active\nboot: graphical.target\n",
        "after": "cups.socket: masked\ncups.service: masked\nboot: multi-user.target\n",
    }


def test_units_that_the_node_lacks_are_named(systemd):
    found = run({**PRINT, "units": ["cups.path", "cups.service"]}, AUDIO)
    assert found["unknown"] == ["cups.path"]


def test_the_users_list_wins(systemd):
    assert run(PRINT, AUDIO, keep=["cups.service", "pipewire.socket"])["actions"] == ["mask cups.socket"]


@pytest.mark.parametrize("target", ["", "graphical.target"])
def test_a_target_that_is_right_or_not_asked_for_is_left_alone(systemd, target):
    run(PRINT, default_target=target)
    assert systemd.target == "graphical.target"
    assert "default_target" not in load(systemd.record)


def test_a_policy_against_the_network_is_refused_before_anything_is_done(systemd):
    found = run(PRINT, {**PRINT, "units": ["NetworkManager.service"]})
    line = "NetworkManager.service is to be turned off; limit: it must stay; remedy: take it out of the policy"
    assert (found["failed"], found["msg"], systemd.calls) == (True, line, [])


def test_the_shipped_policy_is_one_that_the_module_takes(systemd):
    shipped = yaml.safe_load((REPO / "roles/headless/defaults/main.yml").read_text())["headless_policy"]
    assert "failed" not in run(*shipped)


def test_a_record_of_another_release_stops_before_anything_is_done(systemd, tmp_path):
    (tmp_path / "before.json").write_text('{"schema": 99}')
    found = run(PRINT)
    assert found["failed"]
    assert found["msg"].endswith("before.json has schema 99, this release reads 1")
    assert systemd.calls == []
