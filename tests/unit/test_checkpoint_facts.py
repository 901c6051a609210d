"""The module that reads a checkpoint."""

from __future__ import annotations

import pytest
from builders import SHARD1, SHARD2, write_checkpoint
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.modules import checkpoint_facts


def test_a_whole_checkpoint(tmp_path):
    found = run_module(checkpoint_facts.main, path=str(write_checkpoint(tmp_path)))
    assert (found["changed"], found["complete"]) == (False, True)
    assert (found["missing"], found["damaged"], found["surplus"]) == ([], [], [])
    assert found["checkpoint"]["split"] + found["checkpoint"]["repeated"] == 5 * 64
    assert len(found["fingerprint"]) == 12


@pytest.mark.parametrize(
    ("harm", "kind", "name"),
    [
        (lambda path: (path / SHARD1).unlink(), "missing", SHARD1),
        (lambda path: (path / SHARD2).write_bytes(b""), "damaged", SHARD2),
        (lambda path: (path / "old.safetensors").write_bytes(b""), "surplus", "old.safetensors"),
    ],
    ids=["missing", "damaged", "surplus"],
)
def test_what_is_wrong_is_named(tmp_path, harm, kind, name):
    path = write_checkpoint(tmp_path)
    harm(path)
    found = run_module(checkpoint_facts.main, path=str(path))
    assert found[kind] == [name]
    assert found["complete"] is (kind == "surplus")


def test_a_directory_without_an_index_has_no_fingerprint(tmp_path):
    found = run_module(checkpoint_facts.main, path=str(tmp_path))
    assert (found["complete"], found["fingerprint"]) == (False, None)
    assert found["checkpoint"]["error"] == "model.safetensors.index.json is not there"
