"""The modules that build an image, look into it, and remove old ones, with a Docker that only remembers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_docker import FakeDocker
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils import image_probe
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_gates import answer, gates_argv
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_reader import digests, read_image
from ansible_collections.sparkwright.cluster.plugins.module_utils.machine import Machine
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_images import (
    forget_images,
    own_images,
    remember_image,
)
from ansible_collections.sparkwright.cluster.plugins.modules import image_built, image_gates, image_pruned

REF = "own:1"
FOUND = {"python": "3.12.3", "strays": [], "imports": {"json": ""}}


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A node with an empty Docker, whose own files are in `tmp_path`."""
    fake = FakeDocker(tmp_path)
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    for function in (own_images, remember_image, forget_images):
        monkeypatch.setattr(function, "__defaults__", (str(tmp_path / "images.json"),))
    return fake


# --- build ----------------------------------------------------------------------------------------------------------

BUILD = {
    "image": REF,
    "build": "c0ffee",
    "files": {"Dockerfile": "FROM base:1\n", "one.patch": "text\n"},
    "options": ["--network", "none", "--label", "sparkwright.build=c0ffee"],
    "base": "base:1",
    "base_id": "sha256:base",
}


def test_an_image_is_built_once(docker):
    docker.image("sha256:base", "base:1")
    assert run_module(image_built.main, True, **BUILD)["changed"] is True
    assert docker.calls == []

    first = run_module(image_built.main, **BUILD)
    assert (first["changed"], first["image_id"]) == (True, "sha256:built")
    assert own_images() == ["sha256:built"]
    assert docker.read()["context"] == BUILD["files"]
    (call,) = docker.calls
    assert call.startswith("build --tag own:1 --network none --label sparkwright.build=c0ffee /")

    again = run_module(image_built.main, **BUILD)
    assert (again["changed"], again["image_id"]) == (False, "sha256:built")
    assert docker.calls == [call]


@pytest.mark.parametrize(("base", "found"), [("sha256:other", "sha256:other"), (None, "not there")])
def test_another_base_is_refused(docker, base, found):
    if base:
        docker.image(base, "base:1")
    assert run_module(image_built.main, **BUILD)["msg"] == (
        f"the base image base:1 is {found}; limit: base_id sha256:base; remedy: load that image on the head, or correct"
        " engine_image_build"
    )
    assert docker.calls == []


def test_a_step_that_fails_is_named(docker):
    docker.image("sha256:base", "base:1")
    docker.put(fails={"build": "Step 3\ndraft-dcp.patch does not apply: hunk 1 fits in 0 places"})
    assert run_module(image_built.main, **BUILD)["msg"] == (
        "docker build failed: draft-dcp.patch does not apply: hunk 1 fits in 0 places; limit: every step ends well;"
        " remedy: read the lines above, correct engine_image_build or the patch, and run it again"
    )


# --- gates ----------------------------------------------------------------------------------------------------------


def test_the_container_can_do_nothing():
    argv = gates_argv("sha256:1", {"imports": ["json"]}, ["/opt/x:/opt/x:ro"])
    assert argv == [
        *("docker", "run", "--rm", "--interactive", "--name", "sparkwright-gates", "--network", "none", "--read-only"),
        *("--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--env", "HOME=/tmp", "--env", "PYTHONDONTWRITEBYTECODE=1", "--volume", "/opt/x:/opt/x:ro"),
        *("--entrypoint", "python3", "sha256:1", "-", '{"imports": ["json"]}'),
    ]


@pytest.mark.parametrize(
    ("code", "out", "err", "found", "error"),
    [
        (0, json.dumps(FOUND), "", FOUND, None),
        (0, f"a banner\n{json.dumps(FOUND)}\n", "a warning", FOUND, None),
        (0, "", "", None, "python3 in it ended with code 0 and no answer"),
        (0, "[]", "", None, "python3 in it ended with code 0 and no answer"),
        (139, "", "", None, "python3 in it ended with code 139 and no answer"),
        (127, "", "no \"python3\"\nRun 'docker run --help' for more\n", None, 'no "python3"'),
    ],
)
def test_what_the_container_answers(code, out, err, found, error):
    assert answer(code, out, err) == (found, error)


@pytest.fixture
def node(docker, tmp_path, monkeypatch):
    """A node with the image; the file of what was found is the test's own."""
    docker.image("sha256:1", REF)
    docker.put(prints={"run": json.dumps(FOUND)})
    monkeypatch.setattr(image_gates, "GATES_FILE", str(tmp_path / "gates.json"))
    monkeypatch.setattr(
        image_gates,
        "read_image",
        lambda machine, ref, key: read_from(tmp_path, ref, key),
    )
    monkeypatch.setattr(image_gates, "serves", lambda: False)
    return docker


def read_from(folder, ref, key):
    """The image of the fake, with what the test's own file says of it."""

    class Files(Machine):
        def text(self, name):
            path = folder / "gates.json"
            return path.read_text() if name.endswith("image-gates.json") and path.exists() else ""

    return read_image(Files(), ref, key)


