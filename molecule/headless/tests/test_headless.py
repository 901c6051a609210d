from __future__ import annotations

import json

import pytest

# Of every class at least one unit; a service together with its socket or path, and some that are only one of these.
MASKED = {
    "desktop": ("accounts-daemon.service",),
    "audio": ("rtkit-daemon.service",),
    "print": ("cups.service", "cups.socket", "cups.path", "cups-browsed.service"),
    "discovery": ("avahi-daemon.service", "avahi-daemon.socket"),
    "bluetooth": ("bluetooth.service",),
    "modem": ("ModemManager.service",),
    "colour": ("colord.service",),
    "packages": ("packagekit.service",),
    "snaps": ("snapd.service", "snapd.socket", "snap.hello.daemon.service"),
    "crash-reports": ("apport-forward.socket", "whoopsie.service", "whoopsie.path", "kerneloops.service"),
    "telemetry": ("ua-timer.timer",),
    "storage": ("udisks2.service", "multipathd.service", "multipathd.socket"),
    "own": ("lonely.socket",),
}
DISABLED = (
    "fwupd-refresh.timer",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "unattended-upgrades.service",
    "dgx-dashboard.service",
    "dgx-dashboard-admin.service",
    # Its file lies where a mask would have to lie.
    "own.service",
)
STOPPED = {"gdm.service": "static", "fwupd.service": "static"}
KEPT = ("ssh.service", "docker.service", "systemd-networkd.service", "dbus.service", "polkit.service", "upower.service")
USER_UNITS = ("pipewire.socket", "pipewire.service", "pipewire-pulse.socket", "wireplumber.service")


def state(host, unit):
    return host.run("systemctl is-enabled %s", unit).stdout.strip()


def active(host, unit):
    return host.run("systemctl is-active %s", unit).stdout.strip()


@pytest.mark.parametrize("unit", [unit for units in MASKED.values() for unit in units])
def test_units_of_each_class_are_masked_and_not_running(host, unit):
    assert (state(host, unit), active(host, unit) in ("inactive", "failed")) == ("masked", True)


@pytest.mark.parametrize("unit", DISABLED)
def test_what_may_still_be_started_by_hand_is_disabled(host, unit):
    # The virtual machines of the lab have masked some timers beforehand.
    assert (state(host, unit) in ("disabled", "masked"), active(host, unit)) == (True, "inactive")


@pytest.mark.parametrize("unit", STOPPED)
def test_static_units_are_only_stopped(host, unit):
    assert (state(host, unit), active(host, unit)) == (STOPPED[unit], "inactive")


@pytest.mark.parametrize("unit", KEPT)
def test_what_the_node_lives_on_runs(host, unit):
    assert host.service(unit).is_running


def test_nothing_listens_for_printers_or_names(host):
    assert not host.socket("tcp://127.0.0.1:631").is_listening
    assert not host.socket("tcp://127.0.0.1:6311").is_listening
    assert host.run("pgrep --exact 'cupsd|cups-browsed|avahi-daemon|ModemManager|colord|udisksd'").rc == 1


@pytest.mark.parametrize("unit", USER_UNITS)
def test_users_sessions_start_no_audio(host, unit):
    assert host.run("systemctl --global is-enabled %s", unit).stdout.strip() == "masked"


def test_the_session_that_runs_plays_no_audio_any_more(host):
    assert host.run("pgrep --exact 'pipewire|pipewire-pulse|wireplumber|xdg-desktop-por'").rc == 1
    user = host.check_output("id -u spark")
    assert host.service(f"user@{user}.service").is_running


def test_the_node_boots_without_a_desktop(host):
    assert host.run("systemctl get-default").stdout.strip() == "multi-user.target"


def test_the_record_has_the_state_of_before_and_not_ours(host):
    record = json.loads(host.file("/var/lib/sparkwright/before.json").content_string)
    assert record["units"]["cups.service"] == {"active": True, "links": {}, "state": "enabled"}
    assert record["units"]["gdm.service"] == {"active": True, "links": {}, "state": "static"}
    assert record["units"]["lonely.socket"] == {"active": True, "links": {}, "state": "enabled"}
    assert record["default_target"]["name"] == "graphical.target"
    assert {"user": 1000, "unit": "pipewire.socket"} in record["sessions"].values()
    # Kept, never ours, or masked by somebody else.
    for unit in ("ssh.service", "upower.service", "packagekit-offline-update.service"):
        assert unit not in record["units"]
