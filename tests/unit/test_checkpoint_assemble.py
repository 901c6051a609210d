"""Assembling on disk: links that are links, copies where there can be none, and runs that died at every step."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from builders import safetensors
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils import staging
from ansible_collections.sparkwright.cluster.plugins.module_utils.assembly import assemble, steps
from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import read_weights
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.origin import ORIGIN_NAME, dump_origin, parse_origin
from ansible_collections.sparkwright.cluster.plugins.module_utils.part_reader import read_part
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import (
    INDEX_NAME,
    complete,
    surplus,
)
from ansible_collections.sparkwright.cluster.plugins.modules import checkpoint_assemble
from ansible_collections.sparkwright.cluster.plugins.modules.checkpoint_assemble import current, do

NEED = {"model.layers.78.": "guessing 3 tokens ahead"}
BASE = {"model-1.safetensors": ["model.layers.0.w"], "model-2.safetensors": ["model.layers.77.w", "lm_head.w"]}
SIZE = 64


def write_part(folder, shards, origin="", index=True):
    """Whole shards with a tensor of SIZE bytes for each name."""
    folder.mkdir(parents=True)
    for shard, names in shards.items():
        places = ((name, [n * SIZE, (n + 1) * SIZE]) for n, name in enumerate(names))
        head = safetensors({name: {"dtype": "U8", "shape": [SIZE], "data_offsets": place} for name, place in places})
        (folder / shard).write_bytes(head + bytes(len(names) * SIZE))
    if index:
        weight_map = {name: shard for shard, names in shards.items() for name in names}
        (folder / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    if origin:
        (folder / ORIGIN_NAME).write_text(dump_origin([origin], {}))
    (folder / "config.json").write_text("{}")
    (folder / ".cache").mkdir()
    return folder


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A base without its MTP layer, and an overlay that has it and no index."""
    monkeypatch.setattr(staging, "LOCKS", tmp_path)
    write_part(tmp_path / "base", BASE, "a/base@1")
    write_part(tmp_path / "layer", {"mtp.safetensors": ["model.layers.78.w"]}, "b/layer@2", index=False)
    return tmp_path


def run(tree, check_mode=False, **changes):
    arguments = {
        "base": str(tree / "base"),
        "overlay": str(tree / "layer"),
        "dest": str(tree / "big"),
        "prefixes": NEED,
    }
    return run_module(checkpoint_assemble.main, check_mode, **{**arguments, **changes})


def wanted(tree):
    return assemble(read_part(str(tree / "base")), read_part(str(tree / "layer")), NEED)


def assert_whole(tree):
    big = tree / "big"
    found = read_weights(Machine(), str(big))
    assert complete(found)
    assert surplus(found) == []
    assert "model.layers.78." in found["prefixes"]
    assert found["sources"] == ["a/base@1", "b/layer@2"]
    assert json.loads((big / INDEX_NAME).read_text())["metadata"]["total_size"] == 4 * SIZE
    assert not (tree / "big.partial").exists()


def test_shards_are_links_and_take_no_disk(tree):
    result = run(tree)
    assert (result["changed"], result["linked"], result["copied"]) == (True, 4, 0)
    assert_whole(tree)
    for part, shard in (("base", "model-1.safetensors"), ("base", "model-2.safetensors"), ("layer", "mtp.safetensors")):
        assert (tree / "big" / shard).samefile(tree / part / shard)
    assert (tree / "big/config.json").samefile(tree / "layer/config.json")
    assert sorted(path.name for path in (tree / "big").iterdir())[:2] == [ORIGIN_NAME, "config.json"]


def test_a_second_run_changes_nothing(tree):
    run(tree)
    assert run(tree)["changed"] is False
    assert run(tree, check_mode=True)["changed"] is False


def test_check_mode_says_what_would_be_linked_and_links_nothing(tree):
    result = run(tree, check_mode=True)
    assert (result["changed"], result["linked"]) == (True, 4)
    assert f"mtp.safetensors <- {tree}/layer/mtp.safetensors\n" in result["diff"]["after"]
    assert not list(tree.glob("big*"))


def test_parts_that_are_still_to_come_are_no_failure_in_check_mode(tree):
    assert run(tree, check_mode=True, base=str(tree / "none"))["changed"] is True
    assert run(tree, base=str(tree / "none"))["msg"].startswith(f"{tree}/none is not there; limit: both parts")


def test_a_run_that_died_at_any_step_left_nothing_of_that_name_and_is_taken_up(tree):
    due = steps(wanted(tree), {})
    assert len(due) == 6
    for died in range(len(due) + 1):
        partial = tree / "big.partial"
        partial.mkdir()
        for step in due[:died]:
            do(step, partial)
        assert not (tree / "big").exists()
        # Nothing takes it for whole: the index is the last to come.
        assert complete(read_weights(Machine(), str(partial))) is (died == len(due))

        result = run(tree)

        assert (result["changed"], result["linked"]) == (True, max(4 - died, 0))
        assert_whole(tree)
        (tree / "big").rename(tree / f"done{died}")


