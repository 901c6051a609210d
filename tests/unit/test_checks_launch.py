"""Checks of what is launched: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

import pytest
from builders import IMAGE, OTHER_IMAGE_ID, cluster, engine_container, findings, intent

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_launch import short
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_ports import filter_rules

SPARK2 = "spark2"
UNPINNED = {"*": {"image_id": ""}}
DISTRIBUTE = "remedy: run site.yml, which distributes the image"


def on_spark2(*path, value, **more):
    return {"facts": {(SPARK2, *path): value}, **more}


def listener(address, port, process="python3"):
    return {"address": address, "port": port, "process": process}


def listening(*listeners):
    return {"facts": {("spark1", "serving", "listeners"): list(listeners)}}


CASES = {
    "no image": (
        on_spark2("runtime", "images", IMAGE, value=None),
        f"refuse image.present spark2: {IMAGE} is absent; limit: image ID 0123456789ab; {DISTRIBUTE}",
    ),
    "another image": (
        on_spark2("runtime", "images", IMAGE, value=OTHER_IMAGE_ID),
        f"refuse image.present spark2: {IMAGE} is fedcba987654; limit: image ID 0123456789ab; {DISTRIBUTE}",
    ),
    "no image and no pin": (
        on_spark2("runtime", "images", IMAGE, value=None, intents=UNPINNED),
        f"refuse image.present spark2: {IMAGE} is absent; limit: the image; {DISTRIBUTE}",
    ),
    "another image and no pin": (
        on_spark2("runtime", "images", IMAGE, value=OTHER_IMAGE_ID, intents=UNPINNED),
        "refuse image.equal spark2: its engine image is fedcba987654; limit: 0123456789ab, as on the others; remedy:"
        " remove the image there and run site.yml",
    ),
    "the port of the API": (
        listening(listener("0.0.0.0", 8210)),
        "refuse serving.port spark1: port 8210 is held by python3; limit: free on 10.0.0.11; remedy: end python3, or"
        " choose another port in the profile",
    ),
    "the port of the rendezvous": (
        listening(listener("192.168.100.10", 29501, "")),
        "refuse serving.port spark1: port 29501 is held by an unknown process; limit: free on 192.168.100.10; remedy:"
        " end an unknown process, or choose another port in the profile",
    ),
    "two holders of one port": (
        listening(listener("::", 8210, "nginx"), listener("10.0.0.11", 8210, "caddy")),
        "refuse serving.port spark1: port 8210 is held by caddy, nginx; limit: free on 10.0.0.11; remedy: end caddy, or"
        " choose another port in the profile",
    ),
    "a port in the middle of those that Ray takes on a worker": (
        {
            "facts": {(SPARK2, "serving", "listeners"): [listener("0.0.0.0", 26500), listener("::", 26510, "caddy")]},
            "intents": {"*": {"executor": "ray", "master_port": 26479}},
        },
        "refuse serving.port spark2: port 26500 is held by python3; limit: free on 192.168.100.11; remedy: end python3,"
        " or choose another port in the profile",
    ),
    "the port of an RPC server of llama.cpp": (
        {
            "facts": {(SPARK2, "serving", "listeners"): [listener("192.168.100.11", 50052)]},
            "intents": {"*": {"executor": "llamacpp", "master_port": 50052}},
        },
        "refuse serving.port spark2: port 50052 is held by python3; limit: free on 192.168.100.11; remedy: end python3,"
        " or choose another port in the profile",
    ),
    "strangers reach the rendezvous": (
        {"serving": True, "facts": {("spark1", "serving", "filter"): []}},
        "refuse serving.filter spark1: the packet filter lacks -A SPARKWRIGHT -i lo -j RETURN for port 29400 and 29501;"
        " limit: open to 192.168.100.11, 192.168.100.12, 192.168.100.13 on enp1s0f0np0 alone; remedy: run"
        " playbooks/stop.yml, then playbooks/start.yml",
    ),
    "the filter lets one more in": (
        {
            "serving": True,
            "facts": {("spark1", "serving", "filter"): ["-A SPARKWRIGHT -j RETURN", *filter_rules(intent(0))]},
        },
        "refuse serving.filter spark1: the packet filter has -A SPARKWRIGHT -j RETURN for port 29400 and 29501; limit:"
        " open to 192.168.100.11, 192.168.100.12, 192.168.100.13 on enp1s0f0np0 alone; remedy: run playbooks/stop.yml,"
        " then playbooks/start.yml",
    ),
    "a changed profile while it serves": (
        {"serving": True, "config_hashes": {f"spark{n}": f"config-spark{n}" for n in (1, 3, 4)} | {SPARK2: "new"}},
        "refuse serving.configuration spark2: the engine runs configuration config-spark2; limit: new, which the"
        " inventory asks for; remedy: undo the change, or run playbooks/stop.yml and then site.yml",
    ),
    "a container without our label": (
        on_spark2("runtime", "containers", value=[{**engine_container(SPARK2), "labels": {}}], serving=True),
        "refuse serving.configuration spark2: the engine runs configuration none; limit: config-spark2, which the"
        " inventory asks for; remedy: undo the change, or run playbooks/stop.yml and then site.yml",
    ),
    "a rank that ended": (
        on_spark2("runtime", "containers", value=[], serving=True),
        "refuse serving.rank spark2: the unit of rank 1 is active, its container absent; limit: active and running;"
        " remedy: look at `journalctl -u sparkwright-engine`, then run playbooks/start.yml",
    ),
    "a rank whose unit failed": (
        on_spark2("serving", "unit", value="failed", serving=True),
        "refuse serving.rank spark2: the unit of rank 1 is failed, its container running; limit: active and running;"
        " remedy: look at `journalctl -u sparkwright-engine`, then run playbooks/start.yml",
    ),
    "a rank that exited": (
        on_spark2("runtime", "containers", value=[engine_container(SPARK2, "exited")], serving=True),
        "refuse serving.rank spark2: the unit of rank 1 is active, its container exited; limit: active and running;"
        " remedy: look at `journalctl -u sparkwright-engine`, then run playbooks/start.yml",
    ),
}


@pytest.mark.parametrize(("changes", "line"), CASES.values(), ids=CASES)
def test_one_thing_is_wrong(changes, line):
    assert findings(cluster(**changes)) == [line]


@pytest.mark.parametrize(
    "changes",
    [
        listening(listener("127.0.0.1", 8210)),
        listening(listener("10.0.0.11", 29501)),
        listening(listener("0.0.0.0", 8211)),
        {"facts": {(SPARK2, "serving", "listeners"): [listener("0.0.0.0", 8210)]}},
        {"intents": UNPINNED},
    ],
    ids=str,
)
def test_what_is_close_and_right(changes):
    assert findings(cluster(**changes)) == []


@pytest.mark.parametrize(
    ("held", "wanted", "refused"),
    [
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "10.0.0.11", False),
        ("10.0.0.11", "10.0.0.11", True),
        ("::", "10.0.0.11", True),
    ],
)
def test_two_addresses_of_one_port(held, wanted, refused):
    changes = {"intents": {"*": {"api_host": wanted}}, **listening(listener(held, 8210))}
    assert bool(findings(cluster(**changes))) is refused


CONTAINERD = {(f"spark{n}", "runtime", "containerd_store"): True for n in range(1, 5)}


def with_images(*ids):
    return {(f"spark{n}", "runtime", "images", IMAGE): image_id for n, image_id in enumerate(ids, start=1)}


def test_where_containerd_keeps_images_a_pinned_id_cannot_be_compared():
    facts = CONTAINERD | with_images(*[OTHER_IMAGE_ID] * 4)
    assert findings(cluster(facts=facts)) == []


def test_where_containerd_keeps_images_they_are_still_equal_on_all_nodes():
    pinned = cluster().intents["spark1"].image_id
    facts = CONTAINERD | with_images(pinned, pinned, OTHER_IMAGE_ID, pinned)
    assert findings(cluster(facts=facts)) == [
        f"refuse image.equal spark3: its engine image is {short(OTHER_IMAGE_ID)}; limit: {short(pinned)}, as on the"
        " others; remedy: remove the image there and run site.yml"
    ]


@pytest.mark.parametrize(
    ("image_id", "text"), [("sha256:0123456789abcdef", "0123456789ab"), ("0123", "0123"), ("", "")]
)
def test_image_ids_are_shown_short(image_id, text):
    assert short(image_id) == text
