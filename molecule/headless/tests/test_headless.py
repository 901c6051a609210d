from __future__ import annotations

import json

import pytest

GONE = (
    "cups.service",
    "cups.socket",
    "cups.path",
    "avahi-daemon.service",
    "avahi-daemon.socket",
    "ModemManager.service",
)
KEPT = ("ssh.service", "docker.service", "systemd-networkd.service", "dbus.service")


@pytest.mark.parametrize("unit", GONE)
def test_units_of_the_desktop_are_masked_and_not_running(host, unit):
    assert host.run("systemctl is-enabled %s", unit).stdout.strip() == "masked"
    assert host.run("systemctl is-active %s", unit).stdout.strip() in ("inactive", "failed")


@pytest.mark.parametrize("unit", KEPT)
def test_what_the_node_lives_on_runs(host, unit):
    assert host.service(unit).is_running


def test_firmware_updates_stay_possible(host):
    assert host.run("systemctl is-enabled fwupd.service").stdout.strip() == "static"
    assert host.run("systemctl is-enabled fwupd-refresh.timer").stdout.strip() == "disabled"


def test_nothing_listens_for_printers_or_names(host):
    assert not host.socket("tcp://127.0.0.1:631").is_listening
    assert host.run("pgrep --exact 'cupsd|cups-browsed|avahi-daemon|ModemManager|colord|udisksd'").rc == 1


def test_users_sessions_start_no_audio(host):
    assert host.run("systemctl --global is-enabled pipewire.socket").stdout.strip() == "masked"


def test_the_node_boots_without_a_desktop(host):
    assert host.run("systemctl get-default").stdout.strip() == "multi-user.target"


def test_the_record_has_the_state_of_before_and_not_ours(host):
    record = json.loads(host.file("/var/lib/sparkwright/before.json").content_string)
    assert record["units"]["cups.service"] == {"active": True, "state": "enabled"}
    assert record["default_target"]["name"] == "graphical.target"
    assert "ssh.service" not in record["units"]
