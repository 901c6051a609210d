"""The manifest made by its unit, for which a stand-in of systemd-run runs the same command, and what it finds."""

from __future__ import annotations

import hashlib
import json
import os
import time

import pytest
from builders import REPO, SHARD1, SHARD2, write_checkpoint
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.names import MANIFEST_FILES
from ansible_collections.sparkwright.cluster.plugins.module_utils.origin import ORIGIN_NAME, dump_origin
from ansible_collections.sparkwright.cluster.plugins.modules import checkpoint_hashes, checkpoint_manifest

# Runs what stands behind the options, as the unit would, and leaves its exit code to systemctl.
SYSTEMD_RUN = """\
#!/bin/bash
here=$(dirname "$0")
echo run >>"$here/calls"
while [[ $1 == --* ]]; do
    [[ $1 == --setenv=* ]] && export "${1#--setenv=}"
    shift
done
[ -e "$here/hang" ] && exit 0
"$@"
"""
SYSTEMCTL = """\
#!/bin/bash
[ -e "$(dirname "$0")/hang" ] && echo active || echo inactive
"""


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A checkpoint, the library as the role installs it, and systemd's two commands."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(checkpoint_manifest, "PAUSE", 0.01)
    package = tmp_path / "lib/sparkwright"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in MANIFEST_FILES:
        (package / f"{name}.py").write_bytes((REPO / f"plugins/module_utils/{name}.py").read_bytes())
    write_checkpoint(tmp_path / "big")
    (tmp_path / "big/README.md").write_text("notes")
    return tmp_path


def make(node, check_mode=False, **changes):
    arguments = {
        "path": str(node / "big"),
        "result": str(node / "manifests/big.json"),
        "unit": "sparkwright-manifest.service",
        "library": str(node / "lib"),
        "start": True,
    }
    return run_module(checkpoint_manifest.main, check_mode, **{**arguments, **changes})


def compare(node, how="headers", own=False, folder="big", **changes):
    manifest = make(node, start=False)["manifest"]
    arguments = {"path": str(node / folder), "manifest": manifest, "how": how, "own": own, **changes}
    return run_module(checkpoint_hashes.main, **arguments)["hash_report"]


def faults(report):
    return {key: value for key, value in report.items() if value and key not in ("files", "hashed")}


def flip(path, keep_time=False):
    """Turn over the last byte of a file."""
    content, stat = path.read_bytes(), path.stat()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    moment = stat.st_mtime_ns if keep_time else stat.st_mtime_ns + 10**9
    os.utime(path, ns=(moment, moment))


def test_every_file_that_an_engine_reads_is_hashed_once(node):
    assert make(node)["changed"] is True
    written = json.loads((node / "manifests/big.json").read_text())["files"]
    assert set(written) == {"config.json", "model.safetensors.index.json", SHARD1, SHARD2}
    content = (node / "big" / SHARD1).read_bytes()
    assert written[SHARD1]["sha256"] == written[SHARD1]["wanted"] == hashlib.sha256(content).hexdigest()
    assert written[SHARD1]["size"] == len(content)

    second = make(node)

    assert (second["changed"], set(second["manifest"]["files"])) == (False, set(written))
    assert (node / "bin/calls").read_text() == "run\n"


def test_check_mode_starts_nothing(node):
    assert make(node, check_mode=True)["changed"] is True
    assert make(node, check_mode=True, path=str(node / "to come"))["changed"] is True
    assert not (node / "bin/calls").exists()


def test_only_what_changed_is_hashed_again(node):
    make(node)
    known = json.loads((node / "manifests/big.json").read_text())
    known["files"][SHARD1]["sha256"] = known["files"][SHARD1]["wanted"] = "kept"
    (node / "manifests/big.json").write_text(json.dumps(known))
    moment = (node / "big" / SHARD2).stat().st_mtime_ns + 10**9
    os.utime(node / "big" / SHARD2, ns=(moment, moment))
    assert make(node)["changed"] is True
    again = json.loads((node / "manifests/big.json").read_text())["files"]
    assert again[SHARD1]["sha256"] == "kept"
    assert again[SHARD2]["mtime"] == moment


