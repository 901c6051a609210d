from __future__ import annotations

import json

import pytest

FILES = {
    "/etc/sysctl.d/99-sparkwright.conf": "vm.swappiness = 1",
    "/etc/systemd/journald.conf.d/60-sparkwright.conf": "SystemMaxUse=256M",
    "/etc/systemd/system/ssh.service.d/60-sparkwright.conf": "MemoryMin=64M",
    "/etc/systemd/system/system.slice.d/60-sparkwright.conf": "MemoryMin=64M",
}


@pytest.mark.parametrize("path", FILES)
def test_a_drop_in_is_there(host, path):
    file = host.file(path)
    assert FILES[path] in file.content_string.splitlines()
    assert (file.mode, file.user) == (0o644, "root")


def test_systemd_has_read_the_protection_of_ssh(host):
    shown = host.check_output("systemctl show ssh.service system.slice --property=MemoryMin")
    assert shown.split() == ["MemoryMin=67108864", "MemoryMin=67108864"]


def test_journald_started_after_its_cap_was_written(host):
    started = host.check_output('date +%s --date "$(systemctl show -P ExecMainStartTimestamp systemd-journald)"')
    written = host.check_output("stat --format %Y /etc/systemd/journald.conf.d/60-sparkwright.conf")
    assert int(started) >= int(written)


def test_limits_that_a_container_may_not_raise_are_not_written(host):
    """They would refuse every login."""
    assert not host.file("/etc/security/limits.d/60-sparkwright.conf").exists


def test_what_is_not_ours_is_left_alone(host):
    """The kernel is the machine's, there is no boot loader, and nothing is installed."""
    assert not host.file("/etc/default/grub.d/60-sparkwright.cfg").exists
    assert not host.file("/usr/bin/earlyoom").exists


def test_the_record_has_the_first_footprint(host):
    record = json.loads(host.file("/var/lib/sparkwright/before.json").content_string)
    first = record["footprint"]["first"]
    assert "cups.service" in first["units"]
    assert any("cupsd" in listener or listener.startswith("tcp 127.0.0.1:631") for listener in first["listeners"])
