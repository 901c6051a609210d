"""What the plan of a node says about fabric, Docker, image and weights: what is due, and what must be known first."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import sharing
from ansible.errors import AnsibleActionFail
from builders import GONE, IMAGE, NETDEV0, OTHER_IMAGE_ID, SHARD1, SHARD2, cluster, intent, node_facts, rails, weights
from wiring import NETDEVS, joined, planned, spark

from ansible_collections.sparkwright.cluster.plugins.action.node_plan import (
    daemon_reload,
    daemon_restart,
    engine_library,
    fabric_data,
    image_data,
    share_data,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_need import ImageNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import LIBRARY
from ansible_collections.sparkwright.cluster.plugins.module_utils.netplan import render_netplan
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import resolve


def plan_of(intents, facts, host="spark1"):
    found = resolve(intents, facts)
    return fabric_data(found.intents[host], facts[host], found.doubts.get(host, ()))


def test_a_configured_node():
    found = plan_of(planned(4), {"spark1": node_facts(0)})
    assert (found["rails_current"], found["strict"], found["wake"]) == (True, [], [])
    assert [(file["path"], file.get("mode")) for file in found["files"]] == [
        ("/etc/netplan/60-sparkwright.yaml", "0600"),
        ("/etc/sysctl.d/60-sparkwright-fabric.conf", None),
        ("/etc/sparkwright/nccl.env", None),
    ]
    assert found["files"][0]["content"] == render_netplan(rails(0))
    assert found["files"][2]["content"] == node_facts(0)["fabric"]["nccl_env"]


@pytest.mark.parametrize(
    ("place", "value", "due"),
    [
        ("mtu", 1500, {"rails_current": False}),
        ("addresses", [], {"rails_current": False}),
        ("rp_filter", 1, {"strict": [NETDEV0]}),
    ],
)
def test_what_differs_is_due(place, value, due):
    facts = {"spark1": node_facts(0)}
    facts["spark1"]["fabric"]["netdevs"][NETDEV0][place] = value
    found = plan_of(planned(4), facts)
    assert {key: found[key] for key in due} == due
    assert found["wake"] == []


def test_a_new_node_with_its_cable_in_the_other_cage():
    found = plan_of(planned(2), {"spark1": spark(1, p0="asleep", p1="cabled")})
    assert f"    {NETDEVS['p1'][0]}:\n" in found["files"][0]["content"]
    assert found["wake"] == []


def test_links_that_are_down_are_woken_before_a_guess_is_acted_on():
    found = plan_of(planned(2), {"spark1": spark(1, p0="asleep", p1="asleep")})
    assert found["wake"] == [*NETDEVS["p0"], *NETDEVS["p1"]]
    # In check mode nothing is woken, and the guess is what can be shown.
    assert f"    {NETDEVS['p0'][0]}:\n" in found["files"][0]["content"]


@pytest.mark.parametrize("host", ["spark1", "spark2", "spark3"])
def test_in_a_ring_both_ends_of_a_cable_look_again(host):
    """spark1 is the one that sleeps; the others are awake, and have no files yet either."""
    facts = joined(3, ((2, "p0"), (3, "p1")))
    facts["spark1"] = spark(1, p0="asleep", p1="asleep")
    found = plan_of(planned(3, "ring"), facts, host)
    assert found["files"] == []
    assert set(found["wake"]) == {*NETDEVS["p0"], *NETDEVS["p1"]}


def test_rails_that_cannot_be_found_are_a_failure_in_one_line_each():
    with pytest.raises(AnsibleActionFail) as error:
        plan_of(planned(2), {"spark1": spark(1, p0=None, p1=None)})
    assert str(error.value) == (
        "spark1: there is no RDMA device at all; limit: two for each cable; remedy: plug in the cable, without which"
        " some Sparks show none; then check `lspci` and `rdma link show`"
    )


def test_a_fabric_that_was_not_read_has_no_plan():
    assert fabric_data(planned(2)["spark1"], {"reachable": True}, ()) is None


# --- Docker and the image -------------------------------------------------------------------------------------------

REGISTRY = "192.168.100.10:5055"


@pytest.mark.parametrize(
    ("file", "running", "restart", "reload"),
    [
        ({"log-driver": "json-file", "insecure-registries": [REGISTRY]}, [REGISTRY], False, False),
        ({"log-driver": "json-file"}, [], False, True),
        # The file was written by a run that died before Docker read it.
        ({"log-driver": "json-file", "insecure-registries": [REGISTRY]}, [], False, True),
        ({}, [], True, False),
    ],
    ids=["all there", "a registry is new", "Docker has not read it", "the log driver is new"],
)
def test_what_docker_has_to_do_about_its_file(file, running, restart, reload):
    facts = node_facts(1)
    facts["runtime"] |= {"daemon_json": json.dumps(file), "insecure_registries": running}
    planned = intent(1, daemon_config={"log-driver": "json-file", "insecure-registries": [REGISTRY]})
    assert (daemon_restart(planned, facts), daemon_reload(planned, facts)) == (restart, reload)


def test_without_facts_docker_has_nothing_to_do():
    assert (daemon_restart(intent(1), {}), daemon_reload(intent(1), {})) == (False, False)


def images(facts=None, archive="", context=None, **need):
    found = cluster(facts=facts, intents={"*": {"image_need": ImageNeed(**need), "image_id": ""}})
    values = {"engine_image_archive": archive, "engine_image_registry_path": "/data"}
    plan = SimpleNamespace(context=context, value=lambda host, name: values[name])
    return {host: image_data(plan, found, host) for host in found.intents}


def test_the_image_is_settled_when_every_node_has_it():
    assert {(row["current"], row["settled"]) for row in images().values()} == {(True, True)}
    missing = images({("spark2", "runtime", "images", IMAGE): None})
    assert [(row["current"], row["settled"]) for row in missing.values()] == [
        (True, False),
        (False, False),
        (True, False),
        (True, False),
    ]


def test_one_node_with_another_image_is_not_settled_where_the_head_gives_it_out():
    other = {("spark3", "image", "digests"): [OTHER_IMAGE_ID]}
    found = images(other, distribution="registry", registry=REGISTRY)
    assert [host for host, row in found.items() if not row["current"]] == ["spark3"]
    assert not found["spark1"]["settled"]
    assert len(found["spark1"]["registry_files"]) == 4


@pytest.mark.parametrize(
    ("archive", "context", "source"), [("", None, "pull"), ("x.tar", None, "load"), ("", "a build", "build")]
)
def test_where_the_head_gets_it_from(archive, context, source):
    assert images(archive=archive, context=context)["spark1"]["source"] == source


def test_an_image_that_was_not_read_has_no_plan():
    found = cluster(facts={("spark1", "image"): GONE})
    assert image_data(None, found, "spark1") is None


# --- how the weights reach the node ---------------------------------------------------------------------------------


def over_nfs(rank, **changes):
    host = f"spark{rank + 1}"
    section = {(host, "share"): {**sharing.facts(rank), **changes}}
    return share_data(cluster(facts=section, intents={host: {"share": sharing.wish(rank)}}), host)


def test_a_node_that_mounts_as_planned_needs_nothing():
    found = over_nfs(1)
    assert (found["mode"], found["holds"], found["mounts"], found["serves"]) == ("nfs", False, True, False)
    assert (found["mounted"], found["remount"], found["packages"], found["fanout"]) == (True, False, [], None)
    assert found["unit"] == "models.mount"


def test_a_new_head_needs_packages_a_server_and_exports():
    found = over_nfs(0, tools=[], threads=0, listens=[], exports=[])
    assert (found["serves"], found["server_current"], found["exports_current"]) == (True, False, False)
    assert found["packages"] == ["nfs-kernel-server"]
    assert found["record"] == {"nfs_server": {"nfs-server.service": {"active": False}}}
    assert [file["path"].split("/")[2] for file in found["files"]] == ["exports.d", "nfs.conf.d", "systemd", "systemd"]


def test_an_engine_on_any_node_is_seen_by_all():
    for serving in (False, True):
        found = cluster(facts={("spark2", "share"): sharing.facts(1)}, serving=serving)
        assert share_data(found, "spark2")["busy"] is serving


def test_a_node_that_is_given_files_by_the_controller_needs_rsync_only_until_it_has_them():
    other = {**weights(), "config_sha256": "0" * 64}
    intents = {"*": {"share": sharing.wish(mode="local")}}
    found = [share_data(cluster(intents=intents, source=source), "spark1") for source in (None, weights(), other)]
    assert [share["rsync_due"] for share in found] == [False, False, True]


FILES = {f"big/{name}": [5, 100] for name in (SHARD1, SHARD2, "model.safetensors.index.json")}
COPY = replace(sharing.wish(), mode="copy", clients=(), listen=())


def copies(host, **changes):
    """The part of a host in a copy from spark1, which has all files; the others have what `changes` says."""
    hosts = [f"spark{n}" for n in range(1, 5)]
    sections = {(one, "share"): {**node_facts()["share"], "files": {}} for one in hosts}
    sections[("spark1", "share")]["files"] = FILES
    for one, changed in changes.items():
        sections[(one, "share")] |= changed
    return share_data(cluster(facts=sections, intents={"*": {"share": COPY}}), host)["fanout"]


def test_every_node_but_the_last_lets_the_next_one_read():
    rounds = [copies(f"spark{n}")["rounds"] for n in range(1, 5)]
    assert rounds[0] == [[]] * len(rounds[1])
    for number, own in enumerate(rounds[1:], 1):
        pulled = [name for one in own for pull in one for name in pull["files"]]
        assert sorted(pulled) == sorted(FILES)
        assert {pull["source"] for one in own for pull in one} <= {f"192.168.10{rail}.{9 + number}" for rail in (0, 1)}
    assert copies("spark2")["listen"] == ["192.168.100.11", "192.168.101.11"]
    assert "hosts allow = 192.168.100.12 192.168.101.12\n" in copies("spark2")["config"]
    assert copies("spark4")["listen"] == []
    assert len(copies("spark1")["told"]) == len(rounds[0])


def test_what_the_head_lacks_is_removed_and_what_is_there_is_not_copied():
    have = {"files": {**FILES, "big/old.safetensors": [1, 1]}}
    found = copies("spark2", spark2=have, spark3=have, spark4=have)
    assert (found["rounds"], found["listen"]) == ([], [])
    assert found["surplus"] == ["/models/big/old.safetensors"]


def test_as_long_as_the_head_is_not_whole_nothing_is_copied_and_nothing_removed():
    hosts = {(f"spark{n}", "share", "files"): {"big/own": [1, 1]} for n in (2, 3, 4)}
    damaged = {("spark1", "weights", "error"): "has no index", ("spark1", "share", "files"): {}}
    found = share_data(cluster(facts={**hosts, **damaged}, intents={"*": {"share": COPY}}), "spark2")["fanout"]
    assert (found["rounds"], found["surplus"], found["listen"]) == ([], [], [])


def test_a_copy_that_does_not_fit_is_refused_before_it_begins():
    with pytest.raises(AnsibleActionFail) as error:
        copies("spark3", spark1={"files": {"big/a": [5 * 10**9, 1]}}, spark3={"disk_free": 10**9})
    assert str(error.value) == (
        "spark3: 1.00 GB are free at /models; limit: 5.00 GB, which are to be copied; remedy: free some space, or set"
        " model_store_path to a larger disk"
    )


@pytest.mark.parametrize("mode", ["copy", "nfs"])
def test_no_key_is_hidden_from_templates_by_a_method_of_dictionaries(mode):
    """A template reads `plan.share.copy` as the method, and not as the key."""
    found = share_data(cluster(intents={"*": {"share": COPY}}), "spark2") if mode == "copy" else over_nfs(1)
    names = {*found, *(found["fanout"] or {})}
    assert not names & set(dir(dict))


def test_a_share_that_was_not_read_has_no_plan():
    assert share_data(cluster(facts={("spark1", "share"): GONE}), "spark1") is None


def test_the_container_of_a_ray_finds_its_program_among_the_files_of_the_launch(tmp_path):
    """As `python3 LIBRARY ray-facts` runs there, with nothing but these files; this Python may have no Ray."""
    for file in engine_library():
        place = tmp_path / Path(file["path"]).relative_to(LIBRARY)
        place.parent.mkdir(exist_ok=True)
        place.write_text(file["content"])
    argv = [sys.executable, "-I", str(tmp_path), "ray-facts"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == {"version", "nodes", "error"}
