"""Checks of how the weights are shared: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import cluster, findings, weights
from sharing import CLIENTS, SERVER, export, facts, mount, wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import CheckpointNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.share import ShareWish

HEAD, CLIENT = "spark1", "spark2"
REMOUNT = "remedy: unmount whatever comes from that server on the node (see /proc/mounts), then run site.yml"
STATUS = "remedy: look at `systemctl status nfs-server.service`"
ALONE = "limit: a server on 192.168.100.10, 192.168.101.10 alone; " + STATUS + ", then run site.yml, which sets it up"
OUT = "remedy: take that line out of /etc/exports or /etc/exports.d, then run `exportfs -ra`"
CLOSED = f"limit: read-only, to the addresses of the other nodes on the rails; {OUT}"


def over_nfs(serving=False, intents=None, **changes):
    """A cluster over NFS in which the named nodes' facts are changed: `spark2={"mount": None}`."""
    hosts = [f"spark{n}" for n in range(1, 5)]
    sections = {(host, "share"): {**facts(rank), **changes.get(host, {})} for rank, host in enumerate(hosts)}
    wishes = {host: {"share": wish(rank), "weights_pushed": rank > 0} for rank, host in enumerate(hosts)}
    for host, changed in (intents or {}).items():
        wishes[host]["share"] = changed
    return cluster(facts=sections, intents=wishes, serving=serving)


def test_a_healthy_cluster_over_nfs():
    assert findings(over_nfs()) == []
    assert findings(over_nfs(serving=True)) == []


