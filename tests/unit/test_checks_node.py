"""Checks of the node itself: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

import pytest
from builders import cluster, findings

SPARK2 = "spark2"


def on_spark2(*path, value):
    return {"facts": {(SPARK2, *path): value}}


UNREACHABLE = {"reachable": False, "privileged": False}
SSH = "check the address, the key and the host key with ssh, and sudo with -K"
CONNECTION = f"limit: every node answers, with sudo; remedy: {SSH}"

CASES = {
    "unreachable": (
        {"facts": {(SPARK2,): {**UNREACHABLE, "reason": "connect to host 10.0.0.12 port 22: No route to host"}}},
        "refuse node.reachable spark2: no usable connection to 10.0.0.12: connect to host 10.0.0.12 port 22: "
        f"No route to host; {CONNECTION}",
    ),
    "unreachable without a reason": (
        {"facts": {(SPARK2,): UNREACHABLE}},
        f"refuse node.reachable spark2: no usable connection to 10.0.0.12: no reason was given; {CONNECTION}",
    ),
    "no sudo": (
        on_spark2("privileged", value=False),
        "refuse node.reachable spark2: the account is not root and sudo was not used; limit: every node answers, with"
        " sudo; remedy: set ansible_become: true",
    ),
    "old python": (
        on_spark2("platform", "python", value="3.10.12"),
        "refuse node.python spark2: Python is 3.10.12; limit: 3.11 or newer; remedy: install DGX OS 7",
    ),
    "no gpu": (
        on_spark2("platform", "gpus", value=[]),
        "refuse platform.gpu spark2: nvidia-smi shows no GPU; limit: one GB10; remedy: check the driver with"
        " nvidia-smi, or take the node out of the inventory",
    ),
    "another gpu": (
        on_spark2("platform", "gpus", value=["NVIDIA RTX 6000", "NVIDIA GB10"]),
        "refuse platform.gpu spark2: nvidia-smi shows NVIDIA RTX 6000, NVIDIA GB10; limit: one GB10; remedy: check the"
        " driver with nvidia-smi, or take the node out of the inventory",
    ),
    "stock ubuntu": (
        on_spark2("platform", "dgx", value=None),
        "warn platform.dgx-os spark2: no /etc/dgx-release; the system is ubuntu 24.04; limit: DGX OS 7; remedy: expect"
        " differences after updates",
    ),
    "another kernel": (
        on_spark2("platform", "kernel", value="6.11.0-1016-nvidia"),
        "warn platform.same-software spark2: kernel 6.11.0-1016-nvidia, driver 580.95.05; limit: as on the others:"
        " kernel 6.17.0-1008-nvidia, driver 580.95.05; remedy: update the node",
    ),
    "no driver": (
        on_spark2("platform", "driver", value=None),
        "warn platform.same-software spark2: kernel 6.17.0-1008-nvidia, driver none; limit: as on the others: kernel"
        " 6.17.0-1008-nvidia, driver 580.95.05; remedy: update the node",
    ),
    "no nvidia runtime": (
        on_spark2("runtime", "runtimes", value=["runc"]),
        "refuse runtime.gpu spark2: Docker's runtimes are runc; limit: nvidia among them; remedy: run `nvidia-ctk"
        " runtime configure --runtime=docker` and restart Docker",
    ),
    "another log driver": (
        on_spark2("runtime", "daemon_json", value='{"log-driver": "journald"}'),
        "refuse runtime.config spark2: /etc/docker/daemon.json has log-driver='journald', wanted is 'json-file';"
        " limit: a file that agrees with ours; remedy: correct the file, or set container_runtime_daemon_config to the"
        " value you want",
    ),
    "a broken daemon.json": (
        on_spark2("runtime", "daemon_json", value="{"),
        "refuse runtime.config spark2: /etc/docker/daemon.json is not JSON (Expecting property name enclosed in double"
        " quotes: line 1 column 2 (char 1)); limit: a file that agrees with ours; remedy: correct the file, or set"
        " container_runtime_daemon_config to the value you want",
    ),
    "a daemon.json that would change while the engine serves": (
        {"serving": True, **on_spark2("runtime", "daemon_json", value=None)},
        "refuse runtime.config spark2: daemon.json would change, which restarts Docker; limit: no restart while the"
        " engine serves; remedy: run playbooks/stop.yml first",
    ),
}


@pytest.mark.parametrize(("changes", "line"), CASES.values(), ids=CASES)
def test_one_thing_is_wrong(changes, line):
    assert findings(cluster(**changes)) == [line]


def test_docker_that_does_not_answer():
    facts = {(SPARK2, "runtime", "version"): None, (SPARK2, "runtime", "error"): "Cannot connect to the Docker daemon"}
    line = (
        "refuse runtime.docker spark2: Docker does not answer: Cannot connect to the Docker daemon; limit: a running"
        " Docker; remedy: look at `systemctl status docker`; on DGX OS reinstall docker-ce"
    )
    assert findings(cluster(facts=facts)) == [line]


def test_a_node_that_was_not_asked():
    healthy = cluster()
    del healthy.facts[SPARK2]
    line = f"refuse node.reachable spark2: no usable connection to 10.0.0.12: it was not asked; {CONNECTION}"
    assert findings(healthy) == [line]


@pytest.mark.parametrize(
    "changes",
    [
        on_spark2("platform", "python", value="3.11.2"),
        on_spark2("platform", "python", value="3.13.0rc1"),
        on_spark2("platform", "dgx", value={}),
        on_spark2("runtime", "daemon_json", value=None),
        {"intents": {"*": {"accelerator": "cpu"}}, **on_spark2("runtime", "runtimes", value=["runc"])},
    ],
    ids=str,
)
def test_what_is_close_to_a_limit_and_right(changes):
    assert findings(cluster(**changes)) == []
