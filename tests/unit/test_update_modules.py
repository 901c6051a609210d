"""The modules of updates: the note, holds, the kernel of before, and apt with commands that only answer."""

from __future__ import annotations

import json

import pytest
from module_runner import run_module
from test_boot_menu import NEW, OLD, OLD_PATH, menu

from ansible_collections.sparkwright.cluster.plugins.module_utils import apt_lock
from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_simulation import parse_simulation
from ansible_collections.sparkwright.cluster.plugins.modules import (
    apt_holds,
    apt_plan,
    apt_upgrade,
    baseline,
    boot_once,
)

PLAN = "Inst runc [1.2] (1.3 Ubuntu:24.04/noble [arm64])\nConf runc (1.3 Ubuntu:24.04/noble [arm64])\n"
SIMULATE = "apt-get --simulate"
HALF = "Conf half (1.0  [all])\n"


class Commands:
    """Answers commands by their beginning, and remembers all of them."""

    def __init__(self, answers):
        self.answers, self.ran = answers, []

    def __call__(self, module, argv, **_):
        self.ran.append(" ".join(argv))
        found = next((answer for start, answer in self.answers.items() if self.ran[-1].startswith(start)), "")
        return found if isinstance(found, tuple) else (0, found, "")


@pytest.fixture
def commands(monkeypatch):
    def use(module, answers=None):
        run = Commands(answers or {})
        monkeypatch.setattr(module.AnsibleModule, "run_command", lambda self, argv, **more: run(self, argv, **more))
        return run

    return use


# --- the note -------------------------------------------------------------------------------------------------------


def test_the_note_is_written_once_and_again_when_something_differs(tmp_path, monkeypatch):
    note = tmp_path / "provisioned.json"
    monkeypatch.setattr(baseline, "NOTE", note)

    def write(items, **more):
        return run_module(baseline.main, facts="x", items=items, evidence={"profile": "p"}, **more)

    assert write({"kernel": "1"}, check_mode=True)["changed"]
    assert not note.exists()
    assert write({"kernel": "1", "memory total": "127590000 kB"})["changed"]
    first = note.read_text()
    assert json.loads(first)["evidence"] == {"profile": "p"}
    assert not write({"kernel": "1", "memory total": "127590100 kB"})["changed"]
    assert note.read_text() == first
    found = write({"kernel": "2", "memory total": "127590000 kB"})
    assert (found["changed"], found["differs"]) == (True, ["kernel"])
    note.write_text("half a no")
    assert write({"kernel": "2"})["changed"]


# --- the kernel of before -------------------------------------------------------------------------------------------


@pytest.fixture
def boot(tmp_path, monkeypatch):
    places = {name: tmp_path / name.lower() for name in ("MENU", "ENVIRONMENT", "NOTE")}
    for name, path in places.items():
        monkeypatch.setattr(boot_once, name, path)
    places["MENU"].write_text(menu())
    places["NOTE"].write_text(json.dumps({"schema": 1, "items": {"kernel": OLD}}))
    monkeypatch.setattr(boot_once.AnsibleModule, "get_bin_path", lambda self, name: f"/usr/sbin/{name}")
    return places


def test_the_kernel_of_the_note_is_selected_for_one_boot(boot, commands):
    run = commands(boot_once)
    found = run_module(boot_once.main)
    assert (found["changed"], found["kernel"]) == (True, OLD)
    assert run.ran == [f"/usr/sbin/grub-reboot {OLD_PATH}"]
    boot["ENVIRONMENT"].write_text(f"next_entry={OLD_PATH}\n")
    assert not run_module(boot_once.main)["changed"]


def test_a_kernel_that_was_selected_for_one_boot_is_taken_back(boot, commands):
    run = commands(boot_once)
    assert not run_module(boot_once.main, take_back=True)["changed"]
    boot["ENVIRONMENT"].write_text("next_entry=2\n")
    assert not run_module(boot_once.main, take_back=True)["changed"]
    boot["ENVIRONMENT"].write_text(f"next_entry={OLD_PATH}\n")
    assert run_module(boot_once.main, take_back=True, check_mode=True)["changed"]
    assert run.ran == []
    assert run_module(boot_once.main, take_back=True)["reason"] == "the next boot is as ever"
    assert run.ran == [f"grub-editenv {boot['ENVIRONMENT']} unset next_entry"]


