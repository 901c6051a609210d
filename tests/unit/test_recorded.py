"""The record of what was there before: written once, atomically, and never overwritten."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import (
    file_entry,
    link_entries,
    link_names,
    load,
    remember,
    set_aside,
    setting_entries,
    write_atomically,
)


@pytest.fixture
def record(tmp_path):
    return tmp_path / "state" / "before.json"


def mode(path):
    return path.stat().st_mode & 0o7777


def test_no_record_yet(record):
    assert load(str(record)) == {"schema": 1, "files": {}, "units": {}, "user_units": {}}


def test_entries_are_kept_and_named(record):
    assert remember("units", {"b": {"active": True}, "a": {"active": False}}, str(record)) == ["a", "b"]
    assert load(str(record))["units"] == {"a": {"active": False}, "b": {"active": True}}
    assert mode(record) == 0o600


def test_an_entry_is_never_overwritten(record):
    remember("files", {"/etc/a": {"existed": False}}, str(record))
    again = {"/etc/a": {"existed": True, "content": "ours"}, "/etc/b": {"existed": False}}
    assert remember("files", again, str(record)) == ["/etc/b"]
    assert load(str(record))["files"] == {"/etc/a": {"existed": False}, "/etc/b": {"existed": False}}


def test_sections_do_not_disturb_each_other(record):
    remember("units", {"a": 1}, str(record))
    remember("default_target", {"name": "graphical.target"}, str(record))
    found = load(str(record))
    assert (found["units"], found["default_target"]) == ({"a": 1}, {"name": "graphical.target"})


def test_nothing_new_writes_nothing(record):
    assert remember("units", {}, str(record)) == []
    assert not record.exists()
    remember("units", {"a": 1}, str(record))
    before = record.stat().st_ino
    assert remember("units", {"a": 2}, str(record)) == []
    assert record.stat().st_ino == before


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"schema": 2}', "{path} has schema 2, this release reads 1"),
        ("{}", "{path} has schema None, this release reads 1"),
        ("[]", "{path} has schema None, this release reads 1"),
        ("", "{path} is not JSON: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_record_that_is_not_ours_is_refused_and_left_alone(tmp_path, text, line):
    path = tmp_path / "before.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"before\.json") as error:
        remember("units", {"a": 1}, str(path))
    assert str(error.value) == line.format(path=path)
    assert path.read_text() == text


def test_a_file_as_the_record_keeps_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\x00\xff text\r\n")
    path.chmod(0o640)
    found = file_entry(path)
    assert (found["existed"], found["mode"], found["uid"], found["gid"]) == (True, "0640", os.getuid(), os.getgid())
    assert base64.b64decode(found["content"]) == b"\x00\xff text\r\n"
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(("name", "folder"), [("absent", None), ("new/absent", "new"), ("new/er/absent", "new")])
def test_a_file_that_was_not_there(tmp_path, name, folder):
    assert file_entry(tmp_path / name) == {"existed": False, "folder": folder and str(tmp_path / folder)}


def test_a_record_that_was_put_back_makes_room_for_a_new_one(record):
    remember("units", {"a": 1}, str(record))
    assert set_aside(str(record)) == f"{record}.restored"
    assert load(str(record))["units"] == {}
    remember("units", {"a": 2}, str(record))
    set_aside(str(record))
    assert load(f"{record}.restored")["units"] == {"a": 2}


def test_the_live_values_of_the_settings_that_a_file_names(tmp_path):
    for name, value in (
        ("vm/swappiness", "60\n"),
        ("net/ipv4/conf/eth0.100/rp_filter", "1\n"),
        ("net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
        ("kernel/panic", "0\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(value)
    text = """# kernel.panic = 5
; kernel.panic = 5
vm.swappiness = 1
net.ipv4.conf.eth0/100.rp_filter=2
-net/ipv4/tcp_rmem = 1 2 3
net/ipv4/absent = 1

"""
    assert setting_entries(text, tmp_path) == {
        "vm/swappiness": {"value": "60"},
        "net/ipv4/conf/eth0.100/rp_filter": {"value": "1"},
        "net/ipv4/tcp_rmem": {"value": "4096 131072 6291456"},
    }


def test_the_links_that_a_netplan_file_names(tmp_path):
    for name, mtu, flags in (("rail0", 1500, "0x1002"), ("rail1", 9000, "0x1003"), ("eth0", 1500, "0x1003")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mtu").write_text(f"{mtu}\n")
        (tmp_path / name / "flags").write_text(f"{flags}\n")
    shown = '[{"ifname": "rail1", "addr_info": [{"local": "10.0.0.1", "prefixlen": 24}]}, {}]'
    text = "network:\n  ethernets:\n    rail0:\n      mtu: 9000\n    'rail1':\n      optional: true\n"
    assert link_entries(link_names(text), tmp_path, lambda: shown) == {
        "rail0": {"mtu": 1500, "up": False, "addresses": []},
        "rail1": {"mtu": 9000, "up": True, "addresses": ["10.0.0.1/24"]},
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_is_written_for_its_owner(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"x", 0o640, (65534, 65533))
    found = file_entry(path)
    assert (found["uid"], found["gid"], found["mode"]) == (65534, 65533, "0640")


@pytest.mark.parametrize("before", [None, "old"])
def test_a_file_is_written_with_its_mode(tmp_path, before):
    path = tmp_path / "new" / "folder" / "file"
    if before:
        path.parent.mkdir(parents=True)
        path.write_text(before)
    write_atomically(path, b"new", 0o600)
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_half_way_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(self, target):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new", 0o600)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
