"""The module that turns units off, against a systemd that only remembers."""

from __future__ import annotations

from functools import partial

import pytest
import yaml
from builders import REPO
from fake_systemd import FakeSystemd
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import load, remember
from ansible_collections.sparkwright.cluster.plugins.module_utils.systemd import Systemctl
from ansible_collections.sparkwright.cluster.plugins.modules import headless_units

PRINT = {"name": "print", "reason": "Nothing prints.", "units": ["cups.service"]}
FIRMWARE = {"name": "firmware", "reason": "Too early.", "action": "disable", "units": ["fwupd-refresh.timer"]}
AUDIO = {"name": "audio", "reason": "No sound.", "user_units": ["pipewire.socket", "pipewire.service"]}
DESKTOP = {"name": "desktop", "reason": "Nobody looks.", "action": "stop", "units": ["gdm.service"]}
DISCOVERY = {"name": "discovery", "reason": "Noise.", "units": ["avahi-daemon.service"]}


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    fake = FakeSystemd()
    fake.record = str(tmp_path / "before.json")
    monkeypatch.setattr(headless_units, "Systemctl", lambda run: Systemctl(fake.run))
    monkeypatch.setattr(headless_units, "remember", partial(remember, path=fake.record))
    monkeypatch.setattr(headless_units, "NETDEVS", tmp_path / "net")
    monkeypatch.setattr(headless_units, "links_of", lambda name: {f"/etc/{name}": f"/lib/{name}"})
    # Ansible collects them for the whole process, which is one run everywhere else.
    fake.warnings = []
    monkeypatch.setattr(headless_units.AnsibleModule, "warn", lambda _, text: fake.warnings.append(text))
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
        "mask pipewire.service for all users",
        "stop pipewire.socket of user 1000",
        "stop pipewire.service of user 1000",
        "boot into multi-user.target",
    ]
    assert systemd.calls == [
        "--system mask cups.socket cups.service",
        "--system disable fwupd-refresh.timer",
        "--system stop cups.socket cups.service",
        "--global mask pipewire.socket pipewire.service",
        "--system set-default multi-user.target",
        "1000 daemon-reload",
        "1000 stop pipewire.socket pipewire.service",
    ]
    systemd.calls.clear()
    second = run(PRINT, FIRMWARE, AUDIO, **asked)
    assert (second["changed"], second["actions"], systemd.calls) == (False, [], [])


def test_what_was_there_is_recorded_once(systemd):
    run(PRINT, FIRMWARE, AUDIO, default_target="multi-user.target")
    systemd.states["--system"]["cups.service"] = "enabled"
    run(PRINT)
    found = load(systemd.record)
    timer = "fwupd-refresh.timer"
    assert found["units"] == {
        "cups.socket": {"state": "enabled", "active": True, "links": {}},
        "cups.service": {"state": "enabled", "active": True, "links": {}},
        timer: {"state": "enabled", "active": False, "links": {f"/etc/{timer}": f"/lib/{timer}"}},
    }
    assert found["user_units"] == {
        "pipewire.socket": {"state": "enabled", "active": False, "links": {}},
        "pipewire.service": {"state": "disabled", "active": False, "links": {}},
    }
    assert found["sessions"] == {
        "1000/pipewire.socket": {"user": 1000, "unit": "pipewire.socket"},
        "1000/pipewire.service": {"user": 1000, "unit": "pipewire.service"},
    }
    assert found["default_target"]["name"] == "graphical.target"


@pytest.mark.parametrize("life", range(7))
def test_a_run_that_was_killed_is_finished_by_the_next(systemd, life):
    """Whatever the first one got done: the second ends in the same state, and the record is that of before both."""
    asked = {"default_target": "multi-user.target"}
    systemd.life = life
    with pytest.raises(KeyboardInterrupt):
        run(PRINT, FIRMWARE, AUDIO, **asked)
    record = load(systemd.record)
    systemd.life = None

    assert "failed" not in run(PRINT, FIRMWARE, AUDIO, **asked)

    assert set(systemd.states["--system"].values()) == {"masked", "disabled", "enabled"}
    assert systemd.active == {"--system": {"ssh.service", "user@1000.service"}, "1000": set()}
    assert systemd.states["--global"] == {"pipewire.socket": "masked", "pipewire.service": "masked"}
    assert systemd.target == "multi-user.target"
    assert load(systemd.record) == record
    assert record["units"]["cups.service"] == {"state": "enabled", "active": True, "links": {}}


def test_check_mode_changes_and_records_nothing(systemd, tmp_path):
    found = run(PRINT, AUDIO, check_mode=True, default_target="multi-user.target")
    assert (found["changed"], systemd.calls, list(tmp_path.iterdir())) == (True, [], [])
    assert found["diff"] == {
        "before": (
            "cups.socket: enabled, active\ncups.service: enabled, active\npipewire.socket: enabled\n"
            "pipewire.service: disabled\npipewire.socket of user 1000: active\npipewire.service of user 1000: active\n"
            "boot: graphical.target\n"
        ),
        "after": (
            "cups.socket: masked\ncups.service: masked\npipewire.socket: masked\npipewire.service: masked\n"
            "pipewire.socket of user 1000: inactive\npipewire.service of user 1000: inactive\nboot: multi-user.target\n"
        ),
    }


