"""From an inventory and its profile to every node's intent."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from builders import IMAGE, IMAGE_ID, REPO, rails

from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import CheckpointNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import Inventory
from ansible_collections.sparkwright.cluster.plugins.module_utils.planning import checkpoint_need, make_intents

MIB = 1024**2

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
        "engine_image_ref": IMAGE,
        "serving_api_host": "",
        "serving_meet_minutes": 15,
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
        ({"serving_api_host": "0.0.0.0"}, "api_host", "0.0.0.0"),
        ({"ansible_host": None}, "api_host", "spark1"),
        ({"ansible_host": None}, "management", "spark2"),
        ({"model_store_source": "/srv/model"}, "weights_pushed", True),
        ({"serving_free_memory": True}, "free_memory", True),
        ({}, "free_memory", False),
        ({"serving_meet_minutes": 3}, "meet_seconds", 180),
    ],
)
def test_a_variable_of_the_inventory_decides(everywhere, field, value):
    assert getattr(make_intents(inventory(everywhere), "")["spark2"], field) == value


def test_the_head_of_ray_takes_more_than_a_worker():
    ray = {**PROFILE, "executor": "ray"}
    found = make_intents(inventory(profile=ray), "")
    assert [intent.memory.services for intent in found.values()] == [444 * MIB, 278 * MIB, 278 * MIB, 278 * MIB]


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
