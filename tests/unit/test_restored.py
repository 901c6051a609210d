"""The module that puts a node back, against a systemd that only remembers and files of the test's own."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_systemd import FakeSystemd
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils import recorded
from ansible_collections.sparkwright.cluster.plugins.module_utils.systemd import Systemctl
from ansible_collections.sparkwright.cluster.plugins.modules import headless_units, restored

POLICY = [
    {"name": "print", "reason": "Nothing prints.", "units": ["cups.service"]},
    {"name": "firmware", "reason": "Early.", "action": "disable", "units": ["fwupd-refresh.timer"]},
    {"name": "audio", "reason": "No sound.", "user_units": ["pipewire.socket", "pipewire.service"]},
]
READ = "sysctl -n vm/swappiness"
WRITE = "sysctl -w vm/swappiness=60"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with a user's file, on which nothing of ours is yet."""
    systemd = FakeSystemd()
    systemd.link = tmp_path / "etc/default.target"
    record = tmp_path / "state/before.json"
    for module in (headless_units, restored):
        monkeypatch.setattr(module, "Systemctl", lambda run: Systemctl(systemd.run))
        monkeypatch.setattr(module, "DEFAULT_TARGET", systemd.link)
    monkeypatch.setattr(headless_units, "remember", partial(recorded.remember, path=str(record)))
    monkeypatch.setattr(headless_units, "links_of", lambda name: {})
    monkeypatch.setattr(headless_units, "NETDEVS", tmp_path / "net")
    monkeypatch.setattr(restored, "RECORD_FILE", str(record))
    facts = {"serving": {"unit": "inactive"}, "runtime": {"containers": []}}
    monkeypatch.setattr(restored, "NodeReader", lambda: SimpleNamespace(read=lambda subsets: facts))
    systemd.warnings = []
    monkeypatch.setattr(restored.AnsibleModule, "warn", lambda _, text: systemd.warnings.append(text))
    user = tmp_path / "etc/user.conf"
    user.parent.mkdir()
    user.write_bytes(b"the user's\xff\r\n")
    user.chmod(0o640)
    return SimpleNamespace(systemd=systemd, record=record, facts=facts, root=tmp_path, user=user)


def provision(node, *more):
    """What roles do: files of ours, units off, a kernel setting changed."""
    own = node.root / "etc/sparkwright/deep/nccl.env"
    paths = [node.user, own, *more]
    recorded.remember("files", {str(path): recorded.file_entry(path) for path in paths}, str(node.record))
    recorded.remember("sysctl", {"vm/swappiness": {"value": "60"}}, str(node.record))
    for path in paths:
        recorded.write_atomically(path, b"ours\n", 0o600)
    asked = {"policy": POLICY, "default_target": "multi-user.target"}
    assert "failed" not in run_module(headless_units.main, **asked)
    node.systemd.prints[READ] = "1\n"
    node.systemd.calls.clear()


def snapshot(node):
    files = {
        str(path): (path.stat().st_mode, path.stat().st_uid, path.read_bytes()) if path.is_file() else path.is_symlink()
        for path in (node.root / "etc").rglob("*")
    }
    systemd = node.systemd
    return files, systemd.states, systemd.active, systemd.target


def copied(state):
    files, states, active, target = state
    return files, {k: dict(v) for k, v in states.items()}, {k: set(v) for k, v in active.items()}, target


def restore(node, check_mode=False, **arguments):
    found = run_module(restored.main, check_mode, **arguments)
    if WRITE in node.systemd.calls:
        node.systemd.prints[READ] = "60\n"
    return found


def test_everything_is_as_before_and_a_second_time_changes_nothing(node):
    before = copied(snapshot(node))
    provision(node)
    assert snapshot(node) != before

    found = restore(node)

    assert (found["changed"], found["netplan"], found["aside"]) == (True, False, f"{node.record}.restored")
    assert snapshot(node) == before
    assert node.systemd.calls == [
        "--system daemon-reload",
        "--system unmask cups.service cups.socket",
        "--system enable fwupd-refresh.timer",
        "--global unmask pipewire.service pipewire.socket",
        "--system daemon-reload",
        "--system start cups.socket cups.service",
        "1000 daemon-reload",
        "1000 start pipewire.socket pipewire.service",
        WRITE,
    ]
    node.systemd.calls.clear()
    again = restore(node)
    assert (again["changed"], again["table"], node.systemd.calls) == (
        False,
        ["nothing is recorded, so there is nothing to put back"],
        [],
    )


