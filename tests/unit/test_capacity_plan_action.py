"""playbooks/plan.yml as a user runs it, without any node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
NVFP4 = "sparkwright_profile=glm52-nvfp4-dcp4-mtp3-128k"


def plan(*arguments):
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
    command = ["ansible-playbook", "playbooks/plan.yml", *arguments]
    return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["-e", NVFP4], 0, "the engine will print 132,096 tokens, 1.01x of 131,072"),
        (["-i", "inventory/spark4"], 0, "glm52-awq15-mtp3-256k on 4 nodes"),
        (["-e", NVFP4, "-e", "plan_nodes=2"], 2, "remedy: use 4 nodes, the fewest that can"),
        (["-e", NVFP4, "-e", "plan_nodes=9"], 2, "plan_nodes is 9; limit: 1 to 8; remedy: choose another number"),
        (["-e", NVFP4, "-e", "plan_nodes=four"], 2, "plan_nodes is four; limit: 1 to 8; remedy: choose another number"),
        ([], 2, "sparkwright_profile is not set; remedy: choose one that exists"),
        (["-e", "sparkwright_profile=lab-tiny-tp5"], 2, "does not exist (did you mean lab-tiny-tp4?)"),
    ],
    ids=str,
)
def test_a_plan(arguments, code, shown):
    ended = plan(*arguments)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert shown in ended.stdout + ended.stderr
