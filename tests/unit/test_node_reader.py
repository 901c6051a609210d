"""Reading a node: fixture trees for its files, answers written down for its commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import DEVICE0, HARDWARE, IMAGE, IMAGE_ID, NETDEV0, NETDEV1, write_checkpoint

from ansible_collections.sparkwright.cluster.plugins.module_utils import node_reader
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import device_of, gid_rows
from ansible_collections.sparkwright.cluster.plugins.module_utils.gids import find_ipv4
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import (
    NodeReader,
    names_in,
    parse_listeners,
    ping_all,
    run_command,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import complete


def runner(answers):
    """A `run` that knows some commands by their beginning; any other one is not installed."""

    def run(argv):
        line = " ".join(argv)
        for start, answer in answers.items():
            if line.startswith(start):
                code, out, err = answer if isinstance(answer, tuple) else (0, answer, "")
                return subprocess.CompletedProcess(argv, code, out, err)
        return subprocess.CompletedProcess(argv, 127, "", f"{argv[0]} is not installed")

    return run


def reader(root, answers=None, hardware="/nowhere"):
    return NodeReader(str(hardware), str(root), runner(answers or {}))


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# --- commands -------------------------------------------------------------------------------------------------------


def test_a_missing_command_is_a_failed_one():
    done = run_command(["no-such-command-here"])
    assert (done.returncode, done.stderr) == (127, "no-such-command-here is not installed")


def test_a_late_command_is_a_failed_one(monkeypatch):
    monkeypatch.setattr(node_reader, "COMMAND_SECONDS", 0.2)
    done = run_command(["sleep", "3"])
    assert (done.returncode, done.stderr) == (124, "sleep did not answer within 0.2 s")


def test_commands_speak_english(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert run_command([sys.executable, "-c", "import os; print(os.environ['LC_ALL'])"]).stdout == "C\n"


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


# --- fabric ---------------------------------------------------------------------------------------------------------

LINKS = json.dumps(
    [
        {
            "ifname": "enP7s7",
            "mtu": 1500,
            "operstate": "UP",
            "address": "4c:bb:47:00:00:01",
            "addr_info": [
                {"family": "inet", "local": "10.0.0.11", "prefixlen": 24},
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
            ],
        },
        # A rail before its first configuration: no address, and down.
        {"ifname": NETDEV0, "mtu": 1500, "operstate": "DOWN", "address": "4c:bb:47:2c:10:0a", "addr_info": []},
        {},
    ]
)
FABRIC = {
    "ip -j addr": LINKS,
    "ip -j -4 route show default": '[{"dst":"default","gateway":"10.0.0.1","dev":"enP7s7"},{}]',
}


def test_a_rail_without_an_address_is_there(tmp_path):
    found = reader(tmp_path, FABRIC, HARDWARE).fabric()
    assert found["netdevs"][NETDEV0] == {
        "mtu": 1500,
        "speed": 200000,
        "operstate": "DOWN",
        "mac": "4c:bb:47:2c:10:0a",
        "phys_port_name": "p0",
        "addresses": [],
    }


def test_addresses_are_those_of_ipv4(tmp_path):
    assert reader(tmp_path, FABRIC).fabric()["netdevs"]["enP7s7"]["addresses"] == ["10.0.0.11/24"]


def test_the_command_itself_shows_interfaces_without_an_address():
    """A pair of links in a network namespace of their own, neither with an address."""
    script = "ip link add name left type veth peer name right && ip -j addr"
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine makes no network namespace: {done.stderr.strip()}")
    assert {link["ifname"] for link in json.loads(done.stdout)} >= {"left", "right"}


def test_the_devices_of_the_stand_in_hardware(tmp_path):
    found = reader(tmp_path, FABRIC, HARDWARE).fabric()
    assert sorted(found["rdma"]) == ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]
    name, device = device_of(found, NETDEV0)
    assert name == DEVICE0
    port = device["port"]
    assert (port["state"], port["phys_state"], port["link_layer"]) == ("ACTIVE", "LinkUp", "Ethernet")
    assert port["rate"] == "200 Gb/sec (4X HDR)"
    assert [row["index"] for row in port["gids"]] == [0, 1, 2, 3]
    assert find_ipv4(gid_rows(port), "192.168.100.10").index == 3
    assert found["rdma"]["rocep1s0f1"]["port"]["state"] == "DOWN"


def test_a_slot_that_cannot_be_read_stays_in_the_table(tmp_path):
    tree = tmp_path / "hardware"
    shutil.copytree(HARDWARE, tree)
    port = tree / "sys/class/infiniband" / DEVICE0 / "ports/1"
    (port / "gid_attrs/types/3").unlink()
    (port / "gids/7").unlink()
    (port / "gids/7").mkdir()
    rows = {row["index"]: row for row in reader(tmp_path, FABRIC, tree).fabric()["rdma"][DEVICE0]["port"]["gids"]}
    assert sorted(rows) == [0, 1, 2, 3, 7]
    assert (rows[3]["type"], rows[7]["gid"]) == ("", "")


def test_only_numbers_are_slots_of_the_table(tmp_path):
    tree = tmp_path / "hardware"
    shutil.copytree(HARDWARE, tree)
    (tree / "sys/class/infiniband" / DEVICE0 / "ports/1/gids/.3").write_text("fe80::1\n")
    port = reader(tmp_path, FABRIC, tree).fabric()["rdma"][DEVICE0]["port"]
    assert [row["index"] for row in port["gids"]] == [0, 1, 2, 3]


def test_soft_roce_is_found_by_its_table(tmp_path):
    port = "sys/class/infiniband/rxe0/ports/1"
    files = {f"{port}/state": "4: ACTIVE\n", f"{port}/gid_attrs/ndevs/0": "eth1\n"}
    assert reader(write(tmp_path, files)).fabric()["rdma"]["rxe0"]["netdev"] == "eth1"


def test_a_node_without_a_fabric(tmp_path):
    assert reader(tmp_path).fabric() == {
        "netdevs": {},
        "rdma": {},
        "default_routes": [],
        "netplan": {},
        "pings": {},
        "own_netplan": None,
    }


def test_default_routes_are_named_once(tmp_path):
    assert reader(tmp_path, FABRIC).fabric()["default_routes"] == ["enP7s7"]


def test_netplan_files_of_all_folders(tmp_path):
    files = {
        "etc/netplan/60-sparkwright.yaml": f"network:\n  ethernets:\n    {NETDEV0}:\n",
        "run/netplan/90-NM.yaml": "network:\n  ethernets:\n    enP7s7: {}\n",
        "etc/netplan/README": NETDEV0,
    }
    found = reader(write(tmp_path, files), FABRIC).fabric()
    assert found["netplan"] == {
        "/etc/netplan/60-sparkwright.yaml": [NETDEV0],
        "/run/netplan/90-NM.yaml": ["enP7s7"],
    }
    assert found["own_netplan"] == files["etc/netplan/60-sparkwright.yaml"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"    {NETDEV0}:\n", [NETDEV0]),
        (f"    '{NETDEV0}': {{}}\n", [NETDEV0]),
        (f"bonds: {{bond0: {{interfaces: [{NETDEV1}, {NETDEV0}]}}}}", [NETDEV1, NETDEV0]),
        (f"    set-name: {NETDEV1}\n", [NETDEV1]),
        (f"# {NETDEV0} is left alone\n", []),
        (f"    {NETDEV0}x:\n    x{NETDEV0}:\n    {NETDEV0}.100:\n", []),
        ("", []),
    ],
)
def test_names_in_a_netplan_file(text, names):
    assert names_in(text, [NETDEV0, NETDEV1]) == names


def test_pings_are_sent_at_once_and_each_has_its_answer(tmp_path, monkeypatch):
    """The stand-in answers for one address, and takes long enough to show that none waits for another."""
    ping = tmp_path / "ping"
    ping.write_text('#!/bin/bash\nsleep 0.4\nprintf "%s\\n" "$*" >> "$0.log"\ntest "${!#}" = 192.168.100.11\n')
    ping.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    addresses = [f"192.168.100.{number}" for number in range(11, 17)]
    started = time.monotonic()
    found = ping_all([{"netdev": NETDEV0, "address": address, "size": 8972} for address in addresses])
    assert found == {f"{NETDEV0} {address}": address == addresses[0] for address in addresses}
    assert time.monotonic() - started < len(addresses) * 0.4
    sent = (tmp_path / "ping.log").read_text().splitlines()
    assert f"-n -q -M do -s 8972 -c 3 -i 0.2 -W 1 -I {NETDEV0} {addresses[0]}" in sent


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
    found = reader(tmp_path, FABRIC, HARDWARE).read(node_reader.SUBSETS, str(tmp_path), [IMAGE])
    assert set(found) == {"schema", "reachable", "privileged", *node_reader.SUBSETS}
    assert json.loads(json.dumps(found)) == found


def test_hardware_that_the_root_lacks_is_read_below_the_other(tmp_path):
    hardware = write(tmp_path / "hardware", {"etc/dgx-release": 'DGX_NAME="stand-in"\n'})
    root = write(tmp_path / "root", {"etc/dgx-release": 'DGX_NAME="real"\n', "etc/os-release": "ID=ubuntu\n"})
    found = reader(root, hardware=hardware).platform()
    assert (found["dgx"], found["os_id"]) == ({"DGX_NAME": "stand-in"}, "ubuntu")
    assert reader(root, hardware=Path("/nowhere")).platform()["dgx"] == {"DGX_NAME": "real"}
