"""The inventory rules: each case breaks a good inventory in one way and expects exactly the lines for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import (
    Inventory,
    Unreadable,
    find_mistakes,
    plan_of,
)

RAILS = [
    {"name": "rail0", "netdev": "enp1s0f0np0", "subnet": "192.168.100.0/24"},
    {"name": "rail1", "netdev": "enP2p1s0f0np0", "subnet": "192.168.101.0/24"},
]
TEXT = {"type": "str", "required": True}
SPECS = {
    "preflight": {
        "sparkwright_rank": {"type": "int", "required": True},
        "sparkwright_profile": TEXT,
        "sparkwright_hardware_root": {"type": "path", "default": "/"},
    },
    "fabric": {
        "fabric_rails": {
            "type": "list",
            "elements": "dict",
            "default": RAILS,
            "options": {"name": TEXT, "netdev": {"type": "str"}, "subnet": TEXT},
        },
        "fabric_mtu": {"type": "int", "default": 9000},
        "fabric_host_offset": {"type": "int", "default": 10},
        "fabric_topology": {"type": "str", "default": "switch"},
        "fabric_link_prefix": {"type": "int", "default": 31},
        "fabric_cage": {"type": "str", "default": "", "choices": ["", "p0", "p1"]},
    },
    "host_tuning": {"host_tuning_swap": {"type": "str", "default": "keep", "choices": ["keep", "off", "size"]}},
    "model_store": {
        "model_store_path": {"type": "path", "default": "/models"},
        "model_store_source": {"type": "str", "default": ""},
        "model_store_fetch": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {"repo": TEXT, "revision": TEXT, "directory": {"type": "str"}},
        },
        "model_store_overlay": {"type": "dict", "default": {}},
        "model_store_prune": {"type": "dict", "default": {}},
    },
    "serving": {
        "serving_port": {"type": "int", "default": 8000},
        "serving_api_address": {"type": "str", "default": "management"},
        "serving_api_key": {"type": "str", "default": ""},
    },
}
POOLS = [{"name": rail["name"], "subnet": rail["subnet"]} for rail in RAILS]
SHAPE = {"parallel": {"tp": 4, "pp": 1, "dcp": 1}}
SHARED = {"sparkwright_profile": "tiny-tp4"}
REMOVED = object()


def inventory(count=4, everywhere=None, profile=None, **changes):
    """A good inventory of spark1..N; `spark2={...}` changes a host's variables, REMOVED takes one away."""
    hosts = [f"spark{number}" for number in range(1, count + 1)]
    hostvars = {}
    for rank, host in enumerate(hosts):
        own = {"ansible_host": f"10.77.0.1{rank}", "sparkwright_rank": rank}
        values = {**SHARED, **own, **(everywhere or {}), **changes.get(host, {})}
        hostvars[host] = {name: value for name, value in values.items() if value is not REMOVED}
    return Inventory(
        hostvars=hostvars,
        groups={"all": hosts, "sparks": hosts},
        play_hosts=hosts,
        role_specs=SPECS,
        profile=profile or {"parallel": {"tp": count, "pp": 1, "dcp": 1}},
        profile_names=["tiny-tp4", "tiny-tp2"],
    )


def lines(subject):
    return [str(mistake) for mistake in find_mistakes(subject)]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_good_inventory_has_no_mistakes(count):
    assert lines(inventory(count)) == []


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        ({}, "all nodes: the group sparks does not exist; remedy: list the nodes in sparks"),
        ({"sparks": []}, "all nodes: the group sparks is empty; remedy: list the nodes in sparks"),
        (
            {"spark": ["spark1"]},
            "all nodes: the group sparks does not exist (did you mean spark?); remedy: list the nodes in sparks",
        ),
    ],
)
def test_without_nodes_there_is_one_line(groups, line):
    assert lines(replace(inventory(), groups=groups)) == [line]


@pytest.mark.parametrize(("count", "said"), [(1, "1 node"), (9, "9 nodes")])
def test_the_number_of_nodes_is_limited(count, said):
    subject = inventory(count, profile={"parallel": {"tp": 1, "pp": count}})
    assert lines(subject) == [
        f"all nodes: the group sparks has {said}; limit: 2 to 8; remedy: list 2 to 8 nodes in sparks"
    ]


def test_a_run_on_part_of_the_cluster_is_refused():
    assert lines(replace(inventory(), play_hosts=["spark1", "spark3", "elsewhere"])) == [
        "all nodes: the run leaves out spark2, spark4; limit: all 4 nodes at once; remedy: run it without --limit"
    ]