def look(tmp_path, check_mode=False, **changes):
    asked = {"image": REF, "request": {}, "key": "k1", "program": "print()", "home": str(tmp_path / "home"), **changes}
    return run_module(image_gates.main, check_mode, **asked)


def runs(docker):
    return [call for call in docker.calls if call.startswith("run")]


def test_an_image_is_looked_into_once(node, tmp_path):
    first = look(tmp_path)
    assert (first["changed"], first["looked"], first["gates"], first["error"]) == (True, True, FOUND, None)
    again = look(tmp_path)
    assert (again["changed"], again["looked"], again["gates"]) == (False, False, FOUND)
    assert len(runs(node)) == 1


@pytest.mark.parametrize("change", ["image", "questions"])
def test_it_is_looked_into_again_after_a_change(node, tmp_path, change):
    look(tmp_path)
    if change == "image":
        node.image("sha256:1")
        node.image("sha256:2", REF)
    result = look(tmp_path, key="k2" if change == "questions" else "k1")
    assert result["looked"] is True
    assert len(runs(node)) == 2


def test_a_failed_look_is_told_and_tried_again(node, tmp_path):
    node.put(fails={"run": "OCI runtime create failed"})
    assert look(tmp_path)["error"] == "OCI runtime create failed"
    assert read_from(tmp_path, REF, "k1")["error"] == "OCI runtime create failed"
    assert look(tmp_path)["looked"] is True


def test_nothing_is_started_without_an_image_in_check_mode_or_while_the_engine_serves(node, tmp_path, monkeypatch):
    assert look(tmp_path, image="absent:1")["looked"] is False
    assert look(tmp_path, check_mode=True)["changed"] is True
    monkeypatch.setattr(image_gates, "serves", lambda: True)
    assert look(tmp_path)["looked"] is False
    assert runs(node) == []


