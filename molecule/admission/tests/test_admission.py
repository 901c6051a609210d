"""One node is broken, and the launch is refused word for word; what is broken is put back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from cases import ADMITTED, CASES, PROFILE, meminfo
from driver import STATE, Run, play

ROOT = "/opt/sparkwright-lab/hardware"
PLAYBOOK = "molecule/admission/admit.yml"
TOOL = f"{ROOT}/usr/bin/nvidia-smi"
# Answers what the GPU's processes are, and leaves all other questions to the lab's own stand-in.
STAND_IN = f"#!/bin/sh\ncase $* in *--query-compute-apps=*) echo '{{lines}}' ;; *) exec {TOOL}.lab \"$@\" ;; esac\n"


def on_node(node: str, command: str, text: str = "") -> None:
    """Run a shell command as root on a node, with a text as its input."""
    argv = ["ssh", "-F", str(STATE / "ssh_config"), node, f"sudo sh -c {subprocess.list2cmdline([command])}"]
    subprocess.run(argv, input=text, text=True, check=True, capture_output=True, timeout=60)


@pytest.fixture
def broken(request) -> Iterator[list[str]]:
    """A case of CASES on its node, which is whole again afterwards."""
    node, changes, gpu, lines = CASES[request.param]
    on_node(node, f"cat > {ROOT}/proc/meminfo", meminfo(changes))
    if gpu:
        on_node(node, f"mv {TOOL} {TOOL}.lab && cat > {TOOL} && chmod 755 {TOOL}", STAND_IN.format(lines=gpu))
    yield lines
    on_node(node, f"cat > {ROOT}/proc/meminfo", meminfo({}))
    if gpu:
        on_node(node, f"mv {TOOL}.lab {TOOL}")


def admit(**variables: object) -> Run:
    return play(PLAYBOOK, variables={"sparkwright_profile": PROFILE, **variables})


def test_healthy_nodes_are_admitted():
    run = admit()

    assert run.code == 0, run.output
    assert ADMITTED in run.output
    assert run.changed == []


@pytest.mark.parametrize("broken", CASES, indirect=True)
def test_the_launch_is_refused_with_host_number_and_remedy(broken):
    run = admit()

    assert run.code != 0
    assert run.failures == broken, run.output
    assert run.changed == []


@pytest.mark.parametrize("broken", ["the swap is in use"], indirect=True)
def test_a_swap_that_the_run_may_drain_is_no_reason_to_refuse(broken):
    run = admit(serving_free_memory=True)

    assert run.code == 0, run.output
    assert "warn: [memory.swap] spark4: 1.50 GiB lie in the swap" in run.output
