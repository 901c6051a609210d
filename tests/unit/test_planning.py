"""From an inventory and its profile to every node's intent."""

from __future__ import annotations

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
    ends = [{"name": rail.name, "netdev": rail.netdev} for rail in rails(0)]
    fabric = [{**end, "subnet": f"192.168.10{number}.0/24"} for number, end in enumerate(ends)]
    shared = {
        "fabric_rails": fabric,
        "fabric_mtu": 9000,
        "fabric_host_offset": 10,
        "model_store_path": "/var/lib/models",
        "model_store_source": "",
        "engine_image_ref": IMAGE,
        "serving_api_host": "",
        "container_runtime_daemon_config": {"log-driver": "json-file"},
    }
    own = {f"spark{n + 1}": {"ansible_host": f"10.0.0.{11 + n}", "sparkwright_rank": n} for n in range(4)}
    hostvars = {host: {**shared, **values, **(everywhere or {}), **hosts.get(host, {})} for host, values in own.items()}
    names = list(own)
    return Inventory(hostvars, {"sparks": names}, names, {}, profile, ["glm52-awq15-mtp3-256k"])


def test_a_worker_of_the_cluster():
    found = make_intents(inventory(), IMAGE_ID)["spark3"]
    assert (found.rank, found.world_size, found.is_head) == (2, 4, False)
    assert (found.head, found.head_address, found.management) == ("spark1", "192.168.100.10", "10.0.0.13")
    assert found.rails == rails(2)
    assert found.peers == {f"spark{n + 1}": tuple(rail.address for rail in rails(n)) for n in (0, 1, 3)}
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
    ],
)
def test_a_variable_of_the_inventory_decides(everywhere, field, value):
    assert getattr(make_intents(inventory(everywhere), "")["spark2"], field) == value


def test_the_head_of_ray_takes_more_than_a_worker():
    ray = {**PROFILE, "executor": "ray"}
    found = make_intents(inventory(profile=ray), "")
    assert [intent.memory.services for intent in found.values()] == [351 * MIB, 266 * MIB, 266 * MIB, 266 * MIB]


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
