"""The record of what was there before: written once, atomically, and never overwritten."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import (
    file_entry,
    load,
    remember,
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


def test_a_file_that_was_not_there(tmp_path):
    assert file_entry(tmp_path / "absent") == {"existed": False}


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