@pytest.mark.parametrize(
    ("change", "arguments", "reason"),
    [
        ("NOTE", {}, "no note says with which kernel it served"),
        ("MENU", {}, f"the boot loader has no entry for kernel {OLD}"),
        (None, {"kernel": "1.0"}, "the boot loader has no entry for kernel 1.0"),
        (None, {"kernel": NEW}, f"the next boot starts kernel {NEW} anyway"),
    ],
)
def test_what_cannot_be_selected_has_its_reason(boot, commands, change, arguments, reason):
    run = commands(boot_once)
    if change:
        boot[change].unlink()
    found = run_module(boot_once.main, **arguments)
    assert (found["changed"], found["reason"], run.ran) == (False, reason, [])


# --- holds ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def record(monkeypatch):
    kept = {}
    monkeypatch.setattr(apt_holds, "wait_until_free", lambda seconds: [])
    monkeypatch.setattr(apt_holds, "load", lambda: {"holds": dict(kept)})
    monkeypatch.setattr(apt_holds, "remember", lambda _, entries: kept.update(entries))
    monkeypatch.setattr(apt_holds, "forget", lambda _, name: kept.pop(name, None))
    return kept


def test_packages_are_held_with_their_day_and_let_go_again(record, commands):
    run = commands(apt_holds, {"dpkg-query": "ii  runc 1.2\nhi  bash 5\n"})
    assert run_module(apt_holds.main, packages=["runc", "bash"])["held"] == ["runc"]
    assert run.ran[-1] == "apt-mark hold runc"
    assert list(record) == ["runc"]
    run = commands(apt_holds, {"dpkg-query": "hi  runc 1.2\nhi  bash 5\n"})
    assert not run_module(apt_holds.main, packages=["runc", "bash"])["changed"]
    assert run_module(apt_holds.main, packages=[])["let_go"] == ["runc"]
    assert run.ran[-1] == "apt-mark unhold runc"
    assert record == {}


def test_a_hold_waits_for_the_lock_and_only_when_there_is_something_to_do(record, commands, monkeypatch):
    def never(seconds):
        raise apt_lock.LockedError(f"apt-get (pid 7) holds /lock after {seconds:.0f} s")

    monkeypatch.setattr(apt_holds, "wait_until_free", never)
    run = commands(apt_holds, {"dpkg-query": "ii  runc 1.2\nhi  bash 5\n"})
    assert not run_module(apt_holds.main, packages=["bash"])["changed"]
    assert run_module(apt_holds.main, packages=["runc"], check_mode=True)["changed"]
    found = run_module(apt_holds.main, packages=["runc"], lock_minutes=2)
    assert (found["failed"], found["msg"]) == (True, "apt-get (pid 7) holds /lock after 120 s")
    assert record == {}
    assert not any(command.startswith("apt-mark") for command in run.ran)


def test_a_package_that_is_not_installed_is_no_hold(record, commands):
    commands(apt_holds, {"dpkg-query": "ii  runc 1.2\n"})
    found = run_module(apt_holds.main, packages=["rnuc"])
    assert found["failed"]
    assert found["msg"].startswith("os_update_hold names rnuc, which is not installed here; limit: exact names")
    assert record == {}


# --- apt ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def free(monkeypatch):
    for module in (apt_plan, apt_upgrade):
        monkeypatch.setattr(module, "wait_until_free", lambda seconds: ["waited 3 s: apt (pid 1) holds /lock"])
    monkeypatch.setattr(apt_plan.AnsibleModule, "get_bin_path", lambda self, name: name)


