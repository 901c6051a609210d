"""Profiles against their schema: the shipped ones are right, and a mistake is one line."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from builders import GONE, REPO
from jsonschema import Draft202012Validator

from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import Unreadable
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import profile_mistakes

PROFILES = sorted((REPO / "profiles").glob("*.yml"))
GOOD = yaml.safe_load((REPO / "profiles/glm52-awq15-mtp3-256k.yml").read_text())


def test_the_schema_is_one():
    Draft202012Validator.check_schema(json.loads((REPO / "profiles/schema.json").read_text()))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_shipped_profile_is_right(path):
    assert profile_mistakes(yaml.safe_load(path.read_text())) == []


def test_profiles_are_shipped():
    assert {path.stem for path in PROFILES} >= {"glm52-awq15-mtp3-256k", "lab-tiny-tp4"}


def changed(*path, value):
    profile = copy.deepcopy(GOOD)
    *parents, last = path
    place = profile
    for key in parents:
        place = place[key]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return profile


@pytest.mark.parametrize(
    ("profile", "place", "word"),
    [
        (changed("serve", "port", value="8210"), "$.serve.port", "'8210'"),
        (changed("serve", "port", value=80), "$.serve.port", "80"),
        (changed("serve", value=GONE), "$", "'serve'"),
        (changed("executer", value="mp"), "$", "'executer'"),
        (changed("executor", value="rey"), "$.executor", "'rey'"),
        (changed("weights", "directory", value="/srv/model"), "$.weights.directory", "'/srv/model'"),
        (changed("executor", value="llamacpp"), "$.weights", "'file'"),
        (changed("model", "num_hidden_layers", value="78"), "$.model.num_hidden_layers", "'78'"),
        (changed("model", "num_hiden_layers", value=78), "$.model", "'num_hiden_layers'"),
        (changed("image", "patches", value="draft-dcp"), "$.image.patches", "'draft-dcp'"),
        (changed("published", "kv_tokens", value=1.5), "$.published.kv_tokens", "1.5"),
        (changed("memory", "utilization", value=1.5), "$.memory.utilization", "1.5"),
        (changed("memory", "kv_cache_bytes", value="2G"), "$.memory.kv_cache_bytes", "'2G'"),
        (changed("container", "ulimits", value={"memlock": -1}), "$.container.ulimits.memlock", "-1"),
        (changed("engine_args", "tensor-parallel-size", value=4), "$.engine_args", "'tensor-parallel-size'"),
        (changed("engine_env", "VLLM_USE_V1", value=True), "$.engine_env.VLLM_USE_V1", "True"),
        (changed("engine_env", "NCCL_IB_DISABLE", value=1), "$.engine_env", "'NCCL_IB_DISABLE'"),
        (changed("engine_env", "GLOO_SOCKET_IFNAME", value="eth0"), "$.engine_env", "'GLOO_SOCKET_IFNAME'"),
        (changed("engine_env", "VLLM_HOST_IP", value="10.0.0.1"), "$.engine_env", "'VLLM_HOST_IP'"),
        (changed("nccl_env", "NCCL_IB_ROCE_VERSION_NUM", value=1), "$.nccl_env", "'NCCL_IB_ROCE_VERSION_NUM'"),
        (changed("nccl_env", "VLLM_HOST_IP", value="10.0.0.1"), "$.nccl_env", "'VLLM_HOST_IP'"),
        (changed("nccl_env", value=["NCCL_DEBUG"]), "$.nccl_env", "['NCCL_DEBUG']"),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_value(profile, place, word):
    """The words between are those of the schema's library, which may change."""
    (mistake,) = map(str, profile_mistakes(profile))
    start, end = f"all nodes: the profile at {place}: ", "; remedy: correct the profile"
    assert mistake.startswith(start)
    assert mistake.endswith(end)
    assert word in mistake.removeprefix(start)
    assert "\n" not in mistake


def test_two_mistakes_are_two_lines():
    both = {**changed("serve", "port", value=80), "executor": "rey"}
    assert [line.split(":")[1] for line in map(str, profile_mistakes(both))] == [
        " the profile at $.executor",
        " the profile at $.serve.port",
    ]


@pytest.mark.parametrize(
    ("section", "name", "value", "fault"),
    [
        ("engine_env", "VLLM_X", '"quoted"', "its value is in quotes"),
        ("engine_env", "VLLM_X", "two\nlines", "its value has a line break or a NUL"),
        ("engine_env", "VLLM X", 1, "its name has a blank, an equal sign or a control character"),
        ("nccl_env", "NCCL_DEBUG", "'INFO'", "its value is in quotes"),
    ],
)
def test_what_docker_would_not_hand_on_is_refused(section, name, value, fault):
    assert [str(mistake) for mistake in profile_mistakes(changed(section, name, value=value))] == [
        f"all nodes: the profile at $.{section}: {name} cannot be written to an environment file: {fault}; "
        "remedy: correct the profile"
    ]


@pytest.mark.parametrize("name", ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "NCCL_NET"])
def test_what_the_nodes_judge_may_be_set(name):
    assert profile_mistakes(changed("nccl_env", name, value="1")) == []


@pytest.mark.parametrize("profile", [None, Unreadable("it is broken")])
def test_a_profile_that_could_not_be_read_has_its_line_elsewhere(profile):
    assert profile_mistakes(profile) == []
