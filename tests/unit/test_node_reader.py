"""Reading a node: fixture trees for its files, answers written down for its commands."""

from __future__ import annotations

import json
import os

import pytest
from builders import HARDWARE, IMAGE, IMAGE_ID, SHARD1, SHARD2, write_checkpoint
from trees import CAGE0, addresses, runner, write

from ansible_collections.sparkwright.cluster.plugins.module_utils import node_reader
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import run_command
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import (
    NodeReader,
    parse_listeners,
    read_weights,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import (
    INDEX_NAME,
    complete,
    damaged,
    missing,
)


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
        "systemctl show sparkwright-engine.service": "ActiveState=active\nUnitFileState=enabled\n",
        "ss -H -l -t -n -p": "LISTEN 0 1 0.0.0.0:22 0.0.0.0:*\n",
    }
    assert reader(tmp_path, answers).serving() == {
        "unit": "active",
        "enabled": "enabled",
        "listeners": [{"address": "0.0.0.0", "port": 22, "process": ""}],
    }


def test_a_node_without_systemd(tmp_path):
    assert reader(tmp_path).serving() == {"unit": "unknown", "enabled": "", "listeners": []}


# --- weights --------------------------------------------------------------------------------------------------------


def truncate(path):
    whole = (path / SHARD2).read_bytes()
    (path / SHARD2).write_bytes(whole[:-1])


def empty(path):
    (path / SHARD2).write_bytes(b"")


def lose(path):
    (path / SHARD2).unlink()


def link_to_nowhere(path):
    lose(path)
    (path / SHARD2).symlink_to(path / "blobs/gone")


@pytest.mark.parametrize(
    ("harm", "lost", "broken"),
    [
        (lambda path: None, [], []),
        (truncate, [], [SHARD2]),
        (empty, [], [SHARD2]),
        (lose, [SHARD2], []),
        (link_to_nowhere, [], [SHARD2]),
        (lambda path: (path / "notes.safetensors").write_bytes(b"?"), [], []),
    ],
    ids=["whole", "truncated", "empty", "lost", "a link to nowhere", "a file that the index does not name"],
)
def test_a_checkpoint_on_disk(tmp_path, harm, lost, broken):
    path = write_checkpoint(tmp_path / "model")
    harm(path)
    found = read_weights(path)
    assert (found["error"], missing(found), damaged(found)) == (None, lost, broken)
    assert found["tensors"] == {SHARD1: 2, SHARD2: 3}
    assert found["disk_free"] > 0


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (None, f"{INDEX_NAME} is not there"),
        (
            "{",
            f"{INDEX_NAME} cannot be read: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("{}", f"{INDEX_NAME} cannot be read: it has no weight_map"),
    ],
)
def test_an_index_that_cannot_be_read(tmp_path, index, error):
    if index is not None:
        (tmp_path / INDEX_NAME).write_text(index)
    found = read_weights(tmp_path)
    assert (found["error"], found["tensors"], found["shards"]) == (error, {}, {})


def test_the_configuration_counts_as_well(tmp_path):
    path = write_checkpoint(tmp_path)
    assert len(read_weights(path)["config_sha256"]) == 64
    (path / "config.json").unlink()
    assert read_weights(path)["config_sha256"] is None


def test_a_dead_mount_is_an_error_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr(node_reader, "WEIGHTS_SECONDS", 0.2)
    monkeypatch.setattr(node_reader, "read_weights", lambda path: run_command(["sleep", "3"]))
    found = reader(tmp_path).weights("/mnt/models")
    assert (found["path"], found["error"]) == ("/mnt/models", "it did not answer within 0.2 s")


def test_a_directory_that_fails_is_an_error_in_words(tmp_path, monkeypatch):
    def fail(path):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(node_reader, "read_weights", fail)
    error = "it cannot be read: OSError: [Errno 116] Stale file handle"
    assert reader(tmp_path).weights("/mnt/models")["error"] == error


# --- all of it ------------------------------------------------------------------------------------------------------


def test_only_what_was_asked_for_is_read(tmp_path):
    write(tmp_path, {"proc/meminfo": "MemTotal: 5 kB\n"})
    found = reader(tmp_path).read(["memory"])
    assert found == {"schema": 1, "reachable": True, "privileged": os.geteuid() == 0, "memory": {"MemTotal": 5}}


def test_weights_need_a_path(tmp_path):
    asked = ["weights", "memory"]
    assert "weights" not in reader(tmp_path).read(asked)
    assert complete(reader(tmp_path).read(asked, str(write_checkpoint(tmp_path / "model")))["weights"])


def test_facts_are_plain_json(tmp_path):
    found = reader(tmp_path, addresses(CAGE0[0].link), HARDWARE).read(node_reader.SUBSETS, str(tmp_path), [IMAGE])
    assert set(found) == {"schema", "reachable", "privileged", *node_reader.SUBSETS}
    assert json.loads(json.dumps(found)) == found
