"""The ranks run in their containers and answer: after the play, a reboot and a power cut alike, and nobody starts them.

What answers is the lab's stand-in, so this is about units, mounts, devices and start-up checks, and not about vLLM.
"""

from __future__ import annotations

import json
import time

import pytest

# Seconds after a boot of four emulated machines on two cores.
LONGEST = 600
RANK = "/run/sparkwright/rank.json"
ASK = """
import json, urllib.request
body = json.dumps({"model": "stand-in", "prompt": "1", "max_tokens": 3}).encode()
print(urllib.request.urlopen("http://10.78.0.11:8000/v1/completions", body, timeout=20).read().decode())
"""


@pytest.fixture(scope="module")
def answer(host) -> dict:
    """What the API on the head says, asked from this node as soon as it answers."""
    until = time.monotonic() + LONGEST
    while (asked := host.run("python3 -c %s", ASK)).rc and time.monotonic() < until:
        time.sleep(5)
    assert asked.rc == 0, host.run("systemctl status sparkwright-engine").stdout
    return json.loads(asked.stdout)


def test_the_ranks_answer_together_and_say_what_they_are(answer):
    assert answer["choices"][0]["text"] == "This is the lab's stand-in and not a language model."
    assert answer["usage"]["completion_tokens"] == 3


@pytest.mark.usefixtures("answer")
def test_the_rank_passed_its_start_up_check_and_runs_as_planned(host):
    unit = host.service("sparkwright-engine")
    assert unit.is_running
    # Asks the files; systemd's own UnitFileState is as old as its last reload.
    assert unit.is_enabled
    # The head tells the others a moment after the first answer.
    until = time.monotonic() + 60
    while not (rank := json.loads(host.file(RANK).content_string))["ready"] and time.monotonic() < until:
        time.sleep(2)
    assert (rank["ready"], rank["end"]) == (True, None)
    (container,) = json.loads(host.check_output("docker inspect sparkwright-engine"))
    launch = json.loads(host.file("/etc/sparkwright/launch.json").content_string)
    assert container["Config"]["Labels"]["sparkwright.rank"] == str(launch["intent"]["rank"])
    assert not container["HostConfig"]["Privileged"]


@pytest.mark.usefixtures("answer")
def test_the_container_has_verbs_locked_memory_and_the_fabric_and_can_write_its_caches_only(host):
    log = host.check_output("journalctl --unit sparkwright-engine --boot --output=cat")
    seen = json.loads(next(line.split("sees ")[1] for line in reversed(log.splitlines()) if " sees " in line))
    assert len(seen["verbs"]) == len(host.file("/sys/class/infiniband").listdir())
    assert seen["memlock"] == -1
    assert seen["nccl"]["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0"
    assert seen["nccl"]["GLOO_SOCKET_IFNAME"] == "enp1s0f0np0"
    assert not seen["models_writable"]
    assert seen["cache_writable"]
