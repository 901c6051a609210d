"""A directory that has another name while something copies into it, and one that a program wrote."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time

import pytest
from builders import SHARD2, write_checkpoint
from module_runner import run_module
from test_checkpoint_assemble import write_part

from ansible_collections.sparkwright.cluster.plugins.module_utils import staging
from ansible_collections.sparkwright.cluster.plugins.module_utils.origin import ORIGIN_NAME, parse_origin
from ansible_collections.sparkwright.cluster.plugins.module_utils.staging import Staging
from ansible_collections.sparkwright.cluster.plugins.modules import checkpoint_prune, checkpoint_staged


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "LOCKS", tmp_path)


def stage(tmp_path, state, check_mode=False):
    return run_module(checkpoint_staged.main, check_mode, path=str(tmp_path / "big"), state=state)


def test_a_copy_gets_its_name_when_it_is_whole(tmp_path):
    opened = stage(tmp_path, "open")
    assert (opened["changed"], opened["partial"]) == (True, f"{tmp_path}/big.partial")
    write_checkpoint(tmp_path / "big.partial")
    assert stage(tmp_path, "whole")["changed"] is True
    assert (tmp_path / "big" / SHARD2).is_file()
    assert not (tmp_path / "big.partial").exists()
    assert stage(tmp_path, "whole")["changed"] is False


@pytest.mark.parametrize("harm", [lambda shard: shard.unlink(), lambda shard: shard.write_bytes(b"half")])
def test_half_a_copy_never_gets_it(tmp_path, harm):
    stage(tmp_path, "open")
    harm(write_checkpoint(tmp_path / "big.partial") / SHARD2)
    assert stage(tmp_path, "whole")["msg"].startswith(f"{tmp_path}/big.partial: not whole: {SHARD2}; limit: ")
    assert not (tmp_path / "big").exists()
    # The next copy goes on from there.
    assert stage(tmp_path, "open")["changed"] is False
    assert (tmp_path / "big.partial/config.json").is_file()


def test_a_checkpoint_that_is_copied_anew_loses_its_name_and_no_file(tmp_path):
    write_checkpoint(tmp_path / "big")
    (tmp_path / "big.partial").mkdir()
    (tmp_path / "big.partial/older").touch()
    assert stage(tmp_path, "open")["changed"] is True
    assert not (tmp_path / "big").exists()
    assert (tmp_path / "big.partial" / SHARD2).is_file()
    assert not (tmp_path / "big.partial/older").exists()


@pytest.mark.parametrize("state", ["open", "whole"])
def test_check_mode_renames_nothing(tmp_path, state):
    assert stage(tmp_path, state, check_mode=True)["changed"] is True
    assert list(tmp_path.iterdir()) == []


def hold(path, locks, ready):
    staging.LOCKS = locks
    with Staging(path).held():
        ready.set()
        time.sleep(0.5)


def test_two_runs_do_not_work_on_it_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=hold, args=(str(tmp_path / "big"), tmp_path, ready))
    other.start()
    ready.wait(10)
    start = time.monotonic()
    with Staging(str(tmp_path / "big")).held():
        waited = time.monotonic() - start
    other.join()
    assert waited > 0.3


# Writes a checkpoint of so many experts, numbered anew from 0, or as it is told.
TOOL = """\
import json, struct, sys
base, output, experts = sys.argv[1:]
assert json.load(open(base + "/config.json")) == {}
if experts == "0":
    sys.exit("no memory left")
names = [f"model.layers.3.mlp.experts.{n}.w" for n in range(int(experts))]
places = {name: [4 * n, 4 * n + 4] for n, name in enumerate(names)}
head = json.dumps({n: {"dtype": "U8", "shape": [4], "data_offsets": p} for n, p in places.items()}).encode()
data = struct.pack("<Q", len(head)) + head + bytes(4 * len(names))
open(output + "/model.safetensors", "wb").write(data)
index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
json.dump(index, open(output + "/model.safetensors.index.json", "w"))
"""


@pytest.fixture
def prune(tmp_path):
    """Runs the module with the program above."""
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool/prune.py").write_text(TOOL)
    names = [f"model.layers.3.mlp.experts.{n}.w" for n in range(6)]
    write_part(tmp_path / "base", {"model.safetensors": names}, "a/base@1")

    def run(check_mode=False, written="{experts}", **changes):
        arguments = {
            "base": str(tmp_path / "base"),
            "dest": str(tmp_path / "big"),
            "checkout": str(tmp_path / "tool"),
            "source": "https://x/tool.git@2",
            "argv": [sys.executable, "prune.py", "{base}", "{output}", written],
            "experts": 4,
        }
        return run_module(checkpoint_prune.main, check_mode, **{**arguments, **changes})

    return run


def test_a_pruned_checkpoint_is_proven_and_says_where_it_came_from(prune, tmp_path):
    result = prune()
    assert result["changed"] is True, result
    assert result["argv"][2:] == [str(tmp_path / "base"), str(tmp_path / "big.partial"), "4"]
    index = json.loads((tmp_path / "big/model.safetensors.index.json").read_text())["weight_map"]
    assert len(index) == 4
    origin = parse_origin((tmp_path / "big" / ORIGIN_NAME).read_text())
    assert origin["sources"] == ["a/base@1", "https://x/tool.git@2"]
    assert prune()["changed"] is False


def test_the_folder_above_need_not_be_there(prune, tmp_path):
    result = prune(dest=str(tmp_path / "new/models/big"))
    assert result["changed"] is True, result


def test_nothing_is_run_in_check_mode(prune, tmp_path):
    assert prune(check_mode=True)["changed"] is True
    assert not list(tmp_path.glob("big*"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"written": "5"}, "model.layers.3.mlp has 5; limit: a whole checkpoint with 4 experts a layer; remedy: "),
        ({"written": "0"}, "ended with 1: no memory left; limit: 0; remedy: correct model_store_prune.argv"),
    ],
    ids=["too many", "the program fails"],
)
def test_what_is_not_as_asked_gets_no_name(prune, tmp_path, changes, words):
    assert words in prune(**changes)["msg"]
    assert not (tmp_path / "big").exists()
    # What a program left behind is no part of the next attempt.
    (tmp_path / "big.partial/left.safetensors").write_bytes(b"?")
    assert prune()["changed"] is True
    assert not (tmp_path / "big/left.safetensors").exists()