OWN_RANK = "remedy: give each node its own rank"
RANK_WORDS = "where a whole number belongs; remedy: write a whole number"
NOT_SET = "sparkwright_rank is not set; remedy: give each node its own rank: 0 for the head, then 1, 2, 3"
HEAD_MISSING = (
    "all nodes: no node has sparkwright_rank 0: the head is missing; remedy: give the head sparkwright_rank: 0"
)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (
            [0, REMOVED, 2, 3],
            [f"spark2: {NOT_SET}"],
        ),
        (
            [REMOVED] * 4,
            [f"all nodes: {NOT_SET}"],
        ),
        (
            ["0", 1, 2, 3],
            [f'spark1: sparkwright_rank is the string "0" {RANK_WORDS} without quotes (after -e as JSON)'],
        ),
        ([0, True, 2, 3], [f"spark2: sparkwright_rank is the boolean true {RANK_WORDS}"]),
        ([0, 1.0, 2, 3], [f"spark2: sparkwright_rank is the number 1.0 {RANK_WORDS}"]),
        (
            [0, 1, 2, -3],
            ["spark4: sparkwright_rank is -3; limit: 0 or more; remedy: count the ranks from 0, the head"],
        ),
        ([0, 1, 1, 3], [f"spark3: sparkwright_rank 1 is also the rank of spark2; {OWN_RANK}"]),
        ([1, 1, 2, 3], [f"spark2: sparkwright_rank 1 is also the rank of spark1; {OWN_RANK}", HEAD_MISSING]),
        ([1, 2, 3, 4], [HEAD_MISSING]),
        (
            [0, 1, 9, 7],
            [
                "spark4: sparkwright_rank is 7 and nobody has 2; limit: 0 to 3 for 4 nodes; "
                "remedy: write sparkwright_rank: 2",
                "spark3: sparkwright_rank is 9 and nobody has 3; limit: 0 to 3 for 4 nodes; "
                "remedy: write sparkwright_rank: 3",
            ],
        ),
    ],
)
def test_ranks(ranks, expected):
    changes = {f"spark{number}": {"sparkwright_rank": rank} for number, rank in enumerate(ranks, start=1)}
    assert lines(inventory(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param(
            {"spark3": {"ansible_host": "10.77.0.10"}},
            "spark3: has the ansible_host 10.77.0.10 of spark1; remedy: give each node its own address",
            id="management-address-twice",
        ),
        pytest.param(
            {"spark3": {"ansible_host": "SPARK1.lan"}, "spark1": {"ansible_host": "spark1.lan"}},
            "spark3: has the ansible_host SPARK1.lan of spark1; remedy: give each node its own address",
            id="names-have-no-case",
        ),
        pytest.param(
            {"spark3": {"ansible_host": "spark1"}, "spark1": {"ansible_host": REMOVED}},
            "spark3: has the ansible_host spark1 of spark1; remedy: give each node its own address",
            id="the-name-is-the-address",
        ),
        pytest.param(
            {"spark2": {"serving_prt": 1}},
            "spark2: serving_prt is no variable of any role (did you mean serving_port?); remedy: correct or remove it",
            id="misspelt-role-variable",
        ),
        pytest.param(
            {"everywhere": {"sparkwright_hardwareroot": "/"}},
            "all nodes: sparkwright_hardwareroot is no variable of any role (did you mean sparkwright_hardware_root?); "
            "remedy: correct or remove it",
            id="misspelt-project-variable-everywhere",
        ),
        pytest.param(
            {"spark2": {"serving_zzz": 1}},
            "spark2: serving_zzz is no variable of any role; remedy: correct or remove it",
            id="unlike-anything",
        ),
        pytest.param(
            {"spark2": {"serving_port": "8000"}},
            'spark2: serving_port is the string "8000" where a whole number belongs; '
            "remedy: write a whole number without quotes (after -e as JSON)",
            id="string-for-a-number",
        ),
        pytest.param(
            {"everywhere": {"fabric_mtu": "9000"}},
            'all nodes: fabric_mtu is the string "9000" where a whole number belongs; '
            "remedy: write a whole number without quotes (after -e as JSON)",
            id="string-for-a-number-of-the-plan",
        ),
        pytest.param(
            {"everywhere": {"fabric_rails": [{"name": "rail0", "netdev": "eth0"}]}},
            "all nodes: fabric_rails[0].subnet is not set; remedy: set fabric_rails[0].subnet",
            id="suboption-missing",
        ),
        pytest.param(
            {"everywhere": {"fabric_rails": []}},
            "all nodes: fabric_rails is not a list of rails; remedy: list at least one rail",
            id="no-rails",
        ),
        pytest.param(
            {"everywhere": {"fabric_host_offset": 252}},
            "spark4: rank 3 with fabric_host_offset 252 is host number 255 of rail0 192.168.100.0/24; limit: 1 to 254; "
            "remedy: set fabric_host_offset to 1 to 251",
            id="address-plan",
        ),
        pytest.param(
            {"everywhere": {"fabric_topology": "swich"}},
            'all nodes: fabric_topology is "swich" (did you mean switch?); remedy: choose one of switch, direct, ring',
            id="topology",
        ),
        pytest.param(
            {"everywhere": {"fabric_topology": "ring", "fabric_rails": POOLS, "fabric_link_prefix": 29}},
            "all nodes: fabric_link_prefix is 29; remedy: choose one of 30, 31",
            id="link-prefix",
        ),
        pytest.param(
            {"everywhere": {"fabric_topology": "direct"}},
            "all nodes: fabric_topology is direct with 4 nodes; limit: 2; remedy: set fabric_topology to ring or"
            " switch",
            id="too-many-for-a-cable",
        ),
        pytest.param(
            {"everywhere": {"serving_api_address": "lan"}},
            'spark1: serving_api_address is "lan"; limit: management, fabric, or an IPv4 address; remedy: write'
            " management",
            id="address of the API",
        ),
        pytest.param(
            {"everywhere": {"serving_api_key": "s3cret"}},
            "spark1: serving_api_key has 6 characters, not all of them usable; limit: 16 or more without blanks;"
            " remedy: make one with `openssl rand -hex 24`, and keep it in a vault",
            id="key of the API",
        ),
        pytest.param(
            {"spark2": {"fabric_cage": "p2"}},
            'spark2: fabric_cage is "p2"; remedy: choose one of , p0, p1',
            id="cage",
        ),
        pytest.param(
            {"everywhere": {"fabric_topology": "ring", "fabric_rails": POOLS}, "spark2": {"fabric_cage": "p1"}},
            'spark2: fabric_cage is "p1"; limit: empty in a ring, where each neighbour has a cage of its own; '
            "remedy: remove fabric_cage: the cage of each link is found by who answers on it",
            id="cage-in-a-ring",
        ),
        pytest.param(
            {"spark2": {"fabric_topology": "ring"}},
            'all nodes: fabric_topology differs: "switch" on spark1 and spark3 and spark4, "ring" on spark2; '
            "remedy: set it once, for the group sparks",
            id="topology-differs",
        ),
        pytest.param(
            {"profile": {**SHAPE, "nccl_env": {"NCCL_IB_DISABLE": 1}}},
            "all nodes: the profile's nccl_env: NCCL_IB_DISABLE=1 is set; limit: 0 or unset, RoCE runs through NCCL's"
            " IB code, and without it the fabric drops to TCP; remedy: remove NCCL_IB_DISABLE",
            id="nccl-without-ib",
        ),
        pytest.param(
            {
                "everywhere": {"fabric_topology": "ring", "fabric_rails": POOLS},
                "profile": {**SHAPE, "nccl_env": {"NCCL_ALGO": "Tree"}},
            },
            "all nodes: the profile's nccl_env: NCCL_ALGO=Tree is set; limit: Ring in a ring, where a node's ports lead"
            " to different nodes; remedy: remove NCCL_ALGO",
            id="a-tree-in-a-ring",
        ),
        pytest.param(
            {"spark3": {"fabric_mtu": 1500}},
            "all nodes: fabric_mtu differs: 9000 on spark1 and spark2 and spark4, 1500 on spark3; "
            "remedy: set it once, for the group sparks",
            id="mtu-differs-from-the-default",
        ),
        pytest.param(
            {"spark4": {"host_tuning_swap": "off"}},
            'all nodes: host_tuning_swap differs: "keep" on spark1 and spark2 and spark3, "off" on spark4; '
            "remedy: set it once, for the group sparks",
            id="swap-differs",
        ),
        pytest.param(
            # What YAML makes of a bare off.
            {"everywhere": {"host_tuning_swap": False}},
            "all nodes: host_tuning_swap is the boolean false where text belongs; remedy: put it in quotes",
            id="a-bare-off",
        ),
        pytest.param(
            {"spark1": {"sparkwright_profile": "tiny-tp2"}},
            'all nodes: sparkwright_profile differs: "tiny-tp2" on spark1, "tiny-tp4" on spark2 and spark3 and spark4; '
            "remedy: set it once, for the group sparks",
            id="profile-differs",
        ),
        pytest.param(
            {"everywhere": {"sparkwright_profile": "tiny-tp5x"}},
            'all nodes: sparkwright_profile "tiny-tp5x" does not exist (did you mean tiny-tp4?); '
            "remedy: choose one that exists: tiny-tp2, tiny-tp4",
            id="unknown-profile",
        ),
        pytest.param(
            {"everywhere": {"sparkwright_profile": REMOVED}},
            "all nodes: sparkwright_profile is not set; remedy: choose one that exists: tiny-tp2, tiny-tp4",
            id="no-profile",
        ),
        pytest.param(
            {"spark2": {"fabric_mtu": Unreadable("'x' is undefined")}},
            "spark2: fabric_mtu cannot be evaluated: 'x' is undefined; remedy: define what it refers to",
            id="unreadable",
        ),
        pytest.param(
            {"spark2": {"sparkwright_rank": Unreadable("'x' is undefined")}},
            "spark2: sparkwright_rank cannot be evaluated: 'x' is undefined; remedy: define what it refers to",
            id="unreadable-rank",
        ),
        pytest.param(
            {"everywhere": {"sparkwright_profile": Unreadable("line one\nline two")}},
            "all nodes: sparkwright_profile cannot be evaluated: line one line two; remedy: define what it refers to",
            id="unreadable-everywhere",
        ),
    ],
)
def test_one_mistake_is_one_line(changes, line):
    subject = inventory(**changes)
    if isinstance(subject.hostvars["spark1"].get("sparkwright_profile"), Unreadable):
        subject = replace(subject, profile=None)
    assert lines(subject) == [line]


