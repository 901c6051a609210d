"""From an inventory and its profile to every node's intent."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from builders import IMAGE, IMAGE_ID, REPO, rails

from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import CheckpointNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import Inventory
from ansible_collections.sparkwright.cluster.plugins.module_utils.planning import checkpoint_need, make_intents

MIB = 1024**2
REVISION = "a" * 40

PROFILE = yaml.safe_load((REPO / "profiles/glm52-awq15-mtp3-256k.yml").read_text())


def inventory(everywhere=None, profile=PROFILE, **hosts):
    """Four nodes; `everywhere` and `spark2={...}` change variables."""
    shared = {
        "fabric_topology": "switch",
        "fabric_rails": [{"name": f"rail{n}", "subnet": f"192.168.10{n}.0/24"} for n in range(2)],
        "fabric_link_prefix": 31,
        "fabric_cage": "",
        "fabric_mtu": 9000,
        "fabric_host_offset": 10,
        "model_store_path": "/var/lib/models",
        "model_store_source": "",
        "model_store_share": "local",
        "model_store_nfs_server": "",
        "model_store_nfs_export": "",
        "model_store_nfs_proto": "tcp",
        "model_store_nfs_rails": [],
        "model_store_nfs_connections": 4,
        "model_store_nfs_read_ahead_kb": 16384,
        "model_store_nfs_threads": 16,
        "serving_cache_path": "/var/cache/sparkwright",
        "engine_image_ref": IMAGE,
        "engine_image_archive": "",
        "engine_image_build": {},
        "engine_image_distribution": "auto",
        "engine_image_registry_port": 5055,
        "serving_extra_mounts": ["/opt/x:/opt/x:ro"],
        "serving_api_address": "management",
        "container_runtime_daemon_config": {"log-driver": "json-file"},
    }
    own = {f"spark{n + 1}": {"ansible_host": f"10.0.0.{11 + n}", "sparkwright_rank": n} for n in range(4)}
    hostvars = {host: {**shared, **values, **(everywhere or {}), **hosts.get(host, {})} for host, values in own.items()}
    names = list(own)
    return Inventory(hostvars, {"sparks": names}, names, {}, profile, ["glm52-awq15-mtp3-256k"])


def unfound(rank):
    """The rails of a node before anyone has looked for their interfaces."""
    return tuple(replace(rail, netdev="") for rail in rails(rank))


def test_a_worker_of_the_cluster():
    found = make_intents(inventory(), IMAGE_ID)["spark3"]
    assert (found.rank, found.world_size, found.is_head) == (2, 4, False)
    assert (found.head, found.head_address, found.management) == ("spark1", "192.168.100.10", "10.0.0.13")
    assert found.rails == unfound(2)
    assert (found.topology, found.cage, found.rails_found) == ("switch", "", False)
    assert (found.socket_netdev, found.socket_address) == ("", "192.168.100.12")
    assert found.socket_peers == {f"spark{n + 1}": f"192.168.100.{10 + n}" for n in (0, 1, 3)}
    assert found.nccl_env == {"NCCL_CROSS_NIC": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_IGNORE_CPU_AFFINITY": "1"}
    assert (found.api_host, found.api_port, found.master_port) == ("10.0.0.11", 8210, 29501)
    assert found.roll_port == 29400
    assert (found.image, found.image_id) == (IMAGE, IMAGE_ID)
    assert (found.weights_path, found.weights_pushed) == ("/var/lib/models/glm52-awq-15pct", False)
    assert found.daemon_config == {"log-driver": "json-file"}


def test_intents_are_in_the_order_of_the_ranks():
    swapped = inventory(spark1={"sparkwright_rank": 3}, spark4={"sparkwright_rank": 0})
    found = make_intents(swapped, "")
    assert list(found) == ["spark4", "spark2", "spark3", "spark1"]
    assert {intent.head for intent in found.values()} == {"spark4"}
    assert {intent.api_host for intent in found.values()} == {"10.0.0.14"}


@pytest.mark.parametrize(
    ("everywhere", "field", "value"),
    [
        ({"serving_api_address": "0.0.0.0"}, "api_host", "0.0.0.0"),
        ({"serving_api_address": "fabric"}, "api_host", "192.168.100.10"),
        ({"ansible_host": None}, "api_host", "spark1"),
        ({"ansible_host": None}, "management", "spark2"),
        ({"model_store_source": "/srv/model"}, "weights_pushed", True),
        ({"model_store_fetch": [{"repo": "a/b", "revision": REVISION}]}, "weights_pushed", True),
        ({"model_store_overlay": {"base": "base", "overlay": "layer"}}, "weights_pushed", True),
        ({"model_store_share": "copy"}, "weights_pushed", True),
        ({"serving_free_memory": True}, "free_memory", True),
        ({}, "free_memory", False),
    ],
)
def test_a_variable_of_the_inventory_decides(everywhere, field, value):
    assert getattr(make_intents(inventory(everywhere), "")["spark2"], field) == value


def test_what_the_checkpoint_is_made_from_takes_disk_and_is_pinned():
    fetch = [{"repo": "a/base", "revision": REVISION, "directory": "base"}]
    overlay = {"base": "base", "overlay": "/mnt/layer"}
    brought = {"model_store_fetch": fetch, "model_store_overlay": overlay}
    found = make_intents(inventory(brought), "")["spark2"].checkpoint
    assert found.sources == (f"a/base@{REVISION}",)
    assert found.parts == ("/var/lib/models/base", "/mnt/layer")
    assert found.disk == PROFILE["weights"]["bytes"]
    assert make_intents(inventory(), "")["spark2"].checkpoint.disk == 0


def test_the_head_of_ray_takes_more_than_a_worker():
    ray = {**PROFILE, "executor": "ray"}
    found = make_intents(inventory(profile=ray), "")
    assert [intent.memory.services for intent in found.values()] == [444 * MIB, 278 * MIB, 278 * MIB, 278 * MIB]


def test_what_the_profile_wants_of_the_image():
    need = make_intents(inventory(), "")["spark2"].image_need
    assert (need.distribution, need.registry, need.build) == ("pull", "", "")
    assert (need.imports, need.nccl, need.driver, need.ray) == (("b12x",), "2.30.4", "580", False)
    assert need.commit == "ab666069935c1f23e8ef56038b4659ac9e8f19f8"
    assert need.preload.endswith("/nvidia/nccl/lib/libnccl.so.2")
    assert need.mounts == ("/opt/x:/opt/x:ro",)


def test_the_image_of_a_ray_profile_needs_ray():
    need = make_intents(inventory(profile={**PROFILE, "executor": "ray"}), "")["spark2"].image_need
    assert need.ray


BUILD = {"base": f"base@sha256:{64 * '0'}"}


@pytest.mark.parametrize(
    ("variables", "way"),
    [
        ({}, "pull"),
        ({"engine_image_archive": "image.tar"}, "archive"),
        ({"engine_image_build": BUILD}, "registry"),
        ({"engine_image_archive": "image.tar", "engine_image_distribution": "registry"}, "registry"),
        ({"engine_image_distribution": "registry"}, "registry"),
        ({"engine_image_archive": "image.tar", "engine_image_distribution": "pull"}, "pull"),
    ],
)
def test_how_the_image_travels(variables, way):
    found = make_intents(inventory(variables), "", build="c0ffee")["spark2"].image_need
    assert (found.distribution, found.build) == (way, "c0ffee")
    assert found.registry == ("192.168.100.10:5055" if way == "registry" else "")


def test_all_but_the_head_speak_plain_http_with_its_registry_and_keep_what_they_have():
    own = {"log-driver": "json-file", "insecure-registries": ["10.1.1.1:5000"]}
    variables = {"engine_image_distribution": "registry", "container_runtime_daemon_config": own}
    found = make_intents(inventory(variables), "")
    assert found["spark1"].daemon_config == own
    assert {host: intent.daemon_config["insecure-registries"] for host, intent in found.items()} == {
        "spark1": ["10.1.1.1:5000"],
        **{f"spark{n}": ["10.1.1.1:5000", "192.168.100.10:5055"] for n in (2, 3, 4)},
    }


def test_the_need_survives_the_way_to_the_node():
    whole = make_intents(inventory(), "")["spark2"]
    assert type(whole).from_data(json.loads(json.dumps(whole.as_data()))).image_need == whole.image_need


def test_an_interface_that_the_inventory_names_is_there_from_the_start():
    rail = {"name": "rail0", "netdev": "eth1", "subnet": "192.168.100.0/24"}
    found = make_intents(inventory({"fabric_rails": [rail]}), "")["spark2"]
    assert (found.rails[0].netdev, found.socket_netdev, found.rails_found) == ("eth1", "eth1", True)


def test_the_cage_may_differ_from_node_to_node():
    found = make_intents(inventory({"fabric_cage": "p0"}, spark3={"fabric_cage": "p1"}), "")
    assert {host: intent.cage for host, intent in found.items()} == {
        "spark1": "p0",
        "spark2": "p0",
        "spark3": "p1",
        "spark4": "p0",
    }


def test_in_a_ring_what_speaks_tcp_meets_on_the_management_network():
    names = {f"spark{n}": {"ansible_host": f"spark{n}.lan"} for n in range(1, 5)}
    addresses = {f"spark{n}.lan": f"10.0.0.{10 + n}" for n in range(1, 5)}
    found = make_intents(inventory({"fabric_topology": "ring"}, **names), "", addresses.__getitem__)["spark3"]
    assert (found.head_address, found.socket_address, found.socket_netdev) == ("10.0.0.11", "10.0.0.13", "")
    assert found.socket_peers == {"spark1": "10.0.0.11", "spark2": "10.0.0.12", "spark4": "10.0.0.14"}
    assert [(rail.name, rail.cidr, list(rail.peers)) for rail in found.rails] == [
        ("rail0.link1", "192.168.100.3/31", ["spark2"]),
        ("rail0.link2", "192.168.100.4/31", ["spark4"]),
        ("rail1.link1", "192.168.101.3/31", ["spark2"]),
        ("rail1.link2", "192.168.101.4/31", ["spark4"]),
    ]


def test_the_checkpoint_is_the_one_that_the_profile_states():
    own = {"method": "mtp", "num_speculative_tokens": 3}
    over = {"index_topk_pattern": 78 * "F", "use_index_cache": True}
    arguments = {**PROFILE["engine_args"], "speculative-config": own, "hf-overrides": over}
    weights = {"directory": "big", "bytes": 1}
    found = checkpoint_need({**PROFILE, "engine_args": arguments, "weights": weights})
    assert found.model == PROFILE["model"]
    assert found.overrides == {"index_topk_pattern": 78 * "F"}
    assert found.prefixes == {"model.layers.78.": "guessing 3 tokens ahead"}


def test_a_draft_of_its_own_needs_no_layer_of_the_checkpoint():
    found = checkpoint_need(PROFILE)
    assert (found.prefixes, found.overrides) == ({}, {"num_nextn_predict_layers": 1})


def test_a_profile_without_a_model_asks_for_nothing():
    assert checkpoint_need({**PROFILE, "model": None}) == CheckpointNeed({}, {}, {})


NFS = {"model_store_share": "nfs"}


def shares(everywhere, **hosts):
    return {host: intent.share for host, intent in make_intents(inventory(everywhere, **hosts), "").items()}


def test_over_nfs_the_head_exports_to_every_address_of_the_others_on_the_rails():
    found = shares(NFS)
    assert found["spark1"].holds
    assert found["spark1"].listen == ("192.168.100.10", "192.168.101.10")
    assert found["spark1"].clients == tuple(f"192.168.10{rail}.{11 + n}" for rail in (0, 1) for n in range(3))
    assert (found["spark1"].server, found["spark3"].clients, found["spark3"].holds) == ("", (), False)
    assert (found["spark3"].server, found["spark3"].address) == ("192.168.100.10", "192.168.100.12")
    assert (found["spark3"].remote, found["spark3"].path) == ("/var/lib/models", "/var/lib/models")


@pytest.mark.parametrize(
    ("rails", "servers"),
    [
        ([], ["100", "100", "100"]),
        (["rail1"], ["101", "101", "101"]),
        (["rail0", "rail1"], ["100", "101", "100"]),
    ],
)
def test_the_nodes_mount_over_the_named_rails_in_turn(rails, servers):
    found = shares({**NFS, "model_store_nfs_rails": rails})
    assert [found[f"spark{n}"].server for n in (2, 3, 4)] == [f"192.168.{rail}.10" for rail in servers]


def test_in_a_ring_a_node_mounts_over_its_own_link_to_the_head():
    ring = inventory({**NFS, "fabric_topology": "ring", "model_store_nfs_rails": ["rail1"]})
    hosts = {host: values for host, values in ring.hostvars.items() if host != "spark4"}
    three = replace(ring, hostvars=hosts, groups={"sparks": list(hosts)}, play_hosts=list(hosts))
    found = {host: intent.share for host, intent in make_intents(three, "").items()}
    assert (found["spark2"].server, found["spark2"].address) == ("192.168.101.0", "192.168.101.1")
    assert (found["spark3"].server, found["spark3"].address) == ("192.168.101.5", "192.168.101.4")
    assert set(found["spark1"].clients) == {f"192.168.10{rail}.{end}" for rail in (0, 1) for end in (1, 4)}


def test_from_a_server_of_somebody_else_all_nodes_mount():
    named = {**NFS, "model_store_nfs_server": "nas.lan", "model_store_nfs_export": "/tank/models"}
    answers = {"nas.lan": "10.0.0.99"}
    found = make_intents(inventory(named), "", lambda name: answers.get(name, name))
    for intent in found.values():
        assert (intent.share.server, intent.share.remote, intent.share.address) == ("10.0.0.99", "/tank/models", "")
        assert (intent.share.holds, intent.share.clients, intent.weights_pushed) == (False, (), True)


@pytest.mark.parametrize(("mode", "holding"), [("local", [1, 2, 3, 4]), ("copy", [1]), ("nfs", [1])])
def test_who_holds_data_before_anything_is_shared(mode, holding):
    found = shares({"model_store_share": mode})
    assert [host for host, share in found.items() if share.holds] == [f"spark{n}" for n in holding]


def test_a_draft_in_a_directory_of_its_own_is_shared_as_well():
    assert shares({})["spark1"].folders == ("glm52-awq-15pct", "glm52-awq-15pct-draft")
