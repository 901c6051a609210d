"""The module that tunes one host, below a folder instead of the root."""

from __future__ import annotations

import json
from functools import partial

import pytest
from module_runner import run_module
from trees import write

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import load, remember
from ansible_collections.sparkwright.cluster.plugins.modules import host_tuning

FILE = {"path": "/etc/sysctl.d/99-sparkwright.conf", "content": "vm.swappiness = 1\n"}
SET = {"does": "set vm.swappiness to 1", "path": "/proc/sys/vm/swappiness", "value": "1"}
RECORD = {"sysctl": {"vm/swappiness": {"value": "60"}}}
SWAPS = "Filename Type Size Used Priority\n/swap.img file 16777212 2097152 -2\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(host_tuning, "ROOT", tmp_path)
    monkeypatch.setattr(host_tuning, "remember", partial(remember, path=str(tmp_path / "before.json")))
    return write(tmp_path, {"proc/sys/vm/swappiness": "60\n"})


def tune(files=(), steps=(), check_mode=False, **more):
    return run_module(host_tuning.main, check_mode, files=list(files), steps=list(steps), **more)


def text(root, path):
    return (root / path.lstrip("/")).read_text()


def run(does, *argv, **more):
    return {"does": does, "argv": list(argv), **more}


def test_files_values_and_commands(root):
    mark = root / "mark"
    found = tune([FILE], [SET, run("leave a mark", "touch", str(mark))], record=RECORD)
    assert found["changed"]
    assert found["actions"] == ["write /etc/sysctl.d/99-sparkwright.conf", "set vm.swappiness to 1", "leave a mark"]
    assert (text(root, FILE["path"]), text(root, SET["path"]), mark.exists()) == (FILE["content"], "1\n", True)


def test_nothing_due_is_nothing_done(root):
    found = tune()
    assert (found["changed"], found["actions"], found["diff"]) == (False, [], [])


def test_what_was_there_is_recorded_once(root):
    tune([FILE], [SET], record=RECORD)
    tune([FILE | {"content": "newer\n"}], [], record={"sysctl": {"vm/swappiness": {"value": "1"}}})
    kept = load(str(root / "before.json"))
    assert kept["files"][FILE["path"]]["existed"] is False
    assert kept["sysctl"] == RECORD["sysctl"]


def test_check_mode_shows_and_does_nothing(root):
    found = tune([FILE], [SET], check_mode=True, record=RECORD)
    assert found["changed"]
    assert found["diff"] == [
        {"before_header": FILE["path"], "after_header": FILE["path"], "before": "", "after": "vm.swappiness = 1\n"},
        {"before": "", "after": "set vm.swappiness to 1\n"},
    ]
    assert text(root, SET["path"]) == "60\n"
    assert not (root / "before.json").exists()
    assert not (root / "etc").exists()


def test_a_file_that_is_not_wanted_goes(root):
    write(root, {FILE["path"].lstrip("/"): "old\n"})
    found = tune([{"path": FILE["path"]}])
    assert found["actions"] == ["remove /etc/sysctl.d/99-sparkwright.conf"]
    assert not (root / FILE["path"].lstrip("/")).exists()
    assert load(str(root / "before.json"))["files"][FILE["path"]]["existed"] is True


def test_a_command_that_fails_ends_it_in_one_line(root):
    found = tune([], [run("try", "sh", "-c", "echo no; echo way >&2; exit 3"), SET])
    assert found["failed"]
    assert found["msg"] == "try: `sh -c echo no; echo way >&2; exit 3` failed: way"
    assert text(root, SET["path"]) == "60\n"


def test_a_value_that_the_kernel_does_not_take(root):
    found = tune([], [SET | {"path": "/proc/sys/vm/absent/x"}])
    assert found["msg"] == (
        "/proc/sys/vm/absent/x does not take 1 (No such file or directory);"
        " remedy: correct the value, or take it out of host_tuning_sysctl"
    )


@pytest.mark.parametrize(("available", "drained"), [(5_000_000, True), (2_500_000, False)])
def test_memory_is_looked_at_once_more_before_swap_is_drained(root, available, drained):
    write(root, {"proc/swaps": SWAPS, "proc/meminfo": f"MemAvailable: {available} kB\n"})
    mark = root / "drained"
    step = run("drain", "sh", "-c", f"touch {mark}", "/swap.img", drains=True)
    found = tune([], [step], margin=1024**3)
    assert mark.exists() is drained
    if not drained:
        assert found["msg"] == (
            "MemAvailable is 2.38 GiB and 2.00 GiB are in swap; limit: MemAvailable above 3.00 GiB (that and a margin"
            " of 1.00); remedy: end what takes memory until 0.62 GiB more are free, or reboot the node"
        )


def test_a_record_of_another_release_stops_before_anything_is_written(root):
    (root / "before.json").write_text(json.dumps({"schema": 99}))
    found = tune([FILE], [SET])
    assert found["msg"].endswith("has schema 99, this release reads 1")
    assert not (root / "etc").exists()