def test_a_mistake_of_some_nodes_is_one_line_for_each():
    assert [line.split(";")[0] for line in lines(inventory(spark1={"serving_x": 1}, spark3={"serving_x": 1}))] == [
        "spark1: serving_x is no variable of any role",
        "spark3: serving_x is no variable of any role",
    ]


def test_rails_that_differ_are_shown():
    other = [{**RAILS[0], "netdev": "enp1s0f1np1"}, RAILS[1]]
    (line,) = lines(inventory(2, spark2={"fabric_rails": other}))
    assert line.startswith('all nodes: fabric_rails differs: [{"name": "rail0", "netdev": "enp1s0f0np0"')
    assert "on spark1, " in line
    assert '"netdev": "enp1s0f1np1"' in line
    assert "on spark2;" in line


def test_the_order_of_keys_makes_no_difference():
    reversed_keys = [dict(reversed(rail.items())) for rail in RAILS]
    assert lines(inventory(2, spark2={"fabric_rails": reversed_keys})) == []


@pytest.mark.parametrize(
    ("count", "parallel", "expected"),
    [
        (4, {"tp": 4}, []),
        (4, {"tp": 2, "pp": 2, "dcp": 2}, []),
        (3, {"tp": 1, "pp": 3}, []),
        (8, {"tp": 8, "pp": 1, "dcp": 4}, []),
        (
            2,
            {"tp": 4},
            [
                "needs 4 nodes (tp 4 x pp 1, one GPU a node) and the group sparks has 2; "
                "remedy: choose a profile for 2 nodes or list 4 nodes"
            ],
        ),
        (3, {"tp": 3}, ["has tp 3; limit: a power of two; remedy: write tp 1, 2, 4 or 8 and reach the rest with pp"]),
        (4, {"tp": 4, "dcp": 3}, ["has dcp 3, which does not divide tp 4; remedy: write a dcp that divides 4"]),
        (
            4,
            {"tp": 2, "pp": 2, "dcp": 4},
            ["has dcp 4, which does not divide tp 2; remedy: write a dcp that divides 2"],
        ),
        (4, {"tp": "4"}, ['has parallel.tp "4"; remedy: write a whole number from 1 up']),
        (4, {"tp": 4, "pp": True}, ["has parallel.pp true; remedy: write a whole number from 1 up"]),
        (4, {"tp": 4, "dcp": 0}, ["has parallel.dcp 0; remedy: write a whole number from 1 up"]),
        (4, {}, ["has parallel.tp null; remedy: write a whole number from 1 up"]),
        (4, None, ["has parallel.tp null; remedy: write a whole number from 1 up"]),
        (
            4,
            {"tp": 6, "dcp": 4},
            [
                "needs 6 nodes (tp 6 x pp 1, one GPU a node) and the group sparks has 4; "
                "remedy: choose a profile for 4 nodes or list 6 nodes",
                "has tp 6; limit: a power of two; remedy: write tp 1, 2, 4 or 8 and reach the rest with pp",
                "has dcp 4, which does not divide tp 6; remedy: write a dcp that divides 6",
            ],
        ),
    ],
)
def test_the_shape_of_the_profile_fits_the_nodes(count, parallel, expected):
    assert lines(inventory(count, profile={"parallel": parallel})) == [
        f"all nodes: the profile tiny-tp4 {line}" for line in expected
    ]