CASES = {
    "no server in the kernel": (
        {HEAD: {"kernel": ["nfs"]}},
        "refuse share.kernel spark1: its kernel has no nfsd; limit: nfsd of its own for model_store_share nfs; remedy:"
        " set model_store_share to copy, or boot a kernel with NFS",
    ),
    "no client in the kernel": (
        {CLIENT: {"kernel": []}},
        "refuse share.kernel spark2: its kernel has no nfs; limit: nfs of its own for model_store_share nfs; remedy:"
        " set model_store_share to copy, or boot a kernel with NFS",
    ),
    "a container": (
        {CLIENT: {"container": True}},
        "refuse share.kernel spark2: it is a container, and NFS belongs to the machine around it; limit: nfs of its own"
        " for model_store_share nfs; remedy: set model_store_share to copy, or boot a kernel with NFS",
    ),
    "the head's directory is a mount": (
        {HEAD: {"mount": mount(source="10.0.0.9:/tank")}},
        "refuse share.due spark1: /models is mounted from 10.0.0.9:/tank; limit: a directory of its own, for"
        " model_store_share nfs; remedy: run `systemctl disable --now models.mount`, or unmount it",
    ),
    "the server is down": (
        {HEAD: {"threads": 0, "listens": []}},
        f"refuse share.server spark1: no NFS server runs; {ALONE}",
    ),
    "the server listens on the LAN": (
        {HEAD: {"listens": ["0.0.0.0", "::"]}},
        f"refuse share.server spark1: its NFS server listens on 0.0.0.0, :: too; {ALONE}",
    ),
    "the server does not take connections": (
        {CLIENT: {"reached": False}},
        "refuse share.server spark2: 192.168.100.10 does not take a connection on port 2049; limit: an NFS server that"
        f" answers; {STATUS} on spark1, and at the rail",
    ),
    "an export is missing": (
        {HEAD: {"exports": [export(client) for client in CLIENTS[1:]]}},
        "refuse share.export spark1: it does not export /models to 192.168.100.11; limit: read-only, with root_squash,"
        " to every address of a client; remedy: run `exportfs -ra`, and site.yml if"
        " /etc/exports.d/60-sparkwright.exports was changed",
    ),
    "an export to the LAN": (
        {HEAD: {"exports": [*facts()["exports"], export("10.0.0.0/24")]}},
        f"refuse share.closed spark1: it exports /models to 10.0.0.0/24; {CLOSED}",
    ),
    "an export of all": (
        {HEAD: {"exports": [*facts()["exports"], export("*", path="/")], "listens": ["0.0.0.0"]}},
        f"refuse share.closed spark1: it exports / to *; {CLOSED}",
    ),
    "no mount": (
        {CLIENT: {"mount": None, "connections": []}},
        "refuse share.mount spark2: nothing is mounted on /models; limit: 192.168.100.10:/models, over NFS; remedy: run"
        " site.yml, or `systemctl start models.mount`",
    ),
    "no mount, and why": (
        {CLIENT: {"mount": None, "said": "mount.nfs: access denied by server while mounting 192.168.100.10:/models"}},
        "refuse share.mount spark2: nothing is mounted on /models (mount.nfs: access denied by server while mounting"
        " 192.168.100.10:/models); limit: 192.168.100.10:/models, over NFS; remedy: run site.yml, or `systemctl start"
        " models.mount`",
    ),
    "no answer to RDMA": (
        {"intents": {CLIENT: wish(1, proto="rdma")}, CLIENT: {"mount": None, "connections": []}},
        "refuse share.mount spark2: nothing is mounted on /models; limit: 192.168.100.10:/models, over NFS; remedy: see"
        " with `rping -s` on 192.168.100.10 and `rping -c -C 1 -a 192.168.100.10` on the node whether RDMA connects"
        " (else model_store_nfs_proto: tcp), then run site.yml, or `systemctl start models.mount`",
    ),
    "a mount from the LAN": (
        {CLIENT: {"mount": mount(source="10.0.0.11:/models", options={"addr": "10.0.0.11"}), "connections": []}},
        "refuse share.rail spark2: /models is mounted from 10.0.0.11:/models at 10.0.0.11; limit:"
        f" 192.168.100.10:/models; {REMOUNT}",
    ),
    "a mount that goes over the LAN": (
        {CLIENT: {"connections": [("10.0.0.12", SERVER)]}},
        "refuse share.rail spark2: /models is mounted over its address 10.0.0.12; limit: 192.168.100.11, its address on"
        f" the rail; {REMOUNT}",
    ),
    "soft": (
        {CLIENT: {"mount": mount(options={"hard": None, "soft": ""})}},
        f"refuse share.options spark2: /models is mounted with no hard; limit: hard; {REMOUNT}",
    ),
    "writable, of another version, with one connection": (
        {CLIENT: {"mount": mount(options={"ro": None, "vers": "3", "nconnect": None})}},
        "refuse share.options spark2: /models is mounted with no ro, vers=3, no nconnect; limit: ro, vers=4.2,"
        f" nconnect=4; {REMOUNT}",
    ),
    "TCP where RDMA was asked for": (
        {"intents": {CLIENT: wish(1, proto="rdma")}},
        f"refuse share.transport spark2: /models is mounted with proto=tcp; limit: proto=rdma; {REMOUNT}",
    ),
    "a stale handle": (
        {CLIENT: {"answer": "Stale file handle"}},
        f"refuse share.answer spark2: /models: Stale file handle; limit: names and sizes within 5 s; {REMOUNT}",
    ),
    "a server that is gone": (
        {CLIENT: {"answer": "no answer within 5 s"}},
        "refuse share.answer spark2: /models: no answer within 5 s; limit: names and sizes within 5 s; remedy: start"
        " nfs-server.service on spark1, or bring the rail back",
    ),
    "files that root alone may read": (
        {CLIENT: {"answer": "Permission denied"}},
        "refuse share.answer spark2: /models: Permission denied; limit: names and sizes within 5 s; remedy: make the"
        " files of /models readable by all on spark1: chmod -R a+rX",
    ),
    "the kernel's own read-ahead": (
        {CLIENT: {"mount": mount(read_ahead_kb=128)}},
        "refuse share.read-ahead spark2: /models is read 128 KiB ahead; limit: 16384 KiB; remedy: run site.yml, which"
        " sets it",
    ),
    "caches on a mount": (
        {CLIENT: {"cache_fstype": "nfs4"}},
        "refuse share.cache spark2: /var/cache/sparkwright is on nfs4; limit: a file system of the node; remedy: set"
        " serving_cache_path to a directory on a disk of the node",
    ),
}


