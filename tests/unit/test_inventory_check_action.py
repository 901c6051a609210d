"""The action inside a real ansible-playbook run, in a checkout of its own, against hosts that nobody can reach."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]

# 192.0.2.0/24 is kept for documentation (RFC 5737): a run that tried to connect would say "unreachable".
HOSTS = {
    "spark1": {"ansible_host": "192.0.2.1", "sparkwright_rank": 0},
    "spark2": {"ansible_host": "192.0.2.2", "sparkwright_rank": 1},
}
RAILS = [{"name": "rail0", "netdev": "eth1", "subnet": "198.51.100.0/30"}]
FABRIC_SPECS = {
    "fabric_rails": {"type": "list", "elements": "dict", "default": RAILS},
    "fabric_mtu": {"type": "int", "default": 9000},
    "fabric_host_offset": {"type": "int", "default": 1},
    "fabric_topology": {"type": "str", "default": "switch"},
    "fabric_link_prefix": {"type": "int", "default": 31},
}
PLAY = [
    {
        "hosts": "sparks:localhost",
        "gather_facts": False,
        "tasks": [
            {"sparkwright.cluster.inventory_check": {}, "run_once": True, "register": "checked"},
            {"ansible.builtin.debug": {"var": "checked"}, "run_once": True},
        ],
    }
]


def profile(**shape):
    """The lab's profile with another shape."""
    data = yaml.safe_load((REPO / "profiles/lab-tiny-tp4.yml").read_text())
    return {**data, "parallel": {"tp": 4, "pp": 1, "dcp": 1, **shape}}


