"""Weights that are copied from node to node: who sends how much, cut off in the middle, a corrupt shard.

The tests build on each other. Before the first one every node has the small checkpoint from the controller. The head
gets a larger one of the same name, which all others copy from it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from driver import STATE, play

CONVERGE = "molecule/weights/converge.yml"
OTHERS = ("spark2", "spark3", "spark4")
FOLDER = "/var/lib/sparkwright/models/tiny-llama"
PADS, PAD = 8, 40_000_000
# Of rsync itself, beside the bytes of the files.
OVERHEAD = 1.02


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The variables of a copy, with a source of 320 MB more than the lab's own checkpoint."""
    source = tmp_path_factory.mktemp("weights") / "model"
    shutil.copytree(STATE / "model", source)
    source.chmod(0o755)
    for number in range(PADS):
        (source / f"pad-{number}.bin").write_bytes(os.urandom(PAD))
    return {"model_store_share": "copy", "model_store_source": str(source)}


def size_of(copy) -> int:
    return sum(file.stat().st_size for file in Path(copy["model_store_source"]).rglob("*") if file.is_file())


def received(run) -> dict[str, int]:
    """The bytes that each node copied from the one before it."""
    found = dict.fromkeys(OTHERS, 0)
    for event in run.events:
        data = event.get("event_data", {})
        if event["event"] == "runner_on_ok" and "received" in data.get("res", {}):
            found[data["host"]] += sum(data["res"]["received"].values())
    return found


def sums(on_node) -> set[str]:
    """What the nodes have, one entry when it is the same everywhere."""
    return {on_node(node, f"cd {FOLDER} && sha256sum * | sha256sum") for node in ("spark1", *OTHERS)}


def daemons(on_node) -> list[str]:
    """What is left of the daemons that let other nodes read."""
    shown = "systemctl list-units --all --plain --no-legend sparkwright-copy-*; ls /run/sparkwright 2>/dev/null || true"
    return [line for node in ("spark1", *OTHERS) for line in on_node(node, shown).splitlines()]


def test_nfs_is_refused_where_the_kernel_has_none_before_anything_is_changed():
    run = play(CONVERGE, variables={"model_store_share": "nfs"})
    assert run.code != 0
    assert run.changed == []
    limits = {"spark1": "nfsd", **dict.fromkeys(OTHERS, "nfs")}
    for node, name in limits.items():
        (line,) = [line for line in run.failures if line.startswith(f"{node}: it")]
        assert f"limit: {name} of its own for model_store_share nfs; remedy: set model_store_share to copy" in line


def test_a_copy_that_is_cut_off_ends_the_run_and_leaves_nothing_running(copy, on_node):
    # The larger one has the same shards, so what tells the head to take it is that it has none.
    on_node("spark1", f"rm -r {FOLDER}")
    # Again and again from then on: a round may be over before it is seen, and the next one is cut off then.
    wait = f"until test -e {FOLDER}/pad-3.bin; do sleep 0.01; done; while sleep 0.01; do pkill -x rsync; done"
    on_node("spark3", f"systemd-run --quiet --collect --unit=cut-off sh -c '{wait}'")
    try:
        run = play(CONVERGE, variables=copy)
    finally:
        on_node("spark3", "systemctl stop cut-off")
    assert run.code != 0
    assert any(line.startswith("spark3: rsync from 192.168.10") for line in run.failures), run.output
    assert daemons(on_node) == []
    # Nothing that is there in part looks as if it were whole.
    doctor = play("playbooks/doctor.yml", variables=copy)
    assert any(line.startswith("spark3: other or missing: tiny-llama/") for line in doctor.failures), doctor.output


def test_the_next_run_goes_on_where_it_stopped(copy, on_node):
    run = play(CONVERGE, variables=copy)
    assert run.code == 0, run.output
    brought = received(run)
    # The first chunk was whole on spark3. What the others had depends on how the rounds ran.
    assert 0 < brought["spark3"] < size_of(copy) - PAD, brought
    assert brought["spark2"] < size_of(copy) - PAD, brought
    assert len(sums(on_node)) == 1
    assert daemons(on_node) == []
    assert play(CONVERGE, variables=copy).changed == []


def test_the_head_sends_everything_once_to_three_nodes_that_have_nothing(copy, on_node):
    for node in OTHERS:
        on_node(node, f"rm -r {FOLDER}")
    head = "cat /sys/class/net/enp1s0f0np0/statistics/tx_bytes /sys/class/net/enP2p1s0f0np0/statistics/tx_bytes"
    before = [int(count) for count in on_node("spark1", head).split()]
    run = play(CONVERGE, variables=copy)
    assert run.code == 0, run.output
    sent = [int(count) - start for count, start in zip(on_node("spark1", head).split(), before, strict=True)]
    whole = size_of(copy)
    print(f"the head sent {sent} of {whole} bytes over its two rails, the nodes received {received(run)}")
    assert all(whole <= count < whole * OVERHEAD for count in received(run).values())
    # Frames have headers, and the nodes try the paths between them.
    assert whole <= sum(sent) < whole * 1.1
    assert all(count > whole * 0.3 for count in sent)
    assert len(sums(on_node)) == 1


def test_a_corrupt_shard_on_one_node_is_named_and_put_right(copy, on_node):
    shard = on_node("spark4", f"cd {FOLDER} && ls *.safetensors").splitlines()[1]
    on_node("spark4", f"printf X | dd of={FOLDER}/{shard} bs=1 seek=5000 conv=notrunc status=none")
    doctor = play("playbooks/doctor.yml", variables=copy)
    assert (
        f"spark4: other or missing: tiny-llama/{shard}; limit: all {files_of(copy)} files as on spark1; remedy: run"
        " site.yml, which copies what differs" in doctor.failures
    )
    run = play(CONVERGE, variables=copy)
    assert run.code == 0, run.output
    assert [host for host, count in received(run).items() if count] == ["spark4"]
    assert len(sums(on_node)) == 1


def files_of(copy) -> int:
    return sum(1 for file in Path(copy["model_store_source"]).rglob("*") if file.is_file())
