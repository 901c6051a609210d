"""How the weights reach a node, as its kernel and its tools show it."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing

import pytest
from trees import machine, write

from ansible_collections.sparkwright.cluster.plugins.module_utils import share_reader
from ansible_collections.sparkwright.cluster.plugins.module_utils.share import ShareWish
from ansible_collections.sparkwright.cluster.plugins.module_utils.share_reader import (
    ShareAsked,
    answer,
    asked_of,
    list_files,
    parse_etab,
    reaches,
    read_share,
)

ROOT = "28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
MOUNT = (
    "412 28 0:52 / {path} ro,relatime shared:219 - nfs4 192.168.100.10:/models"
    " ro,vers=4.2,hard,proto=tcp,nconnect=4,addr=192.168.100.10\n"
)
# As nfs-utils 2.6 and 2.8 write /var/lib/nfs/etab.
ETAB = (
    "/models\t192.168.100.11(ro,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,no_subtree_check,"
    "secure_locks,acl,no_pnfs,anonuid=65534,anongid=65534,sec=sys,ro,secure,root_squash,no_all_squash)\n"
    "/my\\040models\t*(rw,sync)\n"
)


def read(tmp_path, files, answers=None, **asked):
    return read_share(machine(write(tmp_path, files), answers), ShareAsked(**asked))


def test_a_node_with_nothing_of_it(tmp_path):
    found = read(tmp_path, {"proc/filesystems": "nodev\tsysfs\n\text4\n", "proc/self/mountinfo": ROOT})
    assert (found["kernel"], found["tools"], found["mount"], found["reached"]) == ([], [], None, None)
    assert (found["threads"], found["rdma"], found["listens"], found["exports"]) == (0, False, [], [])
    assert (found["files"], found["disk_free"], found["cache_fstype"]) == ({}, 0, "")


@pytest.mark.parametrize(
    ("filesystems", "answers", "kernel"),
    [
        ("nodev\tnfs\nnodev\tnfs4\n", {}, ["nfs"]),
        ("nodev\tnfsd\n", {}, ["nfsd"]),
        ("", {"modprobe --dry-run --quiet nfsd": ""}, ["nfsd"]),
        ("", {"modprobe --dry-run --quiet nfs": ""}, ["nfs", "nfsd"]),
        ("", {"modprobe": (1, "", "not found")}, []),
    ],
)
def test_what_the_kernel_has_or_can_load(tmp_path, filesystems, answers, kernel):
    assert read(tmp_path, {"proc/filesystems": filesystems}, answers)["kernel"] == kernel


def test_a_server(tmp_path):
    files = {
        "proc/fs/nfsd/threads": "16\n",
        "proc/fs/nfsd/portlist": "rdma 20049\ntcp 2049\n",
        "var/lib/nfs/etab": ETAB,
        "usr/sbin/exportfs": "",
        "run/systemd/container": "docker\n",
    }
    sockets = ("192.168.100.10:2049", "192.168.101.10:2049")
    listening = "".join(f"LISTEN 0      64      {own}      0.0.0.0:*\n" for own in sockets)
    found = read(tmp_path, files, {"ss -H -l -t -n sport = :2049": listening})
    assert (found["threads"], found["rdma"], found["container"]) == (16, True, True)
    assert found["listens"] == ["192.168.100.10", "192.168.101.10"]
    assert found["tools"] == ["exportfs"]


def test_the_table_of_exports():
    one, two = parse_etab(ETAB)
    assert (one["path"], one["client"]) == ("/models", "192.168.100.11")
    assert {"ro", "root_squash", "no_subtree_check"} <= set(one["options"])
    assert two == {"path": "/my models", "client": "*", "options": ["rw", "sync"]}


def test_a_client(tmp_path, monkeypatch):
    monkeypatch.setattr(share_reader, "reaches", lambda server: server == "192.168.100.10")
    path = str(tmp_path)
    files = {
        "proc/self/mountinfo": ROOT + MOUNT.format(path=path),
        "sys/class/bdi/0:52/read_ahead_kb": "16384\n",
        "usr/sbin/mount.nfs": "",
    }
    open_ = (
        "0      0      192.168.100.11:871      192.168.100.10:2049\n0 0 [::ffff:10.0.0.12]:700 [::ffff:10.0.0.9]:2049\n"
    )
    answers = {"ss -H -t -n state established dport = :2049": open_}
    found = read(tmp_path, files, answers, path=path, server="192.168.100.10", folders=["big"])
    assert found["mount"]["source"] == "192.168.100.10:/models"
    assert found["mount"]["read_ahead_kb"] == 16384
    options = found["mount"]["options"]
    assert (options["ro"], options["vers"], options["proto"]) == ("", "4.2", "tcp")
    assert (found["answer"], found["reached"], found["said"]) == ("", True, "")
    assert found["connections"] == [("10.0.0.12", "10.0.0.9"), ("192.168.100.11", "192.168.100.10")]
    # Nothing on a mount is listed, and its disk is another node's.
    assert (found["files"], found["disk_free"]) == ({}, 0)


def test_why_nothing_is_mounted(tmp_path, monkeypatch):
    monkeypatch.setattr(share_reader, "reaches", lambda server: False)
    said = (
        "Mounting models.mount\nmount.nfs: No such file or directory for 192.168.100.10:/models\nmodels.mount: Failed\n"
    )
    found = read(tmp_path, {}, {"journalctl --unit models.mount": said}, path="/models", server="192.168.100.10")
    assert found["said"] == "mount.nfs: No such file or directory for 192.168.100.10:/models"
    assert found["reached"] is False


@pytest.mark.parametrize(
    ("cache", "fstype"),
    [("/var/cache/sparkwright", "ext4"), ("/nowhere/models/cache", "nfs4"), ("", "")],
)
def test_the_file_system_of_the_caches(tmp_path, cache, fstype):
    files = {"proc/self/mountinfo": ROOT + MOUNT.format(path="/nowhere/models")}
    assert read(tmp_path, files, cache=cache)["cache_fstype"] == fstype


def test_a_link_leads_the_caches_elsewhere(tmp_path):
    (tmp_path / "cache").symlink_to("/nowhere/models/cache")
    files = {"proc/self/mountinfo": ROOT + MOUNT.format(path="/nowhere/models")}
    assert read(tmp_path / "root", files, cache=str(tmp_path / "cache"))["cache_fstype"] == "nfs4"


def test_files_are_listed_with_their_measures_and_of_hidden_ones_where_they_came_from(tmp_path):
    names = {"big/a.safetensors": "123", "big/sub/b": "", "big/.cache/x": "1", "big/.part": "1", "draft/c": "12"}
    names["big/.sparkwright.json"] = "{}"
    write(tmp_path, {**names, "other/d": "1"})
    for name in names:
        os.utime(tmp_path / name, (1_000_000_000.7, 1_000_000_000.7))
    (tmp_path / "big/nowhere").symlink_to("/nowhere/at/all")
    (tmp_path / "big/link").symlink_to(tmp_path / "big/a.safetensors")
    assert list_files(str(tmp_path), ["big", "draft", "absent"]) == {
        "big/.sparkwright.json": [2, 1_000_000_000],
        "big/a.safetensors": [3, 1_000_000_000],
        "big/link": [3, 1_000_000_000],
        "big/sub/b": [0, 1_000_000_000],
        "draft/c": [2, 1_000_000_000],
    }


def test_a_directory_that_answers(tmp_path):
    assert answer(str(tmp_path)) == ""
    assert answer(str(tmp_path / "absent")) == "No such file or directory"


def test_a_directory_that_never_answers_costs_a_bounded_time(monkeypatch):
    monkeypatch.setattr(share_reader, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(os, "statvfs", lambda path: time.sleep(60))
    began = time.monotonic()
    assert answer("/models") == "no answer within 0.3 s"
    assert time.monotonic() - began < 5


def test_a_handle_that_is_stale(monkeypatch):
    def stale(path):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "statvfs", stale)
    assert answer("/models") == "Stale file handle"


def test_whether_a_server_takes_connections(monkeypatch):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        monkeypatch.setattr(share_reader, "NFS_PORT", server.getsockname()[1])
        assert reaches("127.0.0.1")
    assert not reaches("127.0.0.1")


@pytest.mark.parametrize(("mode", "folders"), [("copy", ("big",)), ("nfs", ()), ("local", ())])
def test_only_copies_are_compared_file_by_file(mode, folders):
    wish = ShareWish(mode=mode, path="/models", folders=("big",), cache="/c")
    assert asked_of(wish) == ShareAsked("/models", "", folders, "/c")