def test_a_copy_that_died_half_way_is_made_anew(tree):
    (tree / "big.partial").mkdir()
    (tree / "big.partial/model-1.safetensors.half").write_bytes(b"?")
    (tree / "big.partial/model-2.safetensors").write_bytes(b"half")
    (tree / "big.partial/sub").mkdir()
    run(tree)
    assert_whole(tree)


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_no_link_can_be_the_file_is_copied_once(tree, monkeypatch, reason):
    def no_link(source, path):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "link", no_link)
    result = run(tree)
    assert (result["linked"], result["copied"]) == (0, 4)
    assert_whole(tree)
    shards = [tree / "base/model-1.safetensors", tree / "big/model-1.safetensors"]
    assert shards[0].read_bytes() == shards[1].read_bytes()
    assert not shards[0].samefile(shards[1])
    assert run(tree)["changed"] is False


@pytest.fixture
def elsewhere(tree):
    """A folder on another file system than the tests' own."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tree.stat().st_dev:
        pytest.skip("there is only one file system")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)


def test_parts_on_another_file_system_are_copied(tree, elsewhere):
    shutil.copytree(tree / "layer", elsewhere / "layer")
    result = run(tree, overlay=str(elsewhere / "layer"))
    # The base is linked, the shard and the config.json of the overlay are copied.
    assert (result["linked"], result["copied"]) == (2, 2)
    assert_whole(tree)
    assert run(tree, overlay=str(elsewhere / "layer"))["changed"] is False


def test_another_failure_of_a_link_is_said(tree, monkeypatch):
    def no_link(source, path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", no_link)
    assert "Input/output error; limit: every file in place; remedy: run it again, it goes on" in run(tree)["msg"]
    assert not (tree / "big").exists()


def test_a_disk_without_room_for_copies_is_refused_before_the_first(tree, monkeypatch):
    monkeypatch.setattr(checkpoint_assemble, "bytes_to_copy", lambda due, folder: 10**18)
    assert f"{10**18} bytes lie on another file system and are to be copied; limit: " in run(tree)["msg"]
    assert not list(tree.glob("big*"))


def test_a_truncated_shard_is_named_before_anything_is_linked(tree):
    shard = tree / "base/model-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert run(tree)["msg"].startswith(f"{tree}/base: damaged: model-2.safetensors; limit: ")
    assert not list(tree.glob("big*"))


def test_a_base_without_the_layer_is_refused(tree):
    result = run(tree, overlay=str(tree / "base2"))
    assert result["failed"]
    write_part(tree / "other", {"x.safetensors": ["model.layers.79.w"]})
    assert "neither has tensors of model.layers.78.*" in run(tree, overlay=str(tree / "other"))["msg"]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda big: (big / "notes").write_text("x"), "has also notes"),
        (lambda big: (big / "model-1.safetensors").unlink(), "lacks, or has otherwise, model-1.safetensors"),
        (lambda big: (big / INDEX_NAME).write_text("{}"), f"has another {INDEX_NAME}"),
    ],
    ids=["more", "less", "another index"],
)
def test_what_has_the_name_and_is_something_else_is_never_replaced(tree, harm, words):
    run(tree)
    harm(tree / "big")
    before = sorted(path.name for path in (tree / "big").iterdir())
    assert run(tree)["msg"] == (
        f"{tree}/big {words}; limit: what base and overlay give; remedy: remove it and run again, links take no time"
    )
    assert sorted(path.name for path in (tree / "big").iterdir()) == before


def test_links_of_the_hub_s_cache_are_followed(tree):
    """There a shard is a link to a blob, and a hard link to a link would point nowhere after a move."""
    blob = tree / "blob"
    (tree / "base/model-1.safetensors").rename(blob)
    (tree / "base/model-1.safetensors").symlink_to(blob)
    run(tree)
    assert (tree / "big/model-1.safetensors").samefile(blob)
    assert not (tree / "big/model-1.safetensors").is_symlink()


def test_an_empty_directory_of_that_name_is_no_checkpoint(tree):
    (tree / "big").mkdir()
    run(tree)
    assert_whole(tree)


def test_the_published_hashes_go_with_the_links(tree):
    published = {"model-1.safetensors": {"size": 5, "sha256": "f" * 64}}
    (tree / "base" / ORIGIN_NAME).write_text(dump_origin(["a/base@1"], published))
    run(tree)
    assert parse_origin((tree / "big" / ORIGIN_NAME).read_text())["files"] == published


def test_the_state_of_an_unfinished_directory(tree):
    folder = tree / "big.partial"
    folder.mkdir()
    (folder / "config.json").write_text("other")
    os.link(tree / "base/model-1.safetensors", folder / "model-1.safetensors")
    assert current(folder, wanted(tree)) == {"config.json": False, "model-1.safetensors": True}