@pytest.mark.parametrize(("changes", "line"), CASES.values(), ids=CASES)
def test_one_thing_is_wrong(changes, line):
    assert findings(over_nfs(**changes)) == [line]


def test_rdma_that_is_right():
    rdma = {"mount": mount(options={"proto": "rdma", "port": "20049"}), "connections": []}
    wishes = {f"spark{rank + 1}": wish(rank, proto="rdma") for rank in range(4)}
    changes = {f"spark{n}": rdma for n in (2, 3, 4)} | {HEAD: {"rdma": True}}
    assert findings(over_nfs(intents=wishes, **changes)) == []
    assert [line.split(":")[0] for line in findings(over_nfs(intents=wishes, **{**changes, HEAD: {}}))] == [
        "refuse share.server spark1"
    ]


@pytest.mark.parametrize("changes", [{"mount": None}, {"mount": mount(options={"proto": "rdma"})}])
def test_nothing_is_changed_while_the_engine_serves(changes):
    lines = findings(over_nfs(serving=True, **{CLIENT: changes}))
    assert (
        "refuse share.due spark2: its mount or export is not as it should be; limit: no change while the engine serves;"
        " remedy: run playbooks/stop.yml first" in lines
    )


def test_a_disk_of_the_users_does_not_give_way_to_the_mount():
    disk = mount(source="/dev/nvme0n1p4", fstype="ext4", options={})
    assert (
        "refuse share.due spark2: /dev/nvme0n1p4 (ext4) is mounted on /models; limit: nothing but the NFS mount, for"
        " which it would have to give way; remedy: unmount it and take it out of /etc/fstab, or set model_store_path to"
        " another directory"
    ) in findings(over_nfs(**{CLIENT: {"mount": disk}}))
    assert findings(over_nfs(**{HEAD: {"mount": disk}})) == []


def test_what_is_due_while_nothing_serves_is_no_refusal():
    assert not [line for line in findings(over_nfs(**{CLIENT: {"mount": None}})) if "share.due" in line]


def test_a_server_of_somebody_else():
    theirs = {"server": "10.0.0.9", "remote": "/tank", "address": "", "clients": (), "listen": (), "holds": False}
    wishes = {f"spark{rank + 1}": wish(rank, **theirs) for rank in range(4)}
    found = mount(source="10.0.0.9:/tank", options={"addr": "10.0.0.9"})
    good = {"mount": found, "reached": True, "connections": [("10.0.0.12", "10.0.0.9")], "exports": [], "threads": 0}
    changes = {f"spark{n}": good for n in range(1, 5)}
    assert findings(over_nfs(intents=wishes, **changes)) == []
    down = {**changes, "spark3": {**good, "reached": False}}
    assert findings(over_nfs(intents=wishes, **down)) == [
        "refuse share.server spark3: 10.0.0.9 does not take a connection on port 2049; limit: an NFS server that"
        f" answers; {STATUS} on 10.0.0.9, and at the rail"
    ]


# --- copies ---------------------------------------------------------------------------------------------------------

FILES = {"big/a": [3, 100], "big/b": [5, 100], "big/model.safetensors.index.json": [1, 100]}
GB = 10**9


def copied(source=None, pushed=True, **changes):
    """A cluster with copies in which the named nodes' facts are changed."""
    hosts = [f"spark{n}" for n in range(1, 5)]
    base = cluster().facts[HEAD]["share"]
    sections = {(host, "share"): {**base, "files": FILES, **changes.get(host, {})} for host in hosts}
    copy = ShareWish(mode="copy", path="/models", folders=("big",), cache="/var/cache/sparkwright")
    intents = {"*": {"share": copy, "weights_pushed": pushed}}
    return cluster(facts=sections, intents=intents, source=source)


