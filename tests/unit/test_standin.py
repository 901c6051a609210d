"""The lab's stand-in for the engine: it meets its ranks, counts what it answers, and notices a rank that is gone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tarfile
import time

import pytest
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import counters, generate

STANDIN = REPO / "lab" / "vm" / "standin"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "zeros"
    subprocess.run([sys.executable, REPO / "lab/vm/make_checkpoint.py", folder], check=True)
    return folder


@pytest.fixture
def ranks(checkpoint):
    """Both ranks of a cluster of two, the worker started first as the role does, and the address of the API."""
    master, api = free_port(), free_port()
    shared = ["--served-model-name", "stand-in", "--nnodes", "2", "--master-addr", "127.0.0.1"]
    argv = [sys.executable, STANDIN / "vllm", "serve", checkpoint, *shared, "--master-port", str(master)]
    worker = subprocess.Popen([*argv, "--node-rank", "1", "--headless"])
    head = subprocess.Popen([*argv, "--node-rank", "0", "--host", "127.0.0.1", "--port", str(api)])
    yield head, worker, f"http://127.0.0.1:{api}"
    for rank in (head, worker):
        rank.kill()
        rank.wait()


def ask(url: str):
    return generate(url, "stand-in", "1", tokens=3, timeout=20)


def first_answer(url: str):
    until = time.monotonic() + 20
    while True:
        try:
            return ask(url)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def test_it_says_what_it_is_and_counts_its_tokens(ranks):
    _, _, url = ranks
    assert first_answer(url).text == "This is the lab's stand-in and not a language model."
    before = counters(url, "mp", timeout=5).generated
    ask(url)
    assert counters(url, "mp", timeout=5).generated == before + 3


def test_without_a_rank_it_generates_nothing(ranks):
    _, worker, url = ranks
    first_answer(url)
    worker.kill()
    worker.wait()
    with pytest.raises(OSError, match="HTTP 500"):
        ask(url)


def test_a_rank_stays_when_its_head_goes(ranks):
    head, worker, url = ranks
    first_answer(url)
    head.kill()
    head.wait()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(1)


def test_a_missing_shard_ends_a_rank(checkpoint):
    next(checkpoint.glob("*.safetensors")).unlink()
    argv = [sys.executable, STANDIN / "vllm", "serve", checkpoint, "--served-model-name", "x", "--headless"]
    shape = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", "1"]
    done = subprocess.run([*argv, *shape], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr


def test_the_image_is_the_same_at_every_build_and_holds_the_standin(tmp_path):
    for name in ("first.tar", "second.tar"):
        subprocess.run([STANDIN / "make_image.py", "lab/standin:1", tmp_path / name], check=True)
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()
    with tarfile.open(tmp_path / "first.tar") as archive:
        (image,) = json.load(archive.extractfile("manifest.json"))
        assert image["RepoTags"] == ["lab/standin:1"]
        with tarfile.open(fileobj=archive.extractfile(image["Layers"][0])) as layer:
            script = layer.extractfile("usr/local/bin/vllm").read()
    assert script == (STANDIN / "vllm").read_bytes()
