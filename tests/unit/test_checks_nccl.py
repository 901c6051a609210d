"""Checks of what NCCL makes of its environment: the file on the node, a profile's own values, a pinned GID index."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import DEVICE0, DEVICE1, NETDEV0, cluster, findings, gid_of, gid_row, intent, node_facts
from wiring import joined, planned

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Cluster, Stage, refusals
from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import env_file, nccl_env
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import resolve

FILE = "/etc/sparkwright/nccl.env"
WANTED = "limit: what the inventory asks for, with rocep1s0f0, roceP2p1s0f0, the devices of the rails"
REWRITE = "remedy: run playbooks/stop.yml if it serves, then site.yml, which writes it"
LOCAL = "fe80:0000:0000:0000:4ebb:47ff:fe2c:100a"


def written(host="spark2", old=None, new="", **paths):
    """A change: other text in the file of one node."""
    text = node_facts(int(host[-1]) - 1)["fabric"]["nccl_env"]
    return {(host, "fabric", "nccl_env"): text.replace(old, new) if old else new or None}


def with_profile(facts=None, **variables):
    """A healthy cluster whose profile has these variables, and whose nodes have the files for it."""
    values = {name: str(value) for name, value in variables.items()}
    changed = {"nccl_env": values}
    files = {
        (f"spark{n}", "fabric", "nccl_env"): env_file(
            nccl_env(intent(n - 1, nccl_env=values), node_facts(n - 1)["fabric"])
        )
        for n in range(1, 5)
    }
    return cluster(intents={"*": changed}, facts={**files, **(facts or {})})


# --- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            written(new=""),
            f"{FILE} is not there; {WANTED}; remedy: run site.yml, which writes it",
        ),
        (
            written(old="NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0", new="NCCL_IB_HCA==rocep1s0f1,roceP2p1s0f1"),
            f"{FILE} names rocep1s0f1,roceP2p1s0f1 and differs in NCCL_IB_HCA; {WANTED}; {REWRITE}",
        ),
        (
            written(old="NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0\n", new=""),
            f"{FILE} names every device and differs in NCCL_IB_HCA; {WANTED}; {REWRITE}",
        ),
        (
            written(old="NCCL_NET=IB\n", new="NCCL_NET=Socket\nNCCL_IB_DISABLE=1\n"),
            f"{FILE} names rocep1s0f0,roceP2p1s0f0 and differs in NCCL_IB_DISABLE, NCCL_NET; {WANTED}; {REWRITE}",
        ),
        (
            written(old="NCCL_NET=IB\n", new="# NCCL_NET=IB\nNCCL_NET=IB\n"),
            f"{FILE} names rocep1s0f0,roceP2p1s0f0 and differs in # NCCL_NET; {WANTED}; {REWRITE}",
        ),
        (
            written(old="NCCL_NET=IB\n", new="NCCL_NET=IB\n\n"),
            f"{FILE} names rocep1s0f0,roceP2p1s0f0 and differs in its form; {WANTED}; {REWRITE}",
        ),
    ],
    ids=["missing", "the other cage", "no device", "sockets", "a comment", "an empty line"],
)
def test_a_file_that_is_not_the_intended_one(change, line):
    assert findings(cluster(facts=change)) == [f"refuse fabric.nccl-env spark2: {line}"]


def test_devices_that_were_renamed_since_the_file_was_written():
    rdma = node_facts(1)["fabric"]["rdma"]
    renamed = {"mlx5_0": rdma[DEVICE0], "mlx5_1": rdma[DEVICE1]}
    assert findings(cluster(facts={("spark2", "fabric", "rdma"): renamed})) == [
        f"refuse fabric.nccl-env spark2: {FILE} names rocep1s0f0,roceP2p1s0f0 and differs in NCCL_IB_HCA,"
        " UCX_NET_DEVICES; limit: what the inventory asks for, with mlx5_0, mlx5_1, the devices of the rails;"
        f" {REWRITE}"
    ]


def test_devices_may_differ_from_node_to_node():
    """spark1 has its cable in p0, spark2 in p1: the files differ, and both are right."""
    facts = joined(2, ((1, "p0"), (2, "p1")))
    resolution = resolve(planned(2), facts)
    texts = {}
    for host, found in resolution.intents.items():
        for rail in found.rails:
            facts[host]["fabric"]["netdevs"][rail.netdev]["addresses"] = [rail.cidr]
        texts[host] = facts[host]["fabric"]["nccl_env"] = env_file(nccl_env(found, facts[host]["fabric"]))
    assert "NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0\n" in texts["spark1"]
    assert "NCCL_IB_HCA==rocep1s0f1,roceP2p1s0f1\n" in texts["spark2"]
    assert not [line for line in findings(Cluster(facts, resolution.intents)) if "fabric.nccl-env" in line]


# --- a profile's own values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables",
    [
        {"NCCL_IB_HCA": "=rocep1s0f0,roceP2p1s0f0"},
        {"NCCL_IB_HCA": "=roceP2p1s0f0:1,rocep1s0f0:1"},
        {"NCCL_IB_HCA": "roce"},
        {"NCCL_IB_HCA": "^mlx5"},
        {"NCCL_SOCKET_IFNAME": "=enp1s0f0np0"},
        {"NCCL_SOCKET_IFNAME": "enp1s0f0,enP2p1s0f0"},
        {"NCCL_SOCKET_IFNAME": "=enP7s7"},
        {"NCCL_DEBUG": "INFO"},
    ],
    ids=str,
)
def test_what_selects_the_same_or_is_of_no_matter_is_honoured(variables):
    assert findings(with_profile(**variables)) == []


REMOVE_HCA = "remedy: remove NCCL_IB_HCA from the profile's nccl_env: each node then names its own devices"
REMOVE_IF = "remedy: correct NCCL_SOCKET_IFNAME in the profile's nccl_env, or remove it"


@pytest.mark.parametrize(
    ("variables", "fact"),
    [
        ({"NCCL_IB_HCA": "=rocep1s0f0"}, f"NCCL_IB_HCA==rocep1s0f0 selects rocep1s0f0; {WANTED}; {REMOVE_HCA}"),
        ({"NCCL_IB_HCA": "mlx5"}, f"NCCL_IB_HCA=mlx5 selects no ACTIVE device; {WANTED}; {REMOVE_HCA}"),
        ({"NCCL_IB_HCA": "^roce"}, f"NCCL_IB_HCA=^roce selects no ACTIVE device; {WANTED}; {REMOVE_HCA}"),
        (
            {"NCCL_IB_HCA": "=rocep1s0f0:2"},
            f"NCCL_IB_HCA==rocep1s0f0:2 selects no ACTIVE device; {WANTED}; {REMOVE_HCA}",
        ),
        (
            {"NCCL_IB_HCA": "roce:"},
            "NCCL_IB_HCA=roce:: roce: has an empty port; limit: name or name:port, as NCCL's releases differ on it;"
            f" {WANTED}; remedy: correct NCCL_IB_HCA in the profile's nccl_env, or remove it",
        ),
        (
            {"NCCL_SOCKET_IFNAME": "eth0"},
            "NCCL_SOCKET_IFNAME=eth0 selects no interface, not enP7s7 or enP2p1s0f0np0, enp1s0f0np0;"
            f" {WANTED}; {REMOVE_IF}",
        ),
        (
            {"NCCL_SOCKET_IFNAME": "en"},
            "NCCL_SOCKET_IFNAME=en selects enP2p1s0f0np0, enP7s7, enp1s0f0np0, not enP7s7 or enP2p1s0f0np0,"
            f" enp1s0f0np0; {WANTED}; {REMOVE_IF}",
        ),
        (
            {"NCCL_SOCKET_IFNAME": "=lo"},
            f"NCCL_SOCKET_IFNAME==lo selects lo, not enP7s7 or enP2p1s0f0np0, enp1s0f0np0; {WANTED}; {REMOVE_IF}",
        ),
        (
            {"NCCL_SOCKET_IFNAME": "e"},
            "NCCL_SOCKET_IFNAME=e: NCCL ignores 'e' and chooses an interface itself; limit: two characters or more;"
            f" {WANTED}; {REMOVE_IF}",
        ),
    ],
)
def test_what_selects_anything_else_is_refused_on_every_node(variables, fact):
    assert findings(with_profile(**variables)) == [f"refuse fabric.nccl-env spark{n}: {fact}" for n in range(1, 5)]


def test_a_prefix_that_takes_in_another_device_of_one_node():
    """rocep1s0f1 alone is meant, and rocep1s0f10 is there too."""
    rdma = node_facts(1)["fabric"]["rdma"]
    port = {**rdma[DEVICE0]["port"], "gids": []}
    more = {**rdma, "rocep1s0f01": {"netdev": None, "firmware": None, "port": port}}
    subject = with_profile({("spark2", "fabric", "rdma"): more}, NCCL_IB_HCA="rocep1s0f0,roceP2p1s0f0")
    assert findings(subject) == [
        "refuse fabric.nccl-env spark2: NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0 selects roceP2p1s0f0, rocep1s0f0,"
        f" rocep1s0f01; {WANTED}; {REMOVE_HCA}"
    ]


def test_in_a_ring_only_the_management_network_reaches_everyone():
    facts = joined(3, ((1, "p0"), (2, "p1")), ((2, "p0"), (3, "p1")), ((3, "p0"), (1, "p1")))
    for value, refused in (("=enP7s7", False), ("=enp1s0f0np0", True)):
        changes = {f"spark{n}": {"nccl_env": {"NCCL_SOCKET_IFNAME": value}} for n in range(1, 4)}
        found = resolve(planned(3, "ring", **changes), facts).intents
        for host, one in found.items():
            for rail in one.rails:
                facts[host]["fabric"]["netdevs"][rail.netdev]["addresses"] = [rail.cidr]
            facts[host]["fabric"]["nccl_env"] = env_file(nccl_env(one, facts[host]["fabric"]))
        lines = [line for line in findings(Cluster(facts, found)) if "fabric.nccl-env" in line]
        assert ["not enP7s7;" in line for line in lines] == [True] * 3 * refused


# --- a pinned GID index ---------------------------------------------------------------------------------------------

UNPIN = "remedy: remove NCCL_IB_GID_INDEX from the profile's nccl_env: NCCL then finds the row itself"


def gid_lines(subject):
    return [line for line in findings(subject) if "fabric.gid-index" in line]


def test_without_a_pinned_index_nothing_is_said():
    assert gid_lines(cluster()) == []
    assert gid_lines(with_profile(NCCL_IB_GID_INDEX=-1)) == []


def test_a_pinned_index_that_is_right_everywhere_is_a_warning_because_it_moves():
    lines = gid_lines(with_profile(NCCL_IB_GID_INDEX=3))
    assert len(lines) == 8
    assert lines[0] == (
        "warn fabric.gid-index spark1: NCCL_IB_GID_INDEX=3 is RoCE v2 192.168.100.10 of rocep1s0f0 now; limit: RoCE v2"
        f" 192.168.100.10 of every rail on every node; the row moves after link and netplan events; {UNPIN}"
    )
    assert all(line.startswith("warn ") for line in lines)


@pytest.mark.parametrize(
    ("index", "shown"),
    [
        (0, "0 IB/RoCE v1 fe80::4ebb:47ff:fe2c:100a"),
        (1, "1 RoCE v2 fe80::4ebb:47ff:fe2c:100a"),
        (2, "2 IB/RoCE v1 192.168.100.10"),
        (4, "a hole"),
        (255, "a hole"),
    ],
)
def test_a_pinned_index_that_is_another_row(index, shown):
    lines = gid_lines(with_profile(NCCL_IB_GID_INDEX=index))
    assert len(lines) == 8
    assert lines[0] == (
        f"refuse fabric.gid-index spark1: NCCL_IB_GID_INDEX={index} is {shown} of rocep1s0f0 now; limit: RoCE v2"
        f" 192.168.100.10 of every rail on every node; the row moves after link and netplan events; {UNPIN}"
    )


@pytest.mark.parametrize(
    "rows",
    [
        [gid_row(1, LOCAL), gid_row(4, gid_of("192.168.100.11"), "IB/RoCE v1"), gid_row(5, gid_of("192.168.100.11"))],
        [gid_row(1, LOCAL), gid_row(6, gid_of("192.168.100.11"))],
        [gid_row(3, gid_of("192.168.100.12"))],
        [gid_row(3, "")],
        [gid_row(3, gid_of("169.254.3.4"))],
        [],
    ],
    ids=["at 5", "at 6 behind a hole", "another address", "unreadable", "link-local", "empty"],
)
def test_one_device_of_one_node_where_the_index_is_wrong_is_a_refusal(rows):
    place = ("spark2", "fabric", "rdma", DEVICE0, "port", "gids")
    lines = gid_lines(with_profile({place: rows}, NCCL_IB_GID_INDEX=3))
    assert [line.split(":")[0] for line in lines].count("refuse fabric.gid-index spark2") == 1
    assert sum(line.startswith("warn ") for line in lines) == 7


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.FABRIC, Stage.LAUNCH])
def test_a_hole_is_refused_before_anything_is_changed_and_right_before_the_launch(stage):
    subject = with_profile({("spark2", "fabric", "rdma", DEVICE0, "port", "gids"): []}, NCCL_IB_GID_INDEX=3)
    found = [check for check in refusals(run_checks(subject, stage)) if check.id == "fabric.gid-index"]
    assert [(check.host, check.subject) for check in found] == [("spark2", "rail0")]


def test_a_rail_without_its_address_has_no_row_to_judge_yet():
    subject = with_profile({("spark2", "fabric", "netdevs", NETDEV0, "addresses"): []}, NCCL_IB_GID_INDEX=0)
    assert len(gid_lines(subject)) == 7
    assert not [line for line in gid_lines(subject) if "192.168.100.11" in line]


@pytest.mark.parametrize("index", [3, 4, 5, 6])
def test_wherever_the_row_is_nothing_needs_to_be_pinned(index):
    place = ("spark2", "fabric", "rdma", DEVICE0, "port", "gids")
    rows = [gid_row(1, LOCAL), gid_row(index, gid_of("192.168.100.11"), netdev=NETDEV0)]
    assert findings(cluster(facts={place: rows})) == []


def test_a_rail_that_was_not_found_has_its_line_elsewhere():
    lost = intent(1)
    rails = (lost.rails[0], replace(lost.rails[1], netdev=""))
    assert not [line for line in findings(cluster(intents={"spark2": {"rails": rails}})) if "nccl-env spark2" in line]