def test_a_healthy_cluster_of_copies():
    assert findings(copied()) == []


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({**FILES, "big/b": [4, 100]}, "other or missing: big/b"),
        ({**FILES, "big/b": [5, 101]}, "other or missing: big/b"),
        ({name: FILES[name] for name in ("big/a", "big/b")}, "other or missing: big/model.safetensors.index.json"),
        ({**FILES, "big/c": [1, 1]}, "surplus: big/c"),
        (
            {"big/c": [1, 1]},
            "other or missing: big/a, other or missing: big/b, other or missing: big/model.safetensors.index.json and"
            " 1 more",
        ),
    ],
)
def test_files_that_differ_are_named(files, wrong):
    assert findings(copied(spark3={"files": files})) == [
        f"refuse share.copied spark3: {wrong}; limit: all 3 files as on spark1; remedy: run site.yml, which copies what"
        " differs"
    ]


def test_a_disk_without_room():
    needed = {"big/a": [100 * GB, 1], "big/b": [60 * GB, 1]}
    have = {"big/a": [40 * GB, 2]}
    found = copied(spark1={"files": needed}, spark2={"files": have, "disk_free": 121 * GB}, spark3={"files": needed})
    lines = [line for line in findings(found) if "share.room" in line]
    assert lines == [
        "refuse share.room spark2: 121.00 GB are free at /models, 120.00 GB are to be copied; limit: 2 GB left;"
        " remedy: free some space, or set model_store_path to a larger disk"
    ]


def test_before_the_head_has_anything_the_controllers_checkpoint_counts():
    empty = {**weights(), "error": "is not there", "tensors": {}, "shards": {}}
    found = copied(source=weights(), **{f"spark{n}": {"files": {}, "disk_free": 11 * GB} for n in range(1, 5)})
    for host in found.facts:
        found.facts[host]["weights"] = empty
    lines = [line for line in findings(found) if "share.room" in line]
    assert [line.split(";")[0] for line in lines] == [
        f"refuse share.room spark{n}: 11.00 GB are free at /models, 10.00 GB are to be copied" for n in (2, 3, 4)
    ]


def test_before_the_head_has_anything_what_it_fetches_counts():
    empty = {**weights(), "error": "is not there", "tensors": {}, "shards": {}}
    found = copied(**{f"spark{n}": {"files": {}, "disk_free": 11 * GB} for n in range(1, 5)})
    for host, intent in found.intents.items():
        found.facts[host]["weights"] = empty
        found.intents[host] = replace(intent, checkpoint=CheckpointNeed(disk=10 * GB))
    lines = [line for line in findings(found) if "share.room" in line]
    assert [line.split(";")[0] for line in lines] == [
        f"refuse share.room spark{n}: 11.00 GB are free at /models, 10.00 GB are to be copied" for n in (2, 3, 4)
    ]


def test_the_directory_of_a_copy_is_no_mount():
    (line,) = findings(copied(spark2={"mount": mount()}))
    assert line.startswith(
        "refuse share.due spark2: /models is mounted from 192.168.100.10:/models; limit: a directory"
    )


def test_a_local_directory_may_be_a_mount_of_the_users_own():
    assert findings(cluster(facts={(CLIENT, "share", "mount"): mount()})) == []


def test_a_node_alone_is_asked_about_itself():
    """As at the start of the engine, where the facts of the others are not there."""
    whole = over_nfs(**{CLIENT: {"answer": "Stale file handle"}})
    for host in ("spark1", "spark3", "spark4"):
        whole.facts.pop(host)
    assert [line.split(":")[0] for line in findings(whole) if "share." in line] == ["refuse share.answer spark2"]
    alone = copied()
    alone.facts.pop(HEAD)
    assert not [line for line in findings(alone) if "share.copied" in line]
