"""The rails of virtual machines: their kernels have verbs, GID tables, links and boots of their own.

The tests build on each other: the rails are configured, then broken all at once, then whole again.
"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
import yaml
from driver import LAB, REPO, play

CONVERGE = "molecule/fabric/converge.yml"
NODES = ("spark1", "spark2", "spark3", "spark4")
REPORT = REPO / "reports" / "lab-vm-doctor.json"


def lever(node: str, *words: str) -> None:
    subprocess.run([REPO / "lab/vm/lever", node, *words], check=True, timeout=1200)


def checks(check: str) -> dict[tuple[str, str], tuple[str, str]]:
    """What doctor last found: {(host, rail): (status, fact)}."""
    found = json.loads(REPORT.read_text(encoding="utf-8"))["checks"]
    return {(one["host"], one["subject"]): (one["status"], one["fact"]) for one in found if one["id"] == check}


def every_end(status: str) -> dict[tuple[str, str], str]:
    return {(host, rail): status for host in NODES for rail in ("rail0", "rail1")}


def statuses(check: str) -> dict[tuple[str, str], str]:
    return {end: status for end, (status, _) in checks(check).items()}


def test_rdma_writes_pass_on_each_rail_between_every_two_nodes():
    play("playbooks/doctor.yml")
    assert statuses("fabric.rdma-write") == every_end("ok")
    assert all("3 of 3 peers" in fact for _, fact in checks("fabric.rdma-write").values())


def profile_with(folder, nccl_env):
    """The lab's inventory with a copy of its profile that sets further NCCL variables."""
    inventory = folder / "inventory"
    shutil.copytree(LAB, inventory)
    profile = yaml.safe_load((REPO / "profiles/lab-vm-standin.yml").read_text(encoding="utf-8"))
    (inventory / "profiles").mkdir()
    (inventory / "profiles/pinned.yml").write_text(yaml.safe_dump({**profile, "nccl_env": nccl_env}), encoding="utf-8")
    return inventory


@pytest.fixture(scope="module")
def broken():
    """A GID that moved, a cable pulled out, and a small MTU, each on a node of its own; then doctor."""
    lever("spark2", "gids", "rail0", "shift")
    lever("spark3", "unplug", "rail1")
    lever("spark4", "mtu", "rail0", "1500")
    return play("playbooks/doctor.yml")


@pytest.mark.usefixtures("broken")
def test_a_gid_that_moved_after_provisioning_is_still_the_right_one(on_node):
    gids = checks("fabric.gid")
    assert gids["spark2", "rail0"][0] == "ok"
    assert "3 RoCE v2 192.168.100.11" in gids["spark2", "rail0"][1]
    assert "GID_INDEX" not in on_node("spark2", "cat /etc/sparkwright/nccl.env")


@pytest.mark.usefixtures("broken")
def test_a_pinned_index_is_refused_where_it_is_a_hole(tmp_path):
    inventory = profile_with(tmp_path, {"NCCL_IB_GID_INDEX": 1})
    run = play(CONVERGE, inventory, variables={"sparkwright_profile": "pinned"})
    assert run.code != 0
    assert run.changed == []
    assert any(line.startswith("spark2: ") and "NCCL_IB_GID_INDEX" in line for line in run.failures), run.output


def test_a_cable_that_is_out_is_named_at_both_ends_of_the_rail(broken):
    assert broken.code != 0
    links = {end for end, status in statuses("fabric.link").items() if status == "refuse"}
    assert links == {("spark3", "rail1")}
    assert "not spark3" in checks("fabric.path")["spark1", "rail1"][1]


@pytest.mark.usefixtures("broken")
def test_a_small_mtu_is_found_by_itself_and_by_the_ping_that_must_not_be_split():
    assert {end for end, status in statuses("fabric.mtu").items() if status == "refuse"} == {("spark4", "rail0")}
    fact = "0 of 3 peers answer on enp1s0f0np0 with 9000 bytes, not spark1, spark2, spark3"
    assert checks("fabric.path")["spark4", "rail0"] == ("refuse", fact)


@pytest.mark.usefixtures("broken")
def test_the_next_run_repairs_what_a_run_can_and_a_boot_keeps_it():
    lever("spark3", "plug", "rail1")
    run = play(CONVERGE)
    assert run.code == 0, run.output
    assert run.changed == ["spark4: Apply netplan"]
    lever("spark4", "reboot")
    assert play(CONVERGE).changed == []
    play("playbooks/doctor.yml")
    assert statuses("fabric.rdma-write") == every_end("ok")