def test_a_profile_that_cannot_be_read_is_one_line():
    assert lines(replace(inventory(), profile=Unreadable("tiny-tp4.yml does not hold a YAML mapping"))) == [
        "all nodes: tiny-tp4.yml does not hold a YAML mapping; remedy: correct the file"
    ]


def test_a_required_option_must_be_in_the_inventory():
    specs = SPECS | {"model_store": {"model_store_source": TEXT}}
    assert lines(replace(inventory(), role_specs=specs)) == [
        "all nodes: model_store_source is not set; remedy: set model_store_source"
    ]


def test_without_specifications_the_plan_still_needs_its_inputs():
    assert lines(replace(inventory(), role_specs={})) == [
        f"all nodes: {name} is not set; remedy: set {name}"
        for name in ("fabric_rails", "fabric_mtu", "fabric_host_offset", "fabric_topology", "fabric_link_prefix")
    ]


def test_all_mistakes_come_at_once_and_always_in_the_same_order():
    subject = inventory(
        spark1={"serving_port": "1", "sparkwright_rank": "0"},
        spark2={"serving_prt": 1, "serving_abc": 2, "ansible_host": "10.77.0.10"},
        everywhere={"sparkwright_profile": "nothing"},
    )
    reordered = {host: dict(reversed(values.items())) for host, values in subject.hostvars.items()}
    assert lines(subject) == lines(replace(subject, hostvars=reordered))
    assert [line.split(";")[0] for line in lines(subject)] == [
        "spark2: has the ansible_host 10.77.0.10 of spark1",
        'spark1: sparkwright_rank is the string "0" where a whole number belongs',
        "spark2: serving_abc is no variable of any role",
        "spark2: serving_prt is no variable of any role (did you mean serving_port?)",
        'spark1: serving_port is the string "1" where a whole number belongs',
        'all nodes: sparkwright_profile "nothing" does not exist',
    ]


