"""How mounts and exports of ours are taken back."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.restore import UNDO
from ansible_collections.sparkwright.cluster.plugins.module_utils.share_undo import SHARE

TOOLS = ("systemctl", "umount", "findmnt", "exportfs", "mount")


@pytest.fixture
def path(tmp_path):
    """A PATH whose tools write down how they were called; a file fail-<tool> makes one fail."""
    for tool in TOOLS:
        script = tmp_path / tool
        script.write_text(f'#!/bin/sh\necho {tool} "$@" >>"{tmp_path}/log"\ntest ! -e "{tmp_path}/fail-{tool}"\n')
        script.chmod(0o755)
    return tmp_path


def run(step, path):
    environment = {"PATH": f"{path}:/usr/bin:/bin"}
    done = subprocess.run(step.argv, env=environment, capture_output=True, text=True, check=False)
    log = path / "log"
    return done.returncode, log.read_text().splitlines() if log.exists() else []


def test_every_section_can_be_undone():
    assert SHARE.items() <= UNDO.items()


def test_a_mount_goes_before_its_units_do(path):
    (step,) = SHARE["nfs_mount"]({"/models": {"unit": "models.mount"}})
    assert (step.what, step.before, step.early) == ("/models", "not mounted", True)
    code, log = run(step, path)
    assert code == 0
    assert log == [
        "systemctl kill --signal=KILL models.mount",
        "findmnt --mountpoint /models --types nfs,nfs4",
        "umount --force --lazy /models",
    ]


def test_what_is_not_mounted_is_not_unmounted(path):
    (path / "fail-findmnt").touch()
    code, log = run(SHARE["nfs_mount"]({"/models": {"unit": "models.mount"}})[0], path)
    assert code == 0
    assert not [line for line in log if line.startswith("umount")]


THEIRS = {"unit": "models.mount", "source": "10.0.0.9:/tank", "options": "rw,vers=4.1"}
BY_UNIT = "systemctl start models.mount"
BY_HAND = "mount --types nfs --options rw,vers=4.1 10.0.0.9:/tank /models"


@pytest.mark.parametrize(
    ("fails", "calls"),
    [([], []), (["findmnt"], [BY_UNIT]), (["findmnt", "systemctl"], [BY_UNIT, BY_HAND])],
    ids=["it is there", "by its unit", "by hand"],
)
def test_a_mount_of_the_users_comes_back_after_the_files(path, fails, calls):
    _, step = SHARE["nfs_mount"]({"/models": THEIRS})
    assert (step.what, step.before, step.early) == ("/models", "mounted from 10.0.0.9:/tank", False)
    for tool in fails:
        (path / f"fail-{tool}").touch()
    assert run(step, path) == (0, ["findmnt --mountpoint /models", *calls])


def test_a_server_that_was_not_there_is_off_again(path):
    (step,) = SHARE["nfs_server"]({"nfs-server.service": {"active": False}})
    assert (step.before, step.early) == ("off", False)
    assert run(step, path) == (
        0,
        ["systemctl cat nfs-server.service", "systemctl disable --now nfs-server.service"],
    )


def test_a_server_that_ran_gets_its_own_settings_and_exports(path):
    steps = SHARE["nfs_server"]({"nfs-server.service": {"active": True}})
    assert [step.what for step in steps] == ["nfs-server.service", "exports"]
    for step in steps:
        code, log = run(step, path)
        assert code == 0
    assert log[1:] == ["systemctl restart -- nfs-server.service", "exportfs -ra"]


def test_a_server_whose_package_is_gone_needs_nothing(path):
    (path / "fail-systemctl").touch()
    code, log = run(SHARE["nfs_server"]({"nfs-server.service": {"active": False}})[0], path)
    assert (code, log) == (0, ["systemctl cat nfs-server.service"])
