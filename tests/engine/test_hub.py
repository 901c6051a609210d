"""The real `hf` of the role's pinned versions, driven by our module, against a stand-in for the Hub on this machine.

Run it with `pytest tests/engine/test_hub.py`; pip installs `hf` for it as the role does on a node.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hub_server import serving

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/unit"))

# Found only through the path above; whatever follows them is late as well.
from builders import INDEX_NAME, SHARD1, SHARD2, write_checkpoint  # noqa: E402
from module_runner import run_module  # noqa: E402

from ansible_collections.sparkwright.cluster.plugins.module_utils import staging  # noqa: E402
from ansible_collections.sparkwright.cluster.plugins.module_utils.checkpoint_reader import read_weights  # noqa: E402
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine  # noqa: E402
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import complete  # noqa: E402
from ansible_collections.sparkwright.cluster.plugins.modules import checkpoint_fetch  # noqa: E402

ROLE = REPO / "roles/model_store"
NEW, OLD = "a" * 40, "b" * 40


@pytest.fixture(scope="session")
def hf(tmp_path_factory):
    """`hf` in an environment of its own, installed with the arguments of the role."""
    home = tmp_path_factory.mktemp("hf") / "home"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    lock = f"--requirement={ROLE / 'files/hf-requirements.txt'}"
    pip = [str(home / "bin/pip"), "install", "--quiet", "--require-hashes", "--no-input", lock]
    subprocess.run(pip, check=True)
    return home / "bin/hf"


@pytest.fixture
def files(tmp_path):
    """A whole checkpoint as the Hub would serve it, with a file in a folder."""
    folder = write_checkpoint(tmp_path / "published")
    return {**{path.name: path.read_bytes() for path in sorted(folder.iterdir())}, "docs/notes.md": b"notes"}


@pytest.fixture
def hub(files):
    """Two revisions of one repository; the older one lacks a shard."""
    older = {name: content for name, content in files.items() if name != SHARD2}
    with serving({f"a/big@{NEW}": files, f"a/big@{OLD}": older}) as found:
        yield found


@pytest.fixture
def fetch(tmp_path, monkeypatch, hf, hub):
    """Runs the module against the stand-in."""
    monkeypatch.setattr(staging, "LOCKS", tmp_path)

    def run(check_mode=False, **changes):
        arguments = {
            "repo": "a/big",
            "revision": NEW,
            "path": str(tmp_path / "big"),
            "hf": str(hf),
            "home": str(tmp_path / "home"),
            "endpoint": hub.url,
        }
        return run_module(checkpoint_fetch.main, check_mode, **{**arguments, **changes})

    return run


def test_the_role_names_the_version_that_is_pinned(hf):
    version = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__model_store_hf_version"]
    shown = subprocess.run([str(hf), "version", "--json"], check=True, capture_output=True, text=True).stdout
    assert json.loads(shown)["version"] == version


def test_a_checkpoint_is_fetched_once(fetch, hub, files, tmp_path):
    result = fetch()
    assert (result["changed"], result["fetched"]) == (True, sum(map(len, files.values()))), result
    assert complete(read_weights(Machine(), str(tmp_path / "big")))
    assert read_weights(Machine(), str(tmp_path / "big"))["sources"] == [f"a/big@{NEW}"]
    assert (tmp_path / "big/docs/notes.md").read_bytes() == b"notes"
    assert not (tmp_path / "big.partial").exists()
    hub.asked.clear()
    assert fetch()["changed"] is False
    assert hub.asked == []


def test_what_was_published_is_kept_with_it(fetch, files, tmp_path):
    fetch()
    origin = json.loads((tmp_path / "big/.sparkwright.json").read_text())
    assert origin["files"][SHARD1] == {
        "size": len(files[SHARD1]),
        "sha256": hashlib.sha256(files[SHARD1]).hexdigest(),
    }
    assert origin["files"][INDEX_NAME]["sha256"] is None


def test_check_mode_asks_nobody(fetch, hub, tmp_path):
    assert fetch(check_mode=True)["changed"] is True
    assert (hub.asked, list(tmp_path.glob("big*"))) == ([], [])


def test_only_what_is_wanted_is_fetched_and_more_later(fetch, tmp_path):
    fetch(include=["*.json"])
    assert sorted(path.name for path in (tmp_path / "big").glob("*.*")) == [
        ".cache",
        ".sparkwright.json",
        "config.json",
        INDEX_NAME,
    ]
    result = fetch()
    assert result["changed"] is True
    assert complete(read_weights(Machine(), str(tmp_path / "big")))


def test_a_fetch_that_died_is_taken_up(fetch, hub, files, tmp_path):
    """What an earlier run has whole is not asked for again."""
    partial = tmp_path / "big.partial"
    fetch()
    (tmp_path / "big").rename(partial)
    (partial / SHARD2).unlink()
    hub.asked.clear()
    result = fetch()
    assert (result["changed"], result["fetched"]) == (True, len(files[SHARD2])), result
    bodies = {line.rpartition("/")[2] for line in hub.asked if line.startswith("GET") and "/resolve/" in line}
    assert bodies == {SHARD2}


def test_a_line_that_breaks_leaves_nothing_of_that_name(fetch, hub, tmp_path):
    hub.cut = 40
    result = fetch()
    assert result["failed"]
    assert not (tmp_path / "big").exists()
    hub.cut = 0
    assert fetch()["changed"] is True
    assert complete(read_weights(Machine(), str(tmp_path / "big")))


def test_a_hub_that_is_away_is_no_success(fetch, tmp_path):
    """`hf download` says that all is well when it finds a directory and no hub."""
    (tmp_path / "big.partial").mkdir()
    (tmp_path / "big.partial/config.json").write_text("{}")
    result = fetch(endpoint="http://127.0.0.1:9")
    assert result["failed"]
    assert result["msg"].startswith(f"hf models of a/big@{NEW} ended with 1: ")
    assert not (tmp_path / "big").exists()


def test_another_revision_is_refused_and_stays(fetch, tmp_path):
    assert fetch(revision=OLD)["changed"] is True
    before = sorted((tmp_path / "big").iterdir())
    assert fetch()["msg"] == (
        f"{tmp_path}/big: it was made from a/big@{OLD}; limit: a/big@{NEW}; remedy: move it away, or pin what it is"
    )
    assert sorted((tmp_path / "big").iterdir()) == before


def test_a_revision_that_does_not_exist_is_said(fetch, tmp_path):
    result = fetch(revision="c" * 40)
    assert result["msg"].startswith(f"hf models of a/big@{'c' * 40} ended with 1: ")
    assert not list(tmp_path.glob("big*"))


def test_a_directory_that_says_nothing_is_adopted_under_the_unfinished_name(fetch, hub, files, tmp_path):
    """Who has fetched it before us keeps what is right: `hf` compares hashes."""
    write_checkpoint(tmp_path / "big")
    (tmp_path / "big" / SHARD2).write_bytes(files[SHARD2][:-1] + b"?")
    message = fetch()["msg"]
    assert f"remedy: move it away, or name it {tmp_path}/big.partial to have it compared and completed" in message
    (tmp_path / "big").rename(tmp_path / "big.partial")
    hub.asked.clear()
    assert fetch()["changed"] is True
    assert (tmp_path / "big" / SHARD2).read_bytes() == files[SHARD2]
    bodies = {line.rpartition("/")[2] for line in hub.asked if line.startswith("GET") and "/resolve/" in line}
    assert SHARD2 in bodies
    assert SHARD1 not in bodies


def test_a_lost_shard_is_fetched_again(fetch, tmp_path):
    fetch()
    (tmp_path / "big" / SHARD1).unlink()
    assert fetch(check_mode=True)["lacking"] == [SHARD1]
    assert fetch()["lacking"] == [SHARD1]
    assert complete(read_weights(Machine(), str(tmp_path / "big")))


def test_a_disk_without_room_is_refused_with_both_numbers(fetch, files, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    need = sum(map(len, files.values()))
    assert fetch()["msg"] == (
        f"{tmp_path}/big.partial: {need} bytes of a/big@{NEW} are to come; limit: 10 bytes, which are free; remedy:"
        " free that much, or set model_store_path"
    )


def test_the_token_opens_the_door_and_is_not_shown(fetch, hub):
    hub.token = "hf_" + "s" * 34
    assert fetch()["failed"]
    result = fetch(token=hub.token)
    assert result["changed"] is True
    assert hub.token not in json.dumps(result)