def write_yaml(path: Path, data: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@pytest.fixture
def checkout(tmp_path):
    """A checkout with the real plugins and one small role, as the collection that it is."""
    (tmp_path / "collections/ansible_collections/sparkwright").mkdir(parents=True)
    (tmp_path / "collections/ansible_collections/sparkwright/cluster").symlink_to(tmp_path)
    shutil.copytree(REPO / "plugins", tmp_path / "plugins")
    write_yaml(
        tmp_path / "roles/fabric/meta/argument_specs.yml",
        {"argument_specs": {"main": {"options": FABRIC_SPECS}, "verify": {"options": {}}}},
    )
    write_yaml(tmp_path / "profiles/tiny.yml", profile(tp=2))
    shutil.copy(REPO / "profiles/schema.json", tmp_path / "profiles/schema.json")
    write_yaml(tmp_path / "play.yml", PLAY)
    return tmp_path


def run(checkout, inventory, *arguments):
    """Run the play with an inventory given as data."""
    hosts = write_yaml(checkout / "inventory/hosts.yml", inventory)
    return run_play(checkout, hosts.parent, *arguments)


def run_play(checkout, inventory, *arguments):
    """Run the play; a run that waits for a host hits the time limit (seconds)."""
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(checkout / "collections"),
        "ANSIBLE_HOME": str(checkout / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    }
    playbook = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [playbook, "-i", inventory, checkout / "play.yml", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


def sparks(spark2=None, **shared):
    """An inventory of two nodes: changes of spark2, and variables of the group."""
    hosts = {"spark1": HOSTS["spark1"], "spark2": {**HOSTS["spark2"], **(spark2 or {})}}
    return {"sparks": {"hosts": hosts, "vars": {"sparkwright_profile": "tiny", **shared}}}


def refusal(ended):
    """The lines of a run that the check has stopped."""
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "unreachable=1" not in ended.stdout
    (failure,) = re.findall(r"FAILED! => (\{.*\})", ended.stdout)
    return json.loads(failure)["msg"].splitlines()


def success(ended):
    """The registered result of a run that the check has let through."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = re.search(r"^ok: \[spark1\] => (\{.*?^\})", ended.stdout, re.DOTALL | re.MULTILINE)
    return json.loads(shown[1])["checked"]


@pytest.mark.parametrize("arguments", [[], ["--check"]], ids=["run", "check-mode"])
def test_a_good_inventory_gives_the_plan_and_the_profile(checkout, arguments):
    result = success(run(checkout, sparks(), *arguments))
    assert result["changed"] is False
    assert result["profile_file"] == str(checkout / "profiles/tiny.yml")
    assert result["address_plan"]["head_address"] == "198.51.100.1"
    assert result["address_plan"]["nodes"]["spark2"]["rails"] == [
        {
            "name": "rail0",
            "netdev": "eth1",
            "address": "198.51.100.2",
            "cidr": "198.51.100.2/30",
            "mtu": 9000,
            "peers": {"spark1": "198.51.100.1"},
        }
    ]


def test_templates_are_evaluated_as_the_host_sees_them(checkout):
    subject = sparks(
        spark2={"sparkwright_rank": "{{ hostvars['spark1'].sparkwright_rank + 1 }}"},
        fabric_mtu="{{ base_mtu - 4000 }}",
        base_mtu=9000,
        fabric_rails=[{"name": "rail0", "netdev": "{{ port }}", "subnet": "198.51.100.4/30"}],
        port="eth7",
    )
    nodes = success(run(checkout, subject))["address_plan"]["nodes"]
    assert nodes["spark2"]["rank"] == 1
    assert nodes["spark2"]["rails"][0] == {
        "name": "rail0",
        "netdev": "eth7",
        "address": "198.51.100.6",
        "cidr": "198.51.100.6/30",
        "mtu": 5000,
        "peers": {"spark1": "198.51.100.5"},
    }


def test_a_profile_beside_the_inventory_comes_first(checkout):
    beside = write_yaml(checkout / "inventory/profiles/tiny.yml", profile(tp=1, pp=2))
    assert success(run(checkout, sparks()))["profile_file"] == str(beside)


def test_every_mistake_is_one_line_and_no_host_is_contacted(checkout):
    subject = sparks(
        spark2={"ansible_host": "192.0.2.1", "sparkwright_rank": "1", "fabric_host_offset": "{{ nowhere }}"},
        sparkwright_profile="tinny",
        fabric_mtuu=9000,
    )
    assert refusal(run(checkout, subject)) == [
        "spark2: has the ansible_host 192.0.2.1 of spark1; remedy: give each node its own address",
        'spark2: sparkwright_rank is the string "1" where a whole number belongs; '
        "remedy: write a whole number without quotes (after -e as JSON)",
        "spark2: fabric_host_offset cannot be evaluated: 'nowhere' is undefined; remedy: define what it refers to",
        "all nodes: fabric_mtuu is no variable of any role (did you mean fabric_mtu?); remedy: correct or remove it",
        'all nodes: sparkwright_profile "tinny" does not exist (did you mean tiny?); '
        "remedy: choose one that exists: tiny",
    ]


def test_a_mistake_in_the_profile_is_a_line_too(checkout):
    write_yaml(checkout / "profiles/tiny.yml", {**profile(tp=2), "executor": "rey", "wieghts": {}})
    assert refusal(run(checkout, sparks())) == [
        "all nodes: the profile at $: Additional properties are not allowed ('wieghts' was unexpected); "
        "remedy: correct the profile",
        "all nodes: the profile at $.executor: 'rey' is not one of ['mp', 'ray', 'llamacpp']; remedy: correct the"
        " profile",
    ]


def test_a_profile_that_contradicts_itself_is_refused(checkout):
    guessing = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3}}
    subject = {**profile(tp=2, dcp=2), "engine_args": {"max-model-len": 128, **guessing}}
    write_yaml(checkout / "profiles/tiny.yml", subject)
    assert refusal(run(checkout, sparks())) == [
        "all nodes: the profile tiny guesses 3 tokens with dcp 2 on an image without the patch draft-dcp; limit: 1"
        " token, as the draft would run with DCP 1 on a sharded cache and all later guesses be wrong; remedy: use an"
        " image with the patch and list draft-dcp in image.patches, or write num_speculative_tokens: 1",
        "all nodes: the profile tiny guesses tokens with the MTP layer of a model that has none"
        " (model.num_nextn_predict_layers is 0); remedy: use a checkpoint with its MTP layer, name a draft in"
        " weights.draft, or remove speculative-config",
    ]


def test_a_build_that_is_not_pinned_is_refused(checkout):
    options = {
        "engine_image_ref": {"type": "str"},
        "engine_image_build": {"type": "dict"},
        "engine_image_distribution": {"type": "str", "default": "auto"},
    }
    write_yaml(
        checkout / "roles/engine_image/meta/argument_specs.yml", {"argument_specs": {"main": {"options": options}}}
    )
    shutil.copytree(REPO / "patches", checkout / "patches")
    build = {"base": "base:1", "patches": ["draft-dpc"]}
    assert refusal(run(checkout, sparks(engine_image_ref="own:1", engine_image_build=build))) == [
        "all nodes: engine_image_build.base base:1 may be another image tomorrow; limit: a name with @sha256: and 64"
        " hex digits, or base_id; remedy: add the digest that `docker image inspect` shows in RepoDigests, or its image"
        " ID as base_id",
        "all nodes: engine_image_build.patches has draft-dpc; limit: draft-dcp, the files of patches/; remedy: correct"
        " it",
    ]


def test_a_template_deep_in_a_list_is_a_line_too(checkout):
    rails = [{"name": "rail0", "netdev": "{{ nowhere }}", "subnet": "198.51.100.0/30"}]
    assert refusal(run(checkout, sparks(fabric_rails=rails))) == [
        "all nodes: fabric_rails cannot be evaluated: 'nowhere' is undefined; remedy: define what it refers to"
    ]


def test_a_string_from_the_command_line_is_refused(checkout):
    (line,) = refusal(run(checkout, sparks(), "-e", "fabric_mtu=9000"))
    assert line.startswith('all nodes: fabric_mtu is the string "9000" where a whole number belongs')


def test_a_limited_run_is_refused(checkout):
    assert refusal(run(checkout, sparks(), "--limit", "spark1")) == [
        "all nodes: the run leaves out spark2; limit: all 2 nodes at once; remedy: run it without --limit"
    ]


def test_a_missing_group_is_refused(checkout):
    assert refusal(run(checkout, {"nodes": {"hosts": HOSTS}})) == [
        "all nodes: the group sparks does not exist; remedy: list the nodes in sparks"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("parallel: [", "cannot be read: while parsing"), ("- parallel", "does not hold a YAML mapping")],
)
def test_a_broken_profile_is_one_mistake_among_others(checkout, text, reason):
    path = checkout / "profiles/tiny.yml"
    path.write_text(text)
    lines = refusal(run(checkout, sparks(fabric_mtu=True)))
    assert len(lines) == 2
    assert lines[1].startswith(f"all nodes: {path} {reason}")


@pytest.mark.parametrize("name", ["spark4", "spark2"])
def test_the_example_inventories_are_right(checkout, name):
    """With the specifications of the real roles and the real profiles."""
    for specs in REPO.glob("roles/*/meta/argument_specs.yml"):
        target = checkout / specs.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(specs, target)
    shutil.copytree(REPO / "profiles", checkout / "profiles", dirs_exist_ok=True)
    assert success(run_play(checkout, REPO / "inventory" / name))["address_plan"]["head_address"] == "192.168.100.10"
