"""The kernel's table of mounts, in the words of proc(5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.mounts import (
    Mounted,
    below,
    mount_at,
    mount_of,
    on_network,
    parse_mountinfo,
    unescape,
)

NFS = (
    "412 28 0:52 / /var/lib/sparkwright/models ro,relatime shared:219 - nfs4 192.168.100.10:/var/lib/sparkwright/models"
    " ro,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=rdma,nconnect=4,port=20049,timeo=600,retrans=2,"
    "sec=sys,clientaddr=192.168.100.11,local_lock=none,addr=192.168.100.10"
)
ROOT = "28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro"


def test_a_mount_of_nfs():
    (found,) = parse_mountinfo(NFS)
    assert (found.path, found.fstype, found.device) == ("/var/lib/sparkwright/models", "nfs4", "0:52")
    assert found.source == "192.168.100.10:/var/lib/sparkwright/models"
    assert {"ro", "hard", "proto=rdma", "vers=4.2", "addr=192.168.100.10"} <= set(found.options)


@pytest.mark.parametrize("fields", ["", "shared:1 ", "shared:1 master:2 propagate_from:3 "])
def test_there_may_be_any_number_of_optional_fields(fields):
    (found,) = parse_mountinfo(f"36 35 98:0 /mnt1 /mnt2 rw,noatime {fields}- ext3 /dev/root rw,errors=continue\n")
    assert found == Mounted("/mnt2", "ext3", "/dev/root", ("rw", "noatime", "errors=continue"), "98:0")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"/my\040models", "/my models"),
        (r"/tab\011and\012line", "/tab\tand\nline"),
        (r"/back\134slash\134040", r"/back\slash\040"),
        (r"/m\303\266bel", "/möbel"),
        ("/möbel", "/möbel"),
        (r"/not\04", r"/not\04"),
    ],
)
def test_blanks_are_written_as_numbers(written, meant):
    assert unescape(written) == meant


def test_a_mount_point_with_a_blank():
    (found,) = parse_mountinfo(r"40 28 0:60 / /srv/my\040models ro - nfs4 nas:/a\040b ro,addr=10.0.0.9")
    assert (found.path, found.source) == ("/srv/my models", "nas:/a b")


@pytest.mark.parametrize(
    "line", ["", "36 35 98:0", "36 35 98:0 / /a rw ext3 /dev/root rw", "36 35 98:0 / /a rw - ext3"]
)
def test_what_is_no_mount_is_passed_over(line):
    assert parse_mountinfo(line) == []


def mounts(*paths):
    return [Mounted(path, f"type{number}", "", (), "0:1") for number, path in enumerate(paths)]


def test_of_two_mounts_on_one_directory_the_later_one_is_on_top():
    table = mounts("/", "/models", "/models")
    assert mount_at(table, "/models").fstype == "type2"
    assert mount_of(table, "/models/big").fstype == "type2"
    assert mount_at(table, "/models/big") is None


@pytest.mark.parametrize(
    ("path", "holder"),
    [("/models/big", "/models"), ("/models", "/models"), ("/modelsx", "/"), ("/", "/"), ("/a/b/c", "/a")],
)
def test_the_mount_that_holds_a_path(path, holder):
    assert mount_of(mounts("/", "/models", "/a"), path).path == holder


def test_without_mounts_nothing_holds_a_path():
    assert mount_of([], "/a") is None


def test_what_is_mounted_below():
    assert below(mounts("/", "/models", "/models/b", "/models/a/c", "/modelsx"), "/models") == [
        "/models/a/c",
        "/models/b",
    ]


@pytest.mark.parametrize(
    ("fstype", "remote"),
    [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("overlay", False), ("fuse.portal", False)],
)
def test_file_systems_of_other_machines(fstype, remote):
    assert on_network(fstype) is remote


def test_the_table_of_this_machine_is_read_whole():
    text = Path("/proc/self/mountinfo").read_text()
    assert len(parse_mountinfo(text)) == len(text.splitlines())
    assert ROOT.split()[4] in {mount.path for mount in parse_mountinfo(text)}