def test_a_file_for_nccl_in_the_engines_home_is_one_in_the_image(node, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.nccl.conf").write_text("NCCL_IB_DISABLE=1\n")
    assert look(tmp_path)["gates"]["strays"] == [str(tmp_path / "home/.nccl.conf")]
    assert look(tmp_path)["looked"] is False
    (tmp_path / "home/.nccl.conf").unlink()
    assert look(tmp_path)["gates"]["strays"] == []


# --- the program that runs inside -----------------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path):
    """A folder of packages: a vLLM of a known commit that must not be imported, one that works, one that does not."""
    root = tmp_path / "site"
    (root / "vllm/config").mkdir(parents=True)
    (root / "vllm/__init__.py").write_text("raise SystemExit('imported')\n")
    (root / "vllm/_version.py").write_text("__commit_id__ = commit_id = 'g4ba787ec9'\n")
    (root / "vllm/config/speculative.py").write_text("def create():\n    dcp = 1\n\n\ndef other():\n    tp = 1\n")
    (root / "vllm-0.33.0.dist-info").mkdir()
    (root / "vllm-0.33.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    (root / "good.py").write_text("print('hello')\n")
    (root / "bad.py").write_text("import nothing_like_this\n")
    return root


def ask(root, environment=None, **request):
    whole = {"imports": [], "marks": [], "preload": "", **request}
    done = subprocess.run(
        [sys.executable, "-", json.dumps(whole)],
        input=Path(image_probe.__file__).read_text(),
        env={"PYTHONPATH": str(root), "HOME": str(root), **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_versions_are_read_without_importing_anything(packages):
    found = ask(packages)
    assert (found["vllm"], found["commit"], found["ray"]) == ("0.33.0", "4ba787ec9", None)


def test_the_commit_of_a_version(packages):
    (packages / "vllm/_version.py").unlink()
    metadata = packages / "vllm-0.33.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("0.33.0", "0.1.dev1+gab6660699.cu130"))
    assert ask(packages)["commit"] == "ab6660699"


def test_imports_are_tried(packages):
    assert ask(packages, imports=["good", "bad", "vllm"])["imports"] == {
        "good": "",
        "bad": "ModuleNotFoundError: No module named 'nothing_like_this'",
        "vllm": "imported",
    }


FILE = "vllm/config/speculative.py"


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ({"file": FILE, "text": "dcp"}, ""),
        ({"file": FILE, "within": "create", "text": "dcp"}, ""),
        ({"file": FILE, "within": "other", "text": "dcp"}, f"other of {FILE} does not have dcp"),
        ({"file": FILE, "within": "gone", "text": "dcp"}, f"{FILE} has no function gone"),
        ({"file": FILE, "text": "pcp"}, f"{FILE} does not have pcp"),
        ({"file": "vllm/gone.py", "text": "x"}, "there is no vllm/gone.py"),
        ({"file": "none/gone.py", "text": "x"}, "there is no none/gone.py"),
    ],
)
def test_patches_are_looked_for(packages, mark, why):
    assert ask(packages, marks=[{"patch": "p", "within": "", **mark}])["marks"] == {"p": why}


def test_the_nccl_that_is_preloaded_counts(packages, tmp_path):
    found = ask(packages, preload=f"/other.so:{tmp_path}/libnccl.so.2")
    assert found["nccl"] is None
    assert f"{tmp_path}/libnccl.so.2: cannot open shared object file" in found["nccl_from"]


@pytest.mark.parametrize(("number", "version"), [(23004, "2.30.4"), (22907, "2.29.7"), (23010, "2.30.10")])
def test_versions_of_nccl(number, version):
    assert image_probe.dotted(number) == version


def test_files_that_configure_nccl(packages, tmp_path):
    (packages / ".nccl.conf").write_text("")
    other = tmp_path / "other.conf"
    other.write_text("")
    assert ask(packages, {"NCCL_CONF_FILE": str(other)})["strays"] == sorted([str(other), "~/.nccl.conf"])


# --- facts ----------------------------------------------------------------------------------------------------------


def test_the_names_of_an_image(docker, tmp_path):
    docker.image("sha256:1", REF, **{"sparkwright.build": "c0ffee"})
    row = docker.read()["images"]["sha256:1"]
    row["RepoDigests"] = ["a@sha256:d", "b:5055/c@sha256:e"]
    docker.put(images={"sha256:1": row})
    assert digests(row) == ["sha256:1", "sha256:d", "sha256:e"]
    found = read_image(Machine(root=str(tmp_path)), REF, "k")
    assert (found["id"], found["build"], found["architecture"]) == ("sha256:1", "c0ffee", "amd64")
    assert (found["gates"], found["error"]) == (None, None)


def test_no_image(docker, tmp_path):
    found = read_image(Machine(root=str(tmp_path)), "absent:1", "k")
    assert found == {"id": None, "architecture": None, "digests": [], "build": None, "gates": None, "error": None}


# --- prune ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def prune(docker, tmp_path, monkeypatch):
    """Runs the module; the file of what was brought is the test's own."""
    for number in (1, 2, 3):
        docker.image(f"sha256:{number}", created=f"2026-01-0{number}")
    docker.image("sha256:4", REF, created="2026-01-04")
    docker.image("sha256:user", created="2025-01-01", **{"sparkwright.build": "inherited"})
    for number in (1, 2, 3, 4):
        remember_image(f"sha256:{number}")

    def run(check_mode=False, **changes):
        return run_module(image_pruned.main, check_mode, image=REF, keep=2, **changes)

    return run


def test_the_oldest_of_ours_go_and_the_second_time_none(prune, docker):
    assert prune(check_mode=True)["removed"] == ["sha256:2", "sha256:1"]
    assert docker.calls == []
    assert prune()["removed"] == ["sha256:2", "sha256:1"]
    assert docker.calls == ["image rm --force sha256:2", "image rm --force sha256:1"]
    assert prune()["changed"] is False


def test_one_that_a_container_uses_stays(prune, docker):
    docker.container("stopped", "sha256:1")
    assert prune()["removed"] == ["sha256:2"]


def test_one_that_docker_does_not_give_stays_and_stops_nobody(prune, docker):
    docker.put(fails={"image rm --force sha256:2": "conflict: it has dependent child images"})
    result = prune()
    assert result["removed"] == ["sha256:1"]
    assert own_images() == ["sha256:2", "sha256:3", "sha256:4"]


@pytest.mark.parametrize("listing", ["image ls", "ps"])
def test_a_docker_that_does_not_answer_loses_nothing(prune, docker, listing):
    docker.put(fails={listing: "Cannot connect to the Docker daemon"})
    assert prune()["msg"] == (
        "docker cannot list what it has: Cannot connect to the Docker daemon; limit: an answer; remedy: look at"
        " `systemctl status docker`, and run it again"
    )
    assert docker.calls == []
    assert own_images() == [f"sha256:{number}" for number in (1, 2, 3, 4)]


def test_what_was_brought_is_ours_and_remembered(prune, docker):
    docker.image("sha256:4", created="2026-01-04")
    docker.image("sha256:5", REF, created="2026-01-05")
    assert prune(brought=True)["removed"] == ["sha256:3", "sha256:2", "sha256:1"]
    assert own_images() == ["sha256:4", "sha256:5"]


def test_an_image_of_that_name_that_we_did_not_bring_is_not_ours(prune, docker):
    docker.image("sha256:4", created="2026-01-04")
    docker.image("sha256:5", REF, created="2026-01-05")
    assert prune()["removed"] == ["sha256:2", "sha256:1"]
    assert own_images() == ["sha256:3", "sha256:4"]


def test_the_registry_is_emptied_with_an_image(prune, tmp_path):
    blobs = tmp_path / "registry/docker/registry/v2/blobs"
    blobs.mkdir(parents=True)
    prune(storage=str(tmp_path / "registry"))
    assert not (tmp_path / "registry/docker").exists()
    blobs.mkdir(parents=True)
    prune(storage=str(tmp_path / "registry"))
    assert blobs.exists()