@pytest.mark.parametrize(
    "variables",
    [
        {"NCCL_IB_HCA": "=rocep1s0f0", "NCCL_SOCKET_IFNAME": "=enP7s7", "NCCL_IB_GID_INDEX": 3, "NCCL_NET": "IB"},
        {"NCCL_ALGO": "Tree", "NCCL_IB_DISABLE": 0},
    ],
)
def test_what_may_be_right_is_left_to_the_nodes(variables):
    assert lines(inventory(profile={**SHAPE, "nccl_env": variables})) == []


def test_a_good_inventory_gives_the_plan():
    plan = plan_of(inventory(2))
    assert plan.head_address == "192.168.100.10"
    assert [rail.cidr for rail in plan.node("spark2").rails] == ["192.168.100.11/24", "192.168.101.11/24"]


BIG = {**SHAPE, "weights": {"directory": "big", "bytes": 1}}


@pytest.mark.parametrize(
    ("fetch", "line"),
    [
        (
            [{"repo": "a/b", "revision": "main"}],
            "all nodes: model_store_fetch[0].revision is main; limit: the 40 hexadecimal digits of a commit, as a"
            " branch or a tag may name other files tomorrow; remedy: write the commit of the revision that you mean",
        ),
        # A wrong type has a line already.
        (
            [{"repo": "a/b"}],
            "all nodes: model_store_fetch[0].revision is not set; remedy: set model_store_fetch[0].revision",
        ),
        ("a/b", 'all nodes: model_store_fetch is the string "a/b" where a list belongs; remedy: write a list'),
    ],
)
def test_how_the_checkpoint_gets_onto_the_nodes(fetch, line):
    assert lines(inventory(everywhere={"model_store_fetch": fetch}, profile=BIG)) == [line]


