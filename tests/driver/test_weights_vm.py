"""Weights over NFS between virtual machines: their kernels serve, mount, lose the server, and speak RDMA.

The tests build on each other: what the first run set up, the head without power while a client boots, the same
directory exported anew, RDMA, and at last the restore.
"""

from __future__ import annotations

import subprocess
import time

import pytest
from driver import REPO, module, play

CONVERGE, RESTORE = "molecule/weights/converge.yml", "playbooks/restore.yml"
NFS = {"model_store_share": "nfs"}
RDMA = NFS | {"model_store_nfs_proto": "rdma"}
CLIENTS = ("spark2", "spark3", "spark4")
PATH = "/var/lib/sparkwright/models"
UNIT = "var-lib-sparkwright-models.mount"
HEAD = "192.168.100.10"
# Seconds for the facts of a node that cannot reach its server: 5 s for the mount, 30 s for the checkpoint, a connection
# of 3 s; and an emulated machine needs half a minute for the module itself.
BOUND = 150
# Seconds until a mount is there after its server has booted.
RETRY = 300


def lever(node: str, *words: str) -> None:
    subprocess.run([REPO / "lab/vm/lever", node, *words], check=True, timeout=1500)


def mounts(on_node, node: str) -> dict[str, str]:
    """The options of the mount in /proc/mounts, with its source; empty where there is none."""
    for line in on_node(node, "cat /proc/mounts").splitlines():
        source, path, fstype, options, *_ = line.split()
        if (path, fstype) == (PATH, "nfs4"):
            pairs = (option.partition("=") for option in options.split(","))
            return {"source": source, **{name: value for name, _, value in pairs}}
    return {}


def facts_of(node: str) -> tuple[float, dict]:
    """How long a node's facts took, and what they say about sharing."""
    began = time.monotonic()
    run = module(node, "sparkwright.cluster.node_facts", "subsets=share,weights", NFS)
    assert run.code == 0, run.output
    return time.monotonic() - began, run.results[node]["node"]


def wait_for(look, wanted, seconds: float):
    until = time.monotonic() + seconds
    while (found := look()) != wanted and time.monotonic() < until:
        time.sleep(5)
    return found


def test_the_head_exports_to_the_rails_alone(on_node):
    listening = on_node("spark1", "ss -H -l -t -n sport = :2049").splitlines()
    assert sorted(line.split()[3] for line in listening) == ["192.168.100.10:2049", "192.168.101.10:2049"]
    table = on_node("spark1", "cat /var/lib/nfs/etab").splitlines()
    clients = [line.split("\t")[1].partition("(")[0] for line in table]
    assert sorted(clients) == [f"192.168.10{rail}.{11 + n}" for rail in (0, 1) for n in range(3)]
    assert all(line.startswith(f"{PATH}\t") and "root_squash" in line and "(ro," in line for line in table)


@pytest.mark.parametrize("node", CLIENTS)
def test_a_client_mounts_over_the_rail_as_proc_mounts_says(on_node, node):
    found = mounts(on_node, node)
    assert found["source"] == f"{HEAD}:{PATH}"
    options = {name: found.get(name) for name in ("ro", "hard", "vers", "proto", "nconnect", "addr")}
    assert options == {"ro": "", "hard": "", "vers": "4.2", "proto": "tcp", "nconnect": "4", "addr": HEAD}
    own = f"192.168.100.{9 + int(node[-1])}"
    ends = on_node(node, "ss -H -t -n state established dport = :2049").splitlines()
    assert {line.split()[2].rpartition(":")[0] for line in ends} == {own}
    device = f"findmnt --noheadings --output MAJ:MIN --mountpoint {PATH}"
    assert on_node(node, f"cat /sys/class/bdi/`{device} | tr -d [:blank:]`/read_ahead_kb") == "16384"
    assert on_node(node, f"touch {PATH}/x 2>&1 || true").endswith("Read-only file system")


@pytest.fixture(scope="module")
def dark():
    """The head loses its power, and a client boots without it."""
    lever("spark1", "off")
    began = facts_of("spark2")
    lever("spark3", "reboot")
    return began