def test_units_that_the_node_lacks_are_named_and_the_users_own_are_warned_about(systemd):
    found = run(
        {**PRINT, "units": ["cups.path", "cups.service"]}, more=[{**PRINT, "name": "x", "units": ["cpus.service"]}]
    )
    assert found["unknown"] == ["cpus.service", "cups.path"]
    assert systemd.warnings == ["headless_more names cpus.service, which this node lacks"]


def test_the_users_own_entries_come_first(systemd):
    assert run(PRINT, more=[{**PRINT, "action": "stop"}])["actions"] == ["stop cups.socket", "stop cups.service"]


def test_the_users_lists_win(systemd):
    assert run(PRINT, AUDIO, keep=["cups.service", "pipewire.*"])["actions"] == []
    assert run(PRINT, FIRMWARE, classes={"print": False})["actions"] == ["disable fwupd-refresh.timer"]


@pytest.mark.parametrize("target", ["", "graphical.target"])
def test_a_target_that_is_right_or_not_asked_for_is_left_alone(systemd, target):
    run(PRINT, default_target=target)
    assert systemd.target == "graphical.target"
    assert "default_target" not in load(systemd.record)


def test_a_policy_against_the_network_is_refused_before_anything_is_done(systemd):
    found = run(PRINT, {**PRINT, "units": ["NetworkManager.service"]})
    line = (
        "NetworkManager.service is to be turned off; limit: it must stay, as it may carry the management address; "
        "remedy: take it out of the policy"
    )
    assert (found["failed"], found["msg"], systemd.calls) == (True, line, [])


@pytest.mark.parametrize(
    ("state", "changed", "warnings"),
    [
        (None, ["stop wpa_supplicant.service"], []),
        ("down", ["stop wpa_supplicant.service"], []),
        ("up", [], ["wpa_supplicant.service stays on, because wlP9s9 is up and may carry the connection"]),
    ],
)
def test_wpa_supplicant_stays_while_wifi_is_up(systemd, tmp_path, state, changed, warnings):
    systemd.states["--system"]["wpa_supplicant.service"] = "disabled"
    systemd.active["--system"].add("wpa_supplicant.service")
    if state:
        (tmp_path / "net/wlP9s9/phy80211").mkdir(parents=True)
        (tmp_path / "net/wlP9s9/operstate").write_text(f"{state}\n")
    wifi = {"name": "wifi", "reason": "Cables.", "action": "stop", "units": ["wpa_supplicant.service"]}
    found = run(FIRMWARE, more=[wifi], keep=["fwupd*"])
    assert (found["actions"], systemd.warnings) == (changed, warnings)


@pytest.mark.parametrize(("end", "refused"), [(False, True), (True, False)])
def test_somebody_at_the_desktop_is_asked_about(systemd, end, refused):
    systemd.states["--system"]["gdm.service"] = "static"
    systemd.active["--system"].add("gdm.service")
    systemd.desktop = "Id=2\nName=ann\nType=wayland\nClass=user\n"
    found = run(PRINT, DESKTOP, end_sessions=end)
    assert found.get("failed", False) is refused
    assert (systemd.calls == []) is refused
    if refused:
        assert found["msg"].startswith("stopping gdm.service ends the desktop of ann (session 2, wayland); limit: ")


def test_a_name_in_local_keeps_what_resolves_it(systemd):
    systemd.states["--system"]["avahi-daemon.service"] = "enabled"
    found = run(DISCOVERY, local_names=["spark1.local"])
    assert found["actions"] == []
    assert systemd.warnings[0].startswith("avahi-daemon.service stays on, because the inventory uses spark1.local;")


def test_systemd_reads_nothing_again_while_the_engine_runs(systemd):
    systemd.states["--system"]["sparkwright-engine.service"] = "enabled"
    systemd.active["--system"].add("sparkwright-engine.service")
    options = []
    parse = systemd.parse
    systemd.parse = lambda argv: options.append([word for word in argv if word == "--no-reload"]) or parse(argv)
    run(PRINT, default_target="multi-user.target")
    assert sum(map(len, options)) == 2


def test_a_session_that_does_not_answer_is_only_warned_about(systemd):
    systemd.broken = ("1000 stop",)
    found = run(AUDIO)
    assert found["changed"]
    assert systemd.warnings[0].endswith("systemctl --user stop pipewire.socket pipewire.service failed: it is broken")
    systemd.broken = ("1000 list-units",)
    assert run(AUDIO)["actions"] == []


def test_what_systemd_refuses_is_said_in_one_line(systemd):
    systemd.broken = ("--system mask",)
    found = run(PRINT)
    assert found["msg"] == "systemctl --system mask cups.socket cups.service failed: it is broken"


def test_the_shipped_policy_is_one_that_the_module_takes(systemd):
    shipped = yaml.safe_load((REPO / "roles/headless/vars/main.yml").read_text())["__headless_policy"]
    assert "failed" not in run(*shipped)


def test_a_record_of_another_release_stops_before_anything_is_done(systemd, tmp_path):
    (tmp_path / "before.json").write_text('{"schema": 99}')
    found = run(PRINT)
    assert found["failed"]
    assert found["msg"].endswith("before.json has schema 99, this release reads 1")
    assert systemd.calls == []
