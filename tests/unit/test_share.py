"""The files by which the weights are shared over NFS, and what of them is not so on a node."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import asdict

import pytest
from sharing import CLIENTS, LISTEN, OPTIONS, SERVER, export, facts, mount, wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.share import (
    ShareWish,
    client_files,
    conf_text,
    exports_text,
    is_due,
    is_mounted,
    kernel_needs,
    lacks_rsync,
    mount_faults,
    mount_options,
    must_remount,
    packages,
    server_fault,
    server_files,
    strangers,
    undo_record,
    unexported,
    unit_name,
)

# Path, and what `systemd-escape --path --suffix=mount` makes of it (systemd 252).
ESCAPED = {
    "/var/lib/sparkwright/models": "var-lib-sparkwright-models.mount",
    "/a-b/c.d": r"a\x2db-c.d.mount",
    "/.hidden/x": r"\x2ehidden-x.mount",
    "/a/.b": "a-.b.mount",
    "/": "-.mount",
    "//a//b/": "a-b.mount",
    "/with space/ä": r"with\x20space-\xc3\xa4.mount",
    "/a:b_c/1@2": r"a:b_c-1\x402.mount",
}


@pytest.mark.parametrize(("path", "name"), ESCAPED.items())
def test_the_name_of_a_mount_unit(path, name):
    assert unit_name(path) == name


@pytest.mark.skipif(not shutil.which("systemd-escape"), reason="needs systemd-escape")
@pytest.mark.parametrize("path", ESCAPED)
def test_systemd_itself_gives_the_same_name(path):
    argv = ["systemd-escape", "--path", "--suffix=mount", path]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert unit_name(path) == done.stdout.strip()


def test_one_line_for_each_address_and_no_wildcard():
    assert exports_text(wish(clients=("192.168.100.11", "192.168.101.11")), crosses=False).splitlines()[1:] == [
        "/models 192.168.100.11(ro,root_squash,sync,no_subtree_check)",
        "/models 192.168.101.11(ro,root_squash,sync,no_subtree_check)",
    ]


def test_what_is_mounted_below_is_exported_only_where_there_is_something():
    text = exports_text(wish(clients=("192.168.100.11",)), crosses=True)
    assert text.endswith("/models 192.168.100.11(ro,root_squash,sync,no_subtree_check,crossmnt)\n")
    nested = {**facts(), "nested": ["/models/big"]}
    assert server_files(wish(), nested)["/etc/exports.d/60-sparkwright.exports"].count("crossmnt") == len(CLIENTS)


@pytest.mark.parametrize(
    ("alone", "proto", "lines"),
    [
        (True, "tcp", [f"host={','.join(LISTEN)}", "vers3=n", "grace-time=15", "lease-time=15"]),
        (False, "tcp", []),
        (False, "rdma", ["rdma=y", "rdma-port=20049"]),
    ],
)
def test_the_settings_of_the_server(alone, proto, lines):
    assert conf_text(wish(proto=proto), alone).splitlines()[1:] == ["[nfsd]", "threads=16", *lines]


def test_the_server_is_bound_unless_it_exports_something_of_the_users_too():
    conf = "/etc/nfs.conf.d/60-sparkwright.conf"
    assert "host=" in server_files(wish(), facts())[conf]
    others = {**facts(), "exports": [*facts()["exports"], export("10.0.0.0/24", path="/home")]}
    assert "host=" not in server_files(wish(), others)[conf]


def test_the_server_starts_when_its_addresses_are_there():
    files = server_files(wish(), facts())
    assert "After=sparkwright-rails.service\n" in files["/etc/systemd/system/nfs-server.service.d/60-sparkwright.conf"]
    rails = files["/etc/systemd/system/sparkwright-rails.service"]
    assert [line for line in rails.splitlines() if line.startswith("ExecStart=")] == [
        f"ExecStart=/bin/sh -c 'until ip -4 -oneline address show to {address} | grep -q inet; do sleep 1; done'"
        for address in LISTEN
    ]


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, "ro,hard,vers=4.2,proto=tcp,nconnect=4,retry=10000,nofail"),
        ({"proto": "rdma"}, "ro,hard,vers=4.2,proto=rdma,port=20049,nconnect=4,retry=10000,nofail"),
        ({"connections": 16}, "ro,hard,vers=4.2,proto=tcp,nconnect=16,retry=10000,nofail"),
    ],
)
def test_the_options_of_the_mount(changes, options):
    assert ",".join(mount_options(wish(1, **changes))) == options


def test_the_units_of_a_client():
    files = client_files(wish(1, path="/srv/big-models", remote="/srv/big-models"))
    unit = r"srv-big\x2dmodels.mount"
    assert list(files) == [
        "/etc/systemd/system/sparkwright-rails.service",
        f"/etc/systemd/system/{unit}",
        "/etc/systemd/system/sparkwright-read-ahead.service",
    ]
    lines = files[f"/etc/systemd/system/{unit}"].splitlines()
    assert f"What={SERVER}:/srv/big-models" in lines
    assert "Where=/srv/big-models" in lines
    assert {"After=sparkwright-rails.service", "After=network-online.target", "TimeoutSec=infinity"} <= set(lines)
    ahead = files["/etc/systemd/system/sparkwright-read-ahead.service"]
    assert {f"BindsTo={unit}", f"After={unit}", f"WantedBy={unit}"} <= set(ahead.splitlines())
    assert "echo 16384 >/sys/class/bdi/$$(findmnt " in ahead


@pytest.mark.skipif(not shutil.which("findmnt"), reason="needs findmnt")
def test_the_device_of_the_mount_is_a_path_without_blanks():
    ahead = client_files(wish(1, path="/proc"))["/etc/systemd/system/sparkwright-read-ahead.service"]
    (place,) = re.findall(r">(/sys\S+.*?)'$", ahead, re.MULTILINE)
    argv = ["sh", "-c", f'echo "{place}"'.replace("$$", "$")]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"/sys/class/bdi/\d+:\d+/read_ahead_kb\n", shown)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path):
    for path, text in {**server_files(wish(), facts()), **client_files(wish(1))}.items():
        if path.endswith((".service", ".mount")):
            (tmp_path / path.rpartition("/")[2]).write_text(text)
    argv = ["systemd-analyze", "verify", "--man=no", *sorted(map(str, tmp_path.iterdir()))]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"})
    ours = [line for line in done.stderr.splitlines() if "sparkwright" in line or "models.mount" in line]
    assert ours == []


def test_a_client_of_another_server_waits_for_no_rail():
    files = client_files(wish(1, address="", server="10.0.0.9"))
    assert "sparkwright-rails" not in "".join([*files, *files.values()])


def test_who_writes_what():
    assert client_files(wish()) == server_files(wish(1), facts(1)) == {}
    local = ShareWish(path="/models")
    assert {**client_files(local), **server_files(local, facts())} == {}


@pytest.mark.parametrize(
    ("rank", "tools", "missing"),
    [
        (0, [], ["nfs-kernel-server"]),
        (0, ["exportfs"], []),
        (1, ["exportfs"], ["nfs-common"]),
        (1, ["mount.nfs"], []),
    ],
)
def test_packages_are_wanted_only_where_they_are_missing(rank, tools, missing):
    assert packages(wish(rank), {**facts(rank), "tools": tools}) == missing


@pytest.mark.parametrize(
    ("mode", "pushed", "tools", "lacks"),
    [
        ("copy", False, [], True),
        ("copy", True, ["rsync"], False),
        ("nfs", True, ["mount.nfs"], True),
        ("local", True, [], True),
        ("local", True, ["rsync"], False),
        ("nfs", False, [], False),
        ("local", False, [], False),
    ],
)
def test_rsync_is_wanted_only_where_files_travel(mode, pushed, tools, lacks):
    assert lacks_rsync(wish(mode=mode), {**facts(), "tools": tools}, pushed) is lacks


def test_what_the_kernel_must_have():
    assert (kernel_needs(wish()), kernel_needs(wish(1)), kernel_needs(ShareWish())) == (["nfsd"], ["nfs"], [])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"threads": 0}, "no NFS server runs"),
        ({"listens": [SERVER]}, "its NFS server does not listen on 192.168.101.10"),
        ({"listens": ["0.0.0.0", "::"]}, "its NFS server listens on 0.0.0.0, :: too"),
        ({"listens": [*LISTEN, "10.0.0.11"]}, "its NFS server listens on 10.0.0.11 too"),
        ({"listens": ["0.0.0.0", "::"], "exports": [export("10.0.0.0/24", path="/home")]}, ""),
    ],
)
def test_a_server(changes, fault):
    assert server_fault(wish(), {**facts(), **changes}) == fault


def test_a_server_without_rdma():
    assert server_fault(wish(proto="rdma"), facts()) == "its NFS server does not take RDMA"
    assert server_fault(wish(proto="rdma"), {**facts(), "rdma": True}) == ""


@pytest.mark.parametrize(
    ("export_", "missing"),
    [
        (export(CLIENTS[0]), []),
        (export(CLIENTS[0], path="/other"), [CLIENTS[0]]),
        (export("192.168.100.0/24"), [CLIENTS[0]]),
        ({**export(CLIENTS[0]), "options": ["rw", "root_squash", "sync", "no_subtree_check"]}, [CLIENTS[0]]),
        (export(CLIENTS[0], "no_root_squash"), [CLIENTS[0]]),
    ],
)
def test_exports_that_are_missing(export_, missing):
    assert unexported(wish(), {**facts(), "exports": [export_, *facts()["exports"][1:]]}) == missing


def test_a_nested_file_system_needs_its_own_option():
    nested = {**facts(), "nested": ["/models/big"]}
    assert unexported(wish(), nested) == list(CLIENTS)
    crossing = [export(client, "crossmnt") for client in CLIENTS]
    assert unexported(wish(), {**nested, "exports": crossing}) == []


@pytest.mark.parametrize(
    ("export_", "strange"),
    [
        (export(CLIENTS[0]), False),
        (export("*"), True),
        (export("10.0.0.0/24"), True),
        (export("10.0.0.12", path="/"), True),
        (export("10.0.0.12", path="/models/big"), True),
        (export("10.0.0.12", path="/modelsx"), False),
        (export("10.0.0.12", path="/home"), False),
        (export(CLIENTS[0], "no_root_squash"), True),
    ],
)
def test_exports_to_others(export_, strange):
    assert bool(strangers(wish(), {**facts(), "exports": [export_]})) is strange


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, []),
        ({"options": {"addr": "10.0.0.11"}}, ["share.rail"]),
        ({"source": "10.0.0.11:/models", "options": {"addr": "10.0.0.11"}}, ["share.rail"]),
        ({"source": f"{SERVER}:/other"}, ["share.rail"]),
        ({"options": {"proto": "rdma"}}, ["share.transport"]),
        ({"options": {"ro": None, "rw": ""}}, ["share.options"]),
        ({"options": {"hard": None, "soft": ""}}, ["share.options"]),
        ({"options": {"vers": "3"}}, ["share.options"]),
        ({"options": {"nconnect": None}}, ["share.options"]),
        ({"options": {"proto": "tcp6", "nconnect": "1"}}, ["share.transport", "share.options"]),
    ],
)
def test_a_mount_that_is_not_as_planned(changes, faults):
    found = mount(**changes)
    assert [id_ for id_, _, _ in mount_faults(wish(1), found)] == faults
    assert must_remount(wish(1), {**facts(1), "mount": found}) is bool(faults)


def test_one_connection_need_not_be_shown():
    assert list(mount_faults(wish(1, connections=1), mount(options={"nconnect": None}))) == []
    assert OPTIONS["nconnect"] == "4"


@pytest.mark.parametrize(
    ("changes", "mounted", "remount"),
    [
        ({}, True, False),
        ({"mount": None}, False, False),
        ({"mount": mount(fstype="ext4", options={})}, False, True),
        ({"mount": mount(read_ahead_kb=128)}, False, False),
        ({"answer": "Stale file handle"}, False, True),
    ],
)
def test_when_a_client_is_left_alone(changes, mounted, remount):
    share = {**facts(1), **changes}
    assert (is_mounted(wish(1), share), must_remount(wish(1), share)) == (mounted, remount)
    assert is_due(wish(1), share) is not mounted


def test_when_a_server_is_left_alone():
    assert not is_due(wish(), facts())
    assert is_due(wish(), {**facts(), "exports": []})
    assert is_due(wish(), {**facts(), "threads": 0})


def test_what_is_recorded():
    assert undo_record(wish(), {**facts(), "threads": 0}) == {"nfs_server": {"nfs-server.service": {"active": False}}}
    entry = {"unit": "models.mount"}
    assert undo_record(wish(1), {**facts(1), "mount": None}) == {"nfs_mount": {"/models": entry}}
    theirs = {**mount(source="10.0.0.9:/tank"), "options": {"rw": "", "vers": "4.1"}}
    entry |= {"source": "10.0.0.9:/tank", "options": "rw,vers=4.1"}
    assert undo_record(wish(1), {**facts(1), "mount": theirs}) == {"nfs_mount": {"/models": entry}}
    assert undo_record(ShareWish(), facts()) == {}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_wish_travels_as_plain_data(rank):
    assert ShareWish.from_data({**asdict(wish(rank)), "clients": list(wish(rank).clients)}) == wish(rank)
