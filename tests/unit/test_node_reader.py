"""Reading a node: fixture trees for its files, answers written down for its commands."""

from __future__ import annotations

import json
import os

import pytest
from builders import HARDWARE, IMAGE, IMAGE_ID, engine_rank, write_checkpoint
from trees import CAGE0, addresses, runner, write

from ansible_collections.sparkwright.cluster.plugins.module_utils import node_reader
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import (
    NodeReader,
    parse_listeners,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import complete


def reader(root, answers=None, hardware="/nowhere"):
    return NodeReader(str(hardware), str(root), runner(answers or {}))


# --- platform -------------------------------------------------------------------------------------------------------


def test_the_platform_of_the_stand_in_hardware(tmp_path):
    write(tmp_path, {"etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n'})
    found = NodeReader(str(HARDWARE), str(tmp_path)).platform()
    assert found["dgx"]["DGX_OTA_VERSION"] == "7.4.0"
    assert (found["os_id"], found["os_version"]) == ("ubuntu", "24.04")
    assert (found["gpus"], found["driver"]) == (["NVIDIA GB10"], "580.95.05")


def test_a_machine_without_dgx_os_and_gpu(tmp_path):
    found = reader(tmp_path).platform()
    assert (found["dgx"], found["gpus"], found["driver"], found["os_id"]) == (None, [], None, "")


@pytest.mark.parametrize(
    ("answer", "gpus", "driver"),
    [
        ("NVIDIA GB10, 580.95.05\n", ["NVIDIA GB10"], "580.95.05"),
        ("NVIDIA A, 5\nNVIDIA B, 5\n", ["NVIDIA A", "NVIDIA B"], "5"),
        ((9, "Failed to initialize NVML, Unknown Error\n", ""), [], None),
        ("No devices were found\n", [], None),
    ],
)
def test_what_nvidia_smi_says(tmp_path, answer, gpus, driver):
    write(tmp_path, {"usr/bin/nvidia-smi": ""})
    found = reader(tmp_path, {f"{tmp_path}/usr/bin/nvidia-smi --query-gpu=name,driver_version": answer}).platform()
    assert (found["gpus"], found["driver"]) == (gpus, driver)


# --- runtime --------------------------------------------------------------------------------------------------------

INFO = json.dumps({"ServerVersion": "28.5.1", "Runtimes": {"runc": {}, "nvidia": {}}})
INSPECTED = json.dumps(
    [
        {
            "Id": "f00",
            "Name": "/sparkwright-engine",
            "Image": IMAGE_ID,
            "State": {"Status": "running"},
            "Config": {"Labels": {"sparkwright.rank": "0"}},
        },
        {"Id": "ba5", "Name": "/db", "Image": "sha256:1", "State": {"Status": "exited"}, "Config": {"Labels": None}},
    ]
)


def test_docker_with_two_containers(tmp_path):
    answers = {
        "docker info": INFO,
        f"docker image inspect --format {{{{.Id}}}} {IMAGE}": f"{IMAGE_ID}\n",
        "docker image inspect": (1, "\n", "Error: No such image"),
        "docker ps --all --quiet --no-trunc": "f00\nba5\n",
        "docker container inspect f00 ba5": INSPECTED,
    }
    write(tmp_path, {"etc/docker/daemon.json": "{}"})
    found = reader(tmp_path, answers).runtime([IMAGE, "absent:1"])
    assert (found["version"], found["error"], found["runtimes"]) == ("28.5.1", None, ["nvidia", "runc"])
    assert found["images"] == {IMAGE: IMAGE_ID, "absent:1": None}
    assert [(c["name"], c["state"], c["labels"]) for c in found["containers"]] == [
        ("sparkwright-engine", "running", {"sparkwright.rank": "0"}),
        ("db", "exited", {}),
    ]
    assert found["daemon_json"] == "{}"


@pytest.mark.parametrize(
    ("info", "error"),
    [
        ((1, "", "Cannot connect to the Docker daemon\n"), "Cannot connect to the Docker daemon"),
        ((0, json.dumps({"ServerErrors": ["daemon is not running"]}), ""), "daemon is not running"),
        ((0, "not JSON", ""), "docker does not answer"),
        (None, "docker is not installed"),
    ],
)
def test_docker_that_does_not_answer(tmp_path, info, error):
    found = reader(tmp_path, {"docker info": info} if info else {}).runtime([IMAGE])
    assert found["error"] == error
    assert (found["version"], found["images"], found["containers"]) == (None, {}, [])


def test_docker_without_containers(tmp_path):
    assert reader(tmp_path, {"docker info": INFO, "docker ps": ""}).runtime()["containers"] == []


# --- serving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "listener"),
    [
        ('LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=1,fd=3))', ("0.0.0.0", 22, "sshd")),
        ('LISTEN 0 128 [::]:22 [::]:* users:(("sshd",pid=1,fd=4))', ("::", 22, "sshd")),
        ("LISTEN 0 4096 *:8210 *:*", ("0.0.0.0", 8210, "")),
        (
            'LISTEN 0 4096 127.0.0.53%lo:53 0.0.0.0:* users:(("systemd-resolve",pid=2,fd=17))',
            ("127.0.0.53", 53, "systemd-resolve"),
        ),
        ("LISTEN 0 5 [fe80::1]%enP7s7:546 [::]:*", ("fe80::1", 546, "")),
        ('LISTEN 0 5 [::ffff:10.0.0.11]:9000 *:* users:(("java",pid=3,fd=1))', ("10.0.0.11", 9000, "java")),
        (
            'LISTEN 0 511 10.0.0.11:80 0.0.0.0:* users:(("nginx: worker",pid=5,fd=6),("nginx",pid=4,fd=6))',
            ("10.0.0.11", 80, "nginx: worker"),
        ),
    ],
)
def test_a_listener(line, listener):
    (found,) = parse_listeners(line)
    assert (found["address"], found["port"], found["process"]) == listener


@pytest.mark.parametrize("text", ["", "\n", "State Recv-Q Send-Q Local Peer", "LISTEN 0 128"])
def test_lines_without_a_listener(text):
    assert parse_listeners(text) == []


def test_the_unit_and_its_neighbours(tmp_path):
    answers = {
        "systemctl show sparkwright-engine.service": "ActiveState=active\n",
        "ss -H -l -t -n -p": "LISTEN 0 1 0.0.0.0:22 0.0.0.0:*\n",
        "iptables --list-rules SPARKWRIGHT": "-N SPARKWRIGHT\n-A SPARKWRIGHT -i lo -j RETURN\n",
    }
    assert reader(tmp_path, answers).serving() == {
        "unit": "active",
        "listeners": [{"address": "0.0.0.0", "port": 22, "process": ""}],
        "rank": None,
        "watchdog": None,
        "filter": ["-A SPARKWRIGHT -i lo -j RETURN"],
        "ray": None,
    }


def test_a_node_without_systemd(tmp_path):
    assert reader(tmp_path).serving() == {
        "unit": "unknown",
        "listeners": [],
        "rank": None,
        "watchdog": None,
        "filter": [],
        "ray": None,
    }


@pytest.mark.parametrize(("kept", "whole"), [(engine_rank(), True), ({"stage": "of another release"}, False)])
def test_what_the_rank_and_the_watchdog_keep(tmp_path, kept, whole):
    watchdog = {"restarts": [1.5], "last": "x", "stopped": ""}
    files = {"run/sparkwright/rank.json": json.dumps(kept), "var/lib/sparkwright/watchdog.json": json.dumps(watchdog)}
    write(tmp_path, files)
    found = reader(tmp_path).serving()
    assert (found["rank"], found["watchdog"]) == (kept if whole else None, watchdog)


RAY_INSIDE = "docker exec sparkwright-engine python3 /usr/local/lib/sparkwright ray-facts"
REGISTERED = {"version": "2.60.0", "nodes": {"10.0.0.1": "00"}, "error": None}


def engine_with(labels, state="running"):
    """What Docker says of our container and nothing else."""
    row = {"Id": "f00", "Name": "/sparkwright-engine", "Image": IMAGE_ID, "State": {"Status": state}}
    inspected = json.dumps([{**row, "Config": {"Labels": labels}}])
    return {"docker ps --all --quiet --no-trunc": "f00\n", "docker container inspect f00": inspected}


@pytest.mark.parametrize(("rank", "asked"), [("0", " 10.0.0.1:26479"), ("2", "")])
def test_the_head_alone_is_asked_who_has_registered(tmp_path, rank, asked):
    labels = {"sparkwright.rank": rank, "sparkwright.ray": "10.0.0.1:26479"}
    asked_for = []

    def run(argv):
        asked_for.append(" ".join(argv))
        return runner({**engine_with(labels), RAY_INSIDE: json.dumps(REGISTERED)})(argv)

    assert NodeReader(root=str(tmp_path), run=run).serving()["ray"] == REGISTERED
    assert f"{RAY_INSIDE}{asked}" in asked_for


@pytest.mark.parametrize(
    "answers",
    [
        engine_with({"sparkwright.rank": "0"}),
        engine_with({"sparkwright.rank": "0", "sparkwright.ray": "10.0.0.1:26479"}, "exited"),
        {"docker ps": ""},
    ],
)
def test_without_a_running_ray_nobody_is_asked(tmp_path, answers):
    assert reader(tmp_path, {**answers, RAY_INSIDE: (1, "", "asked")}).serving()["ray"] is None


def test_a_ray_that_does_not_say_has_a_reason(tmp_path):
    labels = {"sparkwright.rank": "0", "sparkwright.ray": "10.0.0.1:26479"}
    found = reader(tmp_path, {**engine_with(labels), RAY_INSIDE: (1, "", "No module named ray")}).serving()["ray"]
    assert found == {"version": None, "nodes": None, "error": "it does not say: No module named ray"}


# --- all of it ------------------------------------------------------------------------------------------------------


def test_only_what_was_asked_for_is_read(tmp_path):
    write(tmp_path, {"proc/meminfo": "MemTotal: 5 kB\n"})
    found = reader(tmp_path).read(["memory"])
    assert found == {"schema": 1, "reachable": True, "privileged": os.geteuid() == 0, "memory": {"MemTotal": 5}}


def test_weights_need_a_path(tmp_path):
    asked = ["weights", "memory"]
    assert "weights" not in reader(tmp_path).read(asked)
    write_checkpoint(tmp_path / "models/big")
    assert complete(reader(tmp_path).read(asked, "/models/big")["weights"])


def test_facts_are_plain_json(tmp_path):
    found = reader(tmp_path, addresses(CAGE0[0].link), HARDWARE).read(node_reader.SUBSETS, str(tmp_path), [IMAGE])
    assert set(found) == {"schema", "reachable", "privileged", *node_reader.SUBSETS}
    assert json.loads(json.dumps(found)) == found