@pytest.mark.usefixtures("free")
def test_a_plan_with_who_was_waited_for_and_the_firmware(commands):
    device = {"Name": "ConnectX-7", "Version": "28.45", "Releases": [{"Version": "28.46"}, {"Version": "28.40"}]}
    known = json.dumps({"Devices": [device, {"Name": "other"}]})
    idle = {"systemctl is-active": (3, "", "")}
    run = commands(apt_plan, {SIMULATE: PLAN, "timeout 60 fwupdmgr get-updates": known, **idle})
    found = run_module(apt_plan.main)
    assert found["plan"]["install"] == {"runc": {"old": "1.2", "new": "1.3"}}
    assert found["digest"] == parse_simulation(PLAN).digest
    assert found["waited"] == ["waited 3 s: apt (pid 1) holds /lock"]
    assert found["firmware"] == ["ConnectX-7: 28.45 -> 28.46"]
    assert not found["changed"]
    assert "apt-get -o APT::Update::Error-Mode=any update" in run.ran
    assert run.ran[-3:] == [
        "timeout 60 fwupdmgr refresh",
        "timeout 60 fwupdmgr get-updates --json",
        "systemctl stop fwupd.service",
    ]
    run.ran.clear()
    run_module(apt_plan.main, check_mode=True)
    assert not any("update" in command and "--json" not in command for command in run.ran)
    assert not any("refresh" in command for command in run.ran)


@pytest.mark.usefixtures("free")
def test_a_fwupd_that_runs_goes_on(commands):
    run = commands(apt_plan, {SIMULATE: PLAN})
    run_module(apt_plan.main)
    assert run.ran[-1] == "timeout 60 fwupdmgr get-updates --json"


@pytest.mark.usefixtures("free")
def test_lists_that_cannot_be_fetched_are_an_error(commands):
    commands(apt_plan, {"apt-get -o": (100, "", "E: Failed to fetch\nE: Some index files failed")})
    found = run_module(apt_plan.main)
    assert found["msg"].startswith("refreshing the package lists failed: E: Failed to fetch E: Some index files failed")


def test_a_lock_that_stays_held_is_named(monkeypatch, commands):
    def never(seconds):
        raise apt_lock.LockedError(f"apt-get (pid 7) holds /lock after {seconds:.0f} s")

    monkeypatch.setattr(apt_plan, "wait_until_free", never)
    run = commands(apt_plan)
    found = run_module(apt_plan.main, lock_minutes=2)
    assert (found["failed"], found["msg"], run.ran) == (True, "apt-get (pid 7) holds /lock after 120 s", [])


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("simulated", "step", "ran"),
    [
        (PLAN, "download", ["apt-get -y"]),
        (PLAN, "install", ["apt-get -y"]),
        ("", "download", []),
        ("", "install", []),
        (HALF, "download", []),
        (HALF, "install", ["dpkg --configure -a", "apt-get -y"]),
    ],
)
def test_what_is_run(commands, simulated, step, ran):
    run = commands(apt_upgrade, {SIMULATE: simulated})
    found = run_module(apt_upgrade.main, step=step, digest=parse_simulation(simulated).digest)
    assert found["changed"] is bool(ran)
    assert [command[: len(start)] for command, start in zip(run.ran[1:], ran, strict=True)] == ran
    run.ran.clear()
    checked = run_module(apt_upgrade.main, check_mode=True, step=step, digest=parse_simulation(simulated).digest)
    assert checked["changed"] is bool(ran)
    assert len(run.ran) == 1


@pytest.mark.parametrize("argv", [apt_upgrade.SIMULATE, apt_upgrade.DOWNLOAD, apt_upgrade.INSTALL])
def test_all_nodes_get_updates_that_ubuntu_gives_out_by_and_by_at_once(argv):
    assert "APT::Machine-ID=537061726b7772696768740000000000" in argv


@pytest.mark.usefixtures("free")
def test_another_plan_than_the_agreed_one_is_refused(commands):
    run = commands(apt_upgrade, {SIMULATE: PLAN})
    found = run_module(apt_upgrade.main, step="install", digest="something else")
    assert found["msg"].startswith("apt would do something else than what was shown")
    assert len(run.ran) == 1


@pytest.mark.usefixtures("free")
def test_a_package_that_cannot_be_installed_shows_the_last_lines(commands):
    commands(apt_upgrade, {SIMULATE: PLAN, "apt-get -y": (100, "Setting up runc\n", "E: postinst failed\n")})
    found = run_module(apt_upgrade.main, step="install", digest=parse_simulation(PLAN).digest)
    assert "failed: Setting up runc | E: postinst failed; remedy: repair it by hand" in found["msg"]