def test_a_source_that_cannot_be_evaluated_has_one_line():
    found = lines(inventory(spark2={"model_store_fetch": Unreadable("no such file")}, profile=BIG))
    assert found == ["spark2: model_store_fetch cannot be evaluated: no such file; remedy: define what it refers to"]


STORE_SPECS = REPO / "roles" / "model_store" / "meta" / "argument_specs.yml"
NFS = {"model_store_share": "nfs"}
COPY = {"model_store_share": "copy"}
SHARING_SPECS = SPECS | {
    "model_store": yaml.safe_load(STORE_SPECS.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
}
PLAINER = (
    "all nodes: model_store_path is {0}; limit: an absolute path of letters, digits, dots, _ and - to be shared;"
    " remedy: choose a plainer path"
)
STORE = "model_store_path"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"everywhere": {"model_store_share": "local", "model_store_nfs_server": "nas"}},
            'all nodes: model_store_nfs_server is "nas" with model_store_share local; limit: nfs; remedy: set'
            " model_store_share to nfs, or remove model_store_nfs_server",
        ),
        (
            {
                "everywhere": {
                    **NFS,
                    STORE: "/m",
                    "model_store_nfs_server": "nas",
                    "model_store_overlay": {"base": "base", "overlay": "layer"},
                }
            },
            'all nodes: model_store_overlay would bring the weights, which all nodes mount from "nas"; limit: one of'
            " both; remedy: remove model_store_overlay, or model_store_nfs_server",
        ),
        (
            {"everywhere": {**COPY, STORE: "/srv/models"}, "spark3": {STORE: "/data/models"}},
            "spark3: model_store_path is /data/models, on spark1 it is /srv/models; limit: one directory for all;"
            " remedy: set it once, for the group sparks",
        ),
        ({"everywhere": {**NFS, STORE: "/srv/my models"}}, PLAINER.format("/srv/my models")),
        ({"everywhere": {**COPY, STORE: "/srv/$(id)"}}, PLAINER.format("/srv/$(id)")),
        ({"everywhere": {**COPY, STORE: "/srv/../etc"}}, PLAINER.format("/srv/../etc")),
        ({"everywhere": {**COPY, STORE: "models"}}, PLAINER.format("models")),
        (
            {"everywhere": {**NFS, STORE: "/m", "model_store_nfs_rails": ["rail0", "rail7"]}},
            'all nodes: model_store_nfs_rails names "rail7"; limit: rail0, rail1; remedy: name rails of fabric_rails',
        ),
        (
            {"everywhere": {**NFS, STORE: "/m", "model_store_nfs_connections": 17}},
            "all nodes: model_store_nfs_connections is 17; limit: 1 to 16; remedy: write 4",
        ),
        (
            {"everywhere": {**NFS, STORE: "/m", "fabric_topology": "ring", "fabric_rails": POOLS}},
            "all nodes: model_store_share is nfs in a ring of 4 nodes; limit: 3, where all are neighbours; remedy: set"
            " model_store_share to copy, which goes from neighbour to neighbour",
        ),
        (
            {"everywhere": {STORE: "/m", "model_store_share": "copy"}, "spark2": {"model_store_share": "nfs"}},
            'all nodes: model_store_share differs: "copy" on spark1 and spark3 and spark4, "nfs" on spark2; remedy:'
            " set it once, for the group sparks",
        ),
    ],
)
def test_how_the_weights_are_shared(changes, line):
    assert lines(replace(inventory(**changes), role_specs=SHARING_SPECS)) == [line]


@pytest.mark.parametrize(
    ("count", "everywhere"),
    [
        (4, {STORE: "/srv/my models"}),
        (4, {**COPY, STORE: "/srv/models/"}),
        (4, {**NFS, STORE: "/srv/models-2/a-b_c.1", "model_store_nfs_rails": ["rail1", "rail0"]}),
        (3, {**NFS, "fabric_topology": "ring", "fabric_rails": POOLS}),
        (4, {**NFS, "fabric_topology": "ring", "fabric_rails": POOLS, "model_store_nfs_server": "10.0.0.9"}),
        (4, {**COPY, "fabric_topology": "ring", "fabric_rails": POOLS}),
    ],
)
def test_ways_to_share_that_are_right(count, everywhere):
    subject = inventory(count, everywhere, profile={"parallel": {"tp": 1, "pp": count, "dcp": 1}})
    assert lines(replace(subject, role_specs=SHARING_SPECS)) == []