def test_a_unit_at_work_is_not_started_twice_and_is_waited_for(node):
    (node / "bin/hang").touch()
    assert make(node)["changed"] is False
    start = time.monotonic()
    message = make(node, seconds=1)["msg"]
    assert 1 <= time.monotonic() - start < 10
    assert message.startswith(f"the manifest of {node}/big is not made after 1 s; limit: ")


def test_a_unit_that_ended_without_a_manifest_is_said_at_once(node):
    assert make(node, start=False, seconds=600)["msg"].startswith(f"the manifest of {node}/big was not made; limit: ")


def test_no_manifest_compares_nothing(node):
    assert compare(node) is None


@pytest.mark.parametrize("how", ["headers", "hash"])
def test_a_whole_copy(node, how):
    make(node)
    write_checkpoint(node / "copy")
    report = compare(node, how, folder="copy")
    assert (faults(report), report["files"], report["hashed"]) == ({}, 4, 4 if how == "hash" else 0)


def shorten(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("harm", "by_size", "by_hash"),
    [
        (lambda copy: (copy / SHARD2).unlink(), {"missing": [SHARD2]}, {"missing": [SHARD2]}),
        (lambda copy: (copy / "more.json").write_text("{}"), {"surplus": ["more.json"]}, {"surplus": ["more.json"]}),
        (
            lambda copy: shorten(copy / "config.json"),
            {"truncated": ["config.json"]},
            {"truncated": ["config.json"], "corrupt": ["config.json"]},
        ),
        (lambda copy: flip(copy / SHARD1), {}, {"corrupt": [SHARD1]}),
        (lambda copy: (copy / "NOTES.md").write_text("mine"), {}, {}),
    ],
    ids=["lost", "more", "short", "a byte", "notes"],
)
def test_what_differs_in_a_copy(node, harm, by_size, by_hash):
    make(node)
    write_checkpoint(node / "copy")
    harm(node / "copy")
    assert faults(compare(node, folder="copy")) == by_size
    assert faults(compare(node, "hash", folder="copy")) == by_hash


def test_a_byte_that_turns_over_on_the_head_is_not_blessed_by_hashing_it_again(node):
    make(node)
    flip(node / "big" / SHARD1)
    assert make(node)["changed"] is True
    assert faults(compare(node, own=True)) == {"corrupt": [SHARD1]}
    write_checkpoint(node / "copy")
    assert faults(compare(node, "hash", folder="copy")) == {}


def test_one_that_left_no_trace_is_found_when_everything_is_hashed(node):
    make(node)
    flip(node / "big" / SHARD1, keep_time=True)
    assert make(node)["changed"] is False
    assert faults(compare(node, own=True)) == {}
    assert faults(compare(node, "hash", own=True)) == {"corrupt": [SHARD1]}


def test_what_was_published_with_another_hash_is_corrupt_from_the_start(node):
    size = (node / "big" / SHARD1).stat().st_size
    (node / "big" / ORIGIN_NAME).write_text(dump_origin(["a/b@1"], {SHARD1: {"size": size, "sha256": "f" * 64}}))
    make(node)
    assert faults(compare(node, own=True)) == {"corrupt": [SHARD1]}


def test_a_file_that_is_lost_on_the_head_is_missed_there(node):
    make(node)
    (node / "big/config.json").unlink()
    assert make(node)["changed"] is False
    assert faults(compare(node, own=True)) == {"missing": ["config.json"]}


def test_a_directory_that_does_not_answer_is_a_result_in_words(node, monkeypatch):
    make(node)
    monkeypatch.setattr(checkpoint_hashes, "report", lambda *_: time.sleep(30))
    assert compare(node, seconds=1)["error"] == "it was not read within 1 s"


def test_a_directory_that_cannot_be_read_is_a_result_in_words(node):
    make(node)
    assert compare(node, folder="nowhere")["error"].startswith("it cannot be read: FileNotFoundError: ")
