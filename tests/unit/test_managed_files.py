"""The module that writes all files of a role in one call."""

from __future__ import annotations

import base64
import hashlib
from functools import partial

import pytest
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import load, remember
from ansible_collections.sparkwright.cluster.plugins.modules import managed_files


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record, away from the machine's own."""
    path = str(tmp_path / "before.json")
    monkeypatch.setattr(managed_files, "remember", partial(remember, path=path))
    return path


def write(*files, check_mode=False):
    return run_module(managed_files.main, check_mode, files=list(files))


def wanted(path, content="new\n", **more):
    return {"path": str(path), "content": content, **more}


def mode(path):
    return path.stat().st_mode & 0o7777


def test_new_files_are_written_once(tmp_path, record):
    one, two = tmp_path / "etc/one", tmp_path / "two"
    files = (wanted(one), wanted(two, mode="0600"))
    first = write(*files)
    assert (first["changed"], first["paths"], first["recorded"]) == (True, [str(one), str(two)], [str(one), str(two)])
    assert (one.read_text(), mode(one), mode(two)) == ("new\n", 0o644, 0o600)
    second = write(*files)
    assert (second["changed"], second["paths"], second["recorded"], second["diff"]) == (False, [], [], [])


def test_what_was_there_is_kept_once(tmp_path, record):
    path = tmp_path / "file"
    path.write_text("the user's\n")
    write(wanted(path, "first\n"))
    assert write(wanted(path, "second\n"))["recorded"] == []
    assert base64.b64decode(load(record)["files"][str(path)]["content"]) == b"the user's\n"
    assert path.read_text() == "second\n"


def test_what_files_bring_about_is_recorded_before_they_are_written(tmp_path, record):
    path = tmp_path / "file"
    before = {"nfs_server": {"nfs-server.service": {"active": True}}}
    run_module(managed_files.main, files=[wanted(path)], record=before)
    assert load(record)["nfs_server"] == before["nfs_server"]
    later = {"nfs_server": {"nfs-server.service": {"active": False}}}
    run_module(managed_files.main, files=[wanted(path, "other\n")], record=later)
    assert load(record)["nfs_server"] == before["nfs_server"]


def test_without_a_change_nothing_is_recorded(tmp_path, record):
    path = tmp_path / "file"
    path.write_text("new\n")
    path.chmod(0o644)
    run_module(managed_files.main, files=[wanted(path)], record={"nfs_server": {"a": {}}})
    assert "nfs_server" not in load(record)


def test_check_mode_writes_nothing(tmp_path, record):
    path = tmp_path / "file"
    found = write(wanted(path), check_mode=True)
    assert (found["changed"], found["paths"], found["recorded"]) == (True, [str(path)], [])
    assert list(tmp_path.iterdir()) == []


def test_a_mode_alone_is_a_change(tmp_path, record):
    path = tmp_path / "file"
    path.write_text("new\n")
    path.chmod(0o644)
    found = write(wanted(path, mode="0600"))
    assert (found["changed"], mode(path)) == (True, 0o600)
    assert [(diff["before"], diff["after"]) for diff in found["diff"]] == [("mode 0644\n", "mode 0600\n")]


def test_other_line_ends_are_a_change(tmp_path, record):
    path = tmp_path / "file"
    path.write_bytes(b"new\r\n")
    path.chmod(0o644)
    assert write(wanted(path))["changed"]
    assert path.read_bytes() == b"new\n"


def test_only_the_files_that_differ_are_written(tmp_path, record):
    same, other = tmp_path / "same", tmp_path / "other"
    write(wanted(same), wanted(other))
    inode = same.stat().st_ino
    assert write(wanted(same), wanted(other, "newer\n"))["paths"] == [str(other)]
    assert same.stat().st_ino == inode


def digest_line(text):
    return f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]}\n"


@pytest.mark.parametrize(
    ("before", "diff", "shown"),
    [
        (None, "text", ("", "new\n")),
        ("old\n", "text", ("old\n", "new\n")),
        (None, "digest", ("", digest_line("new\n"))),
        ("old\n", "digest", (digest_line("old\n"), digest_line("new\n"))),
    ],
)
def test_the_diff(tmp_path, record, before, diff, shown):
    path = tmp_path / "file"
    if before is not None:
        path.write_text(before)
    (found,) = write(wanted(path, diff=diff), check_mode=True)["diff"]
    assert (found["before"], found["after"], found["before_header"]) == (*shown, str(path))


def test_a_record_of_another_release_stops_before_anything_is_written(tmp_path, record):
    path = tmp_path / "file"
    (tmp_path / "before.json").write_text('{"schema": 99}')
    found = write(wanted(path))
    assert found["failed"]
    assert found["msg"] == f"{record} has schema 99, this release reads 1"
    assert not path.exists()