def test_what_was_set_by_a_link_is_set_again(node):
    node.systemd.link.symlink_to("graphical.target")
    provision(node)
    restore(node)
    assert node.systemd.target == "graphical.target"
    assert "--system set-default graphical.target" in node.systemd.calls


def test_check_mode_shows_all_and_changes_nothing(node):
    provision(node)
    state = copied(snapshot(node))
    text = node.record.read_text()
    found = restore(node, check_mode=True)
    assert (found["changed"], found["aside"], node.systemd.calls) == (True, "", [])
    assert (snapshot(node), node.record.read_text()) == (state, text)
    lines = [" ".join(line.split()) for line in found["table"]]
    assert "cups.socket masked enabled, active" in lines
    assert "fwupd-refresh.timer disabled enabled" in lines
    assert "pipewire.service for all users masked disabled" in lines
    assert "pipewire.socket of user 1000 inactive active" in lines
    assert "boot multi-user.target graphical.target" in lines
    assert "vm/swappiness 1 60" in lines
    assert f"{node.user} 0600 {os.getuid()}:{os.getgid()} 5 bytes 0640 {os.getuid()}:{os.getgid()} 13 bytes" in lines
    texts = {diff["after_header"]: diff["after"] for diff in found["diff"] if "after_header" in diff}
    assert texts[str(node.user)].endswith("the user's\N{REPLACEMENT CHARACTER}\r\n")
    assert "vm/swappiness: 1\n" in found["diff"][-1]["before"]


@pytest.mark.parametrize("life", range(9))
def test_a_restore_that_was_killed_is_finished_by_the_next(node, life):
    before = copied(snapshot(node))
    provision(node)
    node.systemd.life = life
    with pytest.raises(KeyboardInterrupt):
        restore(node)
    node.systemd.life = None
    if WRITE in node.systemd.calls:
        node.systemd.prints[READ] = "60\n"

    assert "failed" not in restore(node)

    assert snapshot(node) == before
    assert not node.record.exists()


def test_a_run_that_was_killed_half_way_is_put_back(node):
    before = copied(snapshot(node))
    node.systemd.life = 2
    with pytest.raises(KeyboardInterrupt):
        provision(node)
    node.systemd.life = None
    node.systemd.prints[READ] = "60\n"
    assert "failed" not in restore(node)
    assert snapshot(node) == before


def test_what_a_file_held_until_now_is_kept(node):
    provision(node)
    node.user.write_text("edited since\n")
    restore(node)
    kept = recorded.load(f"{node.record}.restored")["replaced"][str(node.user)]
    assert recorded.base64.b64decode(kept["content"]) == b"edited since\n"


def test_a_folder_with_something_else_in_it_stays(node):
    provision(node)
    other = node.root / "etc/sparkwright/notes"
    other.write_text("the user's\n")
    restore(node)
    assert (other.read_text(), (other.parent / "deep").exists()) == ("the user's\n", False)


def test_a_new_run_records_anew(node):
    provision(node)
    restore(node)
    node.user.write_text("newer\n")
    provision(node)
    restore(node)
    assert node.user.read_text() == "newer\n"


@pytest.mark.parametrize(
    ("unit", "containers"),
    [("active", []), ("activating", []), ("inactive", [{"name": "sparkwright-engine", "state": "running"}])],
)
@pytest.mark.parametrize("check_mode", [True, False])
def test_nothing_is_put_back_under_the_engine(node, unit, containers, check_mode):
    provision(node)
    node.facts["serving"]["unit"], node.facts["runtime"]["containers"] = unit, containers
    found = restore(node, check_mode)
    assert found["msg"] == (
        f"the engine serves, sparkwright-engine.service is {unit}; limit: nothing is put back under it; "
        "remedy: run playbooks/stop.yml first"
    )
    assert node.systemd.calls == []


