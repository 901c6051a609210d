"""A cluster that serves: a second run leaves it alone, and what is wrong on one node is named."""

from __future__ import annotations

import json
import subprocess
import urllib.request

import pytest
from driver import LAB, REPO, STATE, inventory_with, play

NODES = ("spark1", "spark2", "spark3", "spark4")
IMAGE = "sparkwright-lab/vllm-cpu:0.32.0"


def on_node(node: str, command: str) -> str:
    argv = ["ssh", "-F", str(STATE / "ssh_config"), node, f"sudo {command}"]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def container_ids() -> list[str]:
    return [on_node(node, "docker inspect --format {{.Id}} sparkwright-engine") for node in NODES]


def test_the_api_completes_a_text_as_openai_clients_ask():
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello world"}], "max_tokens": 8}
    request = urllib.request.Request(
        "http://10.77.0.11:8000/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    answer = json.load(opener.open(request, timeout=60))
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("options", [(), ("--check", "--diff")], ids=["run", "check"])
def test_a_second_run_changes_nothing_and_leaves_the_engine_alone(options):
    before = container_ids()

    run = play("site.yml", LAB, *options)

    assert run.code == 0, run.output
    assert run.changed == []
    assert container_ids() == before


def test_doctor_finds_a_healthy_cluster_and_changes_nothing():
    run = play("playbooks/doctor.yml")

    assert run.code == 0, run.output
    assert run.changed == []


def test_a_changed_profile_never_restarts_a_serving_cluster(tmp_path):
    inventory = inventory_with(tmp_path, {})
    profile = (REPO / "profiles" / "lab-tiny-tp4.yml").read_text(encoding="utf-8")
    (inventory / "profiles").mkdir()
    (inventory / "profiles" / "lab-tiny-tp4.yml").write_text(
        profile.replace("max-num-seqs: 4", "max-num-seqs: 2"), encoding="utf-8"
    )
    before = container_ids()

    run = play("site.yml", inventory)

    assert run.code != 0
    assert run.changed == []
    assert any(line.startswith("spark1: the engine runs configuration ") for line in run.failures), run.output
    assert container_ids() == before


def test_a_different_image_on_one_node_is_refused_where_nothing_pins_it():
    on_node("spark3", f"docker tag $(sudo docker image inspect --format {{{{.Id}}}} {IMAGE}) keep:1")
    on_node("spark3", "sh -c 'echo FROM keep:1 > /tmp/Dockerfile; echo LABEL other=1 >> /tmp/Dockerfile'")
    on_node("spark3", f"docker build --quiet --tag {IMAGE} --file /tmp/Dockerfile /tmp")
    before = container_ids()
    try:
        run = play("site.yml", variables={"engine_image_archive": ""})
        assert run.code != 0
        assert run.changed == []
        assert any(line.startswith("spark3: its engine image is ") for line in run.failures), run.output

        # With the archive as the pin, the node gets the right image back and no rank is restarted.
        repaired = play("site.yml")
        assert repaired.code == 0, repaired.output
        assert {line.split(":")[0] for line in repaired.changed} == {"spark3"}
        assert container_ids() == before
    finally:
        on_node("spark3", f"docker tag keep:1 {IMAGE}")
        on_node("spark3", "docker rmi keep:1")


def test_a_lost_rail_address_is_named_by_doctor_and_put_back_by_nobody_while_serving():
    on_node("spark2", "ip link set dev enP2p1s0f0np0 mtu 1500")
    try:
        run = play("playbooks/doctor.yml")
    finally:
        on_node("spark2", "ip link set dev enP2p1s0f0np0 mtu 9000")

    assert run.code != 0
    assert (
        "spark2: the MTU of enP2p1s0f0np0 is 1500; limit: 9000; remedy: run playbooks/stop.yml if it serves, "
        "then site.yml, which applies netplan" in run.failures
    )