def test_the_facts_of_a_client_come_in_time_and_say_that_the_server_is_gone(dark):
    seconds, node = dark
    print(f"the facts of a client without its server took {seconds:.0f} s")
    assert seconds < BOUND
    assert node["share"]["reached"] is False
    assert node["share"]["answer"] == "no answer within 5 s"
    assert node["weights"]["error"].startswith("it did not answer within 30 s")


@pytest.mark.usefixtures("dark")
def test_a_client_that_booted_first_is_there_and_waits(on_node):
    assert mounts(on_node, "spark3") == {}
    state = f"systemctl show {UNIT} --property=ActiveState --value"
    # It answers to ssh before its rail is there, for which the mount waits first.
    assert wait_for(lambda: on_node("spark3", state), "activating", RETRY) == "activating"


@pytest.mark.usefixtures("dark")
def test_both_come_back_with_the_server_and_nobody_touches_them(on_node):
    lever("spark1", "on")
    assert wait_for(lambda: mounts(on_node, "spark3").get("addr"), HEAD, RETRY) == HEAD
    look = f"cat {PATH}/zeros/config.json"
    assert {on_node(node, look) for node in CLIENTS} == {on_node("spark1", look)}
    run = play(CONVERGE, variables=NFS)
    assert (run.code, run.changed) == (0, []), run.output


def test_a_directory_that_was_made_anew_is_stale_and_the_next_run_mounts_it_again(on_node):
    anew = f"exportfs -ua; cp -a {PATH} {PATH}.new; rm -r {PATH}; mv {PATH}.new {PATH}; exportfs -ra; exportfs -f"
    on_node("spark1", anew)
    doctor = play("playbooks/doctor.yml", variables=NFS)
    stale = {line.split(":")[0] for line in doctor.failures if f"{PATH}: Stale file handle; limit: " in line}
    assert stale == set(CLIENTS), doctor.output
    run = play(CONVERGE, variables=NFS)
    assert run.code == 0, run.output
    assert sorted(run.changed) == [f"{node}: Mount the checkpoint" for node in CLIENTS]


def test_rdma_that_became_tcp_is_refused(on_node):
    """The kernel joins the new mount with the TCP connection that it has to the same server."""
    on_node("spark2", f"mount -t nfs4 -o ro,proto=tcp {HEAD}:{PATH} /mnt")
    run = play(CONVERGE, variables=RDMA)
    assert run.code != 0
    assert (
        f"spark2: {PATH} is mounted with proto=tcp; limit: proto=rdma; remedy: unmount whatever comes from that server"
        " on the node (see /proc/mounts), then run site.yml" in run.failures
    ), run.output


def test_without_that_connection_it_is_rdma(on_node):
    on_node("spark2", "umount /mnt")
    run = play(CONVERGE, variables=RDMA)
    assert run.code == 0, run.output
    assert {mounts(on_node, node)["proto"] for node in CLIENTS} == {"rdma"}
    assert on_node("spark1", "cat /proc/fs/nfsd/portlist").count("rdma") >= 1


def test_an_export_to_the_lan_is_named(on_node):
    on_node("spark1", f"exportfs -o ro 10.78.0.0/24:{PATH}")
    doctor = play("playbooks/doctor.yml", variables=RDMA)
    assert any(line.startswith(f"spark1: it exports {PATH} to 10.78.0.0/24; limit: ") for line in doctor.failures)
    on_node("spark1", f"exportfs -u 10.78.0.0/24:{PATH}")


def test_a_restore_takes_mounts_and_exports_back(on_node):
    run = play(RESTORE)
    assert run.code == 0, run.output
    assert [mounts(on_node, node) for node in CLIENTS] == [{}, {}, {}]
    ours = f"ls /etc/exports.d /etc/nfs.conf.d /etc/systemd/system/{UNIT} 2>/dev/null | grep -c sparkwright || true"
    assert {on_node(node, ours) for node in ("spark1", *CLIENTS)} == {"0"}
    assert on_node("spark1", "cat /var/lib/nfs/etab") == ""