def test_docker_is_restarted_once_and_only_for_its_own_file(node, monkeypatch):
    daemon = node.root / "etc/daemon.json"
    monkeypatch.setitem(restored.plan.__globals__["FOLLOWS"], str(daemon), "docker")
    provision(node, daemon)
    node.systemd.broken = (WRITE,)
    restore(node)
    assert "--system restart docker.service" in node.systemd.calls
    node.systemd.calls.clear()
    node.systemd.broken = ()
    restore(node)
    assert node.systemd.calls[-1] == WRITE
    assert "--system restart docker.service" not in node.systemd.calls


def test_netplan_is_asked_for_before_the_links_are_put_back(node, monkeypatch):
    netplan = node.root / "etc/netplan/60-sparkwright.yaml"
    monkeypatch.setitem(restored.plan.__globals__["FOLLOWS"], str(netplan.parent), "netplan")
    provision(node, netplan)
    first = restore(node)
    assert (first["netplan"], first["aside"], WRITE in node.systemd.calls) == (True, "", False)
    assert not netplan.exists()
    # Also when the play was ended in between: the file is gone, and netplan must still be applied.
    assert restore(node)["netplan"]
    last = restore(node, netplan_applied=True)
    assert (last["netplan"], last["aside"], WRITE in node.systemd.calls) == (False, f"{node.record}.restored", True)


def test_what_fails_is_named_and_the_rest_is_done(node):
    provision(node)
    node.systemd.broken = ("--system unmask",)
    found = restore(node)
    assert found["msg"].splitlines() == [
        "systemctl --system unmask cups.service cups.socket failed: it is broken",
        "the record is kept: run it again",
    ]
    assert node.record.exists()
    assert (node.systemd.states["--system"]["fwupd-refresh.timer"], WRITE in node.systemd.calls) == ("enabled", True)


def test_a_service_that_does_not_start_any_more_stops_nobody(node):
    provision(node)
    node.systemd.broken = ("--system start",)
    found = restore(node)
    assert "failed" not in found
    assert node.systemd.warnings == ["systemctl --system start cups.socket cups.service failed: it is broken"]


def test_links_of_a_unit_are_put_back_as_they_were(node, monkeypatch):
    link = node.root / "etc/timers.target.wants/fwupd-refresh.timer"
    monkeypatch.setattr(headless_units, "links_of", lambda name: {str(link): f"/lib/systemd/system/{name}"})
    provision(node)
    restore(node)
    assert str(link.readlink()) == "/lib/systemd/system/fwupd-refresh.timer"
    assert not [call for call in node.systemd.calls if " enable " in call]


def test_our_unit_is_stopped_and_disabled_before_its_file_goes(node, monkeypatch):
    unit = node.root / "etc/sparkwright-engine.service"
    monkeypatch.setattr(restored, "OWN_UNITS", (str(unit),))
    provision(node, unit)
    node.systemd.active["--system"].add(unit.name)
    restore(node)
    assert unit.name not in node.systemd.active["--system"]
    assert node.systemd.calls[:2] == ["--system disable sparkwright-engine.service", "--system daemon-reload"]
    assert not unit.exists()


def test_a_record_with_a_section_of_another_release_is_refused(node):
    provision(node)
    recorded.remember("magic", {"a": {}}, str(node.record))
    found = restore(node)
    assert found["msg"].startswith("the record has the section magic; limit: ")
    assert node.systemd.calls == []


def test_a_link_stays_and_its_target_is_put_back(node):
    link = node.root / "etc/link.conf"
    link.symlink_to(Path("user.conf"))
    recorded.remember("files", {str(link): recorded.file_entry(link)}, str(node.record))
    recorded.write_atomically(link, b"ours\n", 0o600)
    assert "failed" not in restore(node)
    assert link.is_symlink()
    assert (node.user.read_bytes(), node.user.stat().st_mode & 0o777) == (b"the user's\xff\r\n", 0o640)
