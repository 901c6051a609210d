"""Copies from node to node: who sends what, that the head sends every file once, and a real rsync that does it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import closing, suppress

import pytest
from builders import cluster, intent, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from wiring import planned

from ansible_collections.sparkwright.cluster.plugins.module_utils.fanout import (
    CHUNKS,
    Link,
    Pull,
    daemon_config,
    fan_out,
    lacking,
    links_of,
    needs,
    plan_copy,
    pulls_of,
    readers_of,
    room_needed,
    said,
    surplus,
    wrong_shards,
)
from ansible_collections.sparkwright.cluster.plugins.modules import weights_pull

INDEX = "big/model.safetensors.index.json"


def files(count, size=10):
    shards = {f"big/model-{n:05}.safetensors": [size, 100] for n in range(count)}
    return {**shards, INDEX: [1, 100], "big/config.json": [1, 100]}


def links(count, topology="switch"):
    return links_of(planned(count, topology))


def replay(found, lacks, head="spark1"):
    """Follow the rounds, and return how often each file was sent by each node."""
    chain = [head, *lacks]
    missing = {host: set(names) for host, names in lacks.items()}
    sent = {host: {} for host in chain}
    for one in found:
        arrived = []
        for host, pulls in one.items():
            source = chain[chain.index(host) - 1]
            for pull in pulls:
                for name in pull.files:
                    assert name not in missing.get(source, set()), f"{source} does not have {name} yet"
                    assert name in missing[host], f"{host} has {name} already"
                    sent[source][name] = sent[source].get(name, 0) + 1
                    arrived.append((host, name))
        for host, name in arrived:
            missing[host].remove(name)
    assert not any(missing.values()), "somebody still lacks something"
    return sent


@pytest.mark.parametrize("count", range(2, 9))
def test_the_head_sends_every_file_once_however_many_nodes_there_are(count):
    have, ways = files(100), links(count)
    lacks = {host: set(have) for host in ways}
    found = fan_out(have, lacks, ways)
    sent = replay(found, lacks)
    assert sent["spark1"] == dict.fromkeys(have, 1)
    assert all(set(names.values()) <= {1} for names in sent.values())
    assert len(found) == CHUNKS + count - 2


@pytest.mark.parametrize("count", range(2, 9))
def test_both_rails_carry_the_same(count):
    ways = links(count)
    for one in fan_out(files(96), {host: set(files(96)) for host in ways}, ways):
        for pulls in one.values():
            assert [pull.rail for pull in pulls] == ["rail0", "rail1"]
            assert abs(pulls[0].size - pulls[1].size) <= 10


@pytest.mark.parametrize("count", range(3, 9))
def test_in_a_ring_each_node_copies_from_its_neighbour_over_their_own_links(count):
    ways = links(count, "ring")
    for rank, (host, found) in enumerate(ways.items()):
        assert host == f"spark{rank + 2}"
        assert [link.rail for link in found] == [f"rail0.link{rank}", f"rail1.link{rank}"]
    lacks = {host: set(files(20)) for host in ways}
    assert replay(fan_out(files(20), lacks, ways), lacks)["spark1"] == dict.fromkeys(files(20), 1)


def test_the_ways_on_a_switch():
    assert links(3) == {
        "spark2": [
            Link("rail0", "192.168.100.11", "192.168.100.10"),
            Link("rail1", "192.168.101.11", "192.168.101.10"),
        ],
        "spark3": [
            Link("rail0", "192.168.100.12", "192.168.100.11"),
            Link("rail1", "192.168.101.12", "192.168.101.11"),
        ],
    }


def test_the_index_comes_last():
    ways = links(2)
    found = fan_out(files(50), {"spark2": set(files(50))}, ways)
    assert INDEX in {name for pull in found[-1]["spark2"] for name in pull.files}


NAMES = sorted(files(12))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 8),
    st.lists(st.integers(0, 10**12), min_size=len(NAMES), max_size=len(NAMES)),
    st.lists(st.sets(st.sampled_from(NAMES)), min_size=7, max_size=7),
)
def test_whatever_is_there_already_nobody_sends_a_file_twice_or_before_it_has_it(count, sizes, missing):
    have = {name: [size, 1] for name, size in zip(NAMES, sizes, strict=True)}
    ways = links(count)
    lacks = dict(zip(ways, missing, strict=False))
    found = fan_out(have, lacks, ways)
    sent = replay(found, lacks)
    assert all(times == 1 for names in sent.values() for times in names.values())
    assert all(one for one in found)
    assert len(found) <= CHUNKS + count - 2


def test_where_nothing_is_missing_there_is_no_round():
    ways = links(4)
    assert fan_out(files(5), {host: set() for host in ways}, ways) == []
    assert fan_out({}, {host: set() for host in ways}, ways) == []


def test_only_what_is_missing_is_copied_and_from_the_node_before():
    name = "big/model-00003.safetensors"
    found = fan_out(files(5), {"spark2": set(), "spark3": {name}, "spark4": set()}, links(4))
    assert found == [{"spark3": (Pull("rail0", "192.168.100.12", "192.168.100.11", (name,), 10),)}]
    ways = links(4)
    assert [link.own for link in readers_of(found, ways, "spark2", "spark1")] == ["192.168.100.12", "192.168.101.12"]
    assert readers_of(found, ways, "spark1", "spark1") == readers_of(found, ways, "spark4", "spark1") == []


def test_what_is_not_as_on_the_head():
    head = {"a": [1, 100], "b": [2, 100], "c": [3, 100]}
    own = {"a": [1, 100], "b": [2, 99], "d": [1, 1]}
    assert (lacking(own, head), surplus(own, head)) == ({"b", "c"}, ["d"])


def test_shards_are_wrong_by_their_headers_too():
    one, two = sorted(weights()["shards"])
    other = {**weights(), "shards": {one: {**weights()["shards"][one], "header": "f"}, two: weights()["shards"][two]}}
    short = {**weights(), "shards": {one: weights()["shards"][one], two: {**weights()["shards"][two], "size": 5}}}
    assert wrong_shards(weights(), weights()) == set()
    assert (wrong_shards(other, weights()), wrong_shards(short, weights())) == ({one}, {two})


def test_a_damaged_shard_of_the_right_size_and_time_is_copied_again():
    one = sorted(weights()["shards"])[0]
    listed = {f"big/{name}": [5, 100] for name in weights()["shards"]}
    damaged = {**weights()["shards"][one], "expected": None, "header": ""}
    share = {"mode": "copy", "path": "/models", "folders": ("big",)}
    intents = {"*": {"share": intent().share.from_data({"clients": (), "listen": (), **share})}}
    sections = {(f"spark{n}", "share", "files"): listed for n in range(1, 5)}
    found = cluster(facts={**sections, ("spark3", "weights", "shards", one): damaged}, intents=intents)
    assert needs("spark3", "spark1", found.intents, found.facts) == {f"big/{one}"}
    assert plan_copy(found.intents, found.facts) == [
        {"spark3": (Pull("rail0", "192.168.100.12", "192.168.100.11", (f"big/{one}",), 5),)}
    ]
    assert room_needed("spark3", "spark1", found.intents, found.facts) == 0


def test_what_a_person_is_told():
    pull = Pull("rail0", "a", "b", ("x",), 5 * 10**9)
    rounds = [{"spark2": (pull,)}, {"spark2": (pull,), "spark3": (pull, pull)}]
    assert said(rounds) == [
        "round 1 of 2: spark2 copy 5.00 GB, 0.00 of 20.00 GB are done",
        "round 2 of 2: spark2, spark3 copy 15.00 GB, 5.00 of 20.00 GB are done",
    ]
    assert [[one["size"] for one in row] for row in pulls_of(rounds, "spark3")] == [[], [5 * 10**9] * 2]


# --- with a real rsync ----------------------------------------------------------------------------------------------

needs_rsync = pytest.mark.skipif(not shutil.which("rsync"), reason="needs rsync")
SIZE = 300_000


def free_port():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return server.getsockname()[1]


@pytest.fixture
def head(tmp_path):
    """A directory with data on the head, and the port of the daemon that gives it away."""
    source = tmp_path / "head"
    for number, name in enumerate(files(4)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(bytes([number]) + os.urandom(SIZE))
        os.utime(source / name, (1_000_000_000 + number,) * 2)
    port, config = free_port(), tmp_path / "rsyncd.conf"
    text = daemon_config(str(source), ["127.0.0.1", "127.0.0.2"])
    # Who may not change the root may not become nobody either.
    config.write_text(text if os.geteuid() == 0 else text.replace("chroot = yes", "chroot = no").replace("uid", "#uid"))
    daemon = ["rsync", "--daemon", "--no-detach", f"--config={config}", "--address=127.0.0.1", f"--port={port}"]
    with subprocess.Popen(daemon, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.05)
        yield source, port
        process.terminate()


def one_pull(names, own="127.0.0.1"):
    return {"rail": "rail0", "own": own, "source": "127.0.0.1", "files": list(names), "size": 0}


def same(source, target, names):
    return all((source / name).read_bytes() == (target / name).read_bytes() for name in names)


@needs_rsync
def test_a_real_rsync_copies_what_it_is_told(head, tmp_path):
    source, port = head
    names = sorted(files(4))[:3]
    done = weights_pull.pull(one_pull(names), tmp_path / "copy", port)
    assert done.returncode == 0, done.stderr
    assert same(source, tmp_path / "copy", names)
    assert sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*.*")) == names
    for name in names:
        found = (tmp_path / "copy" / name).stat()
        assert (found.st_mode & 0o777, int(found.st_mtime)) == (0o644, int((source / name).stat().st_mtime))
    assert weights_pull.received(done.stdout) > 3 * SIZE


@needs_rsync
def test_what_was_copied_before_it_was_cut_off_is_not_sent_again(head, tmp_path):
    source, port = head
    name = sorted(files(4))[0]
    partial = tmp_path / "copy" / name
    partial.parent.mkdir(parents=True)
    partial.write_bytes((source / name).read_bytes()[: SIZE * 2 // 3])
    done = weights_pull.pull(one_pull([name]), tmp_path / "copy", port)
    assert same(source, tmp_path / "copy", [name])
    assert SIZE // 3 < weights_pull.received(done.stdout) < SIZE // 2


@needs_rsync
def test_a_corrupt_byte_is_put_right_although_size_and_time_are_those_of_the_head(head, tmp_path):
    source, port = head
    name = sorted(files(4))[0]
    damaged = tmp_path / "copy" / name
    damaged.parent.mkdir(parents=True)
    content = bytearray((source / name).read_bytes())
    content[SIZE // 2] ^= 1
    damaged.write_bytes(content)
    os.utime(damaged, ((source / name).stat().st_mtime,) * 2)
    assert weights_pull.pull(one_pull([name]), tmp_path / "copy", port).returncode == 0
    assert same(source, tmp_path / "copy", [name])


@needs_rsync
def test_nobody_else_may_read_and_nobody_may_write(head, tmp_path):
    source, port = head
    name = sorted(files(4))[0]
    other = weights_pull.pull(one_pull([name], own="127.0.0.3"), tmp_path / "copy", port)
    assert other.returncode != 0
    assert not (tmp_path / "copy" / name).exists()
    (tmp_path / "mine").write_text("x")
    argv = ["rsync", f"--port={port}", str(tmp_path / "mine"), "rsync://127.0.0.1/weights/big/config.json"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode != 0
    assert (source / "big/config.json").stat().st_size == SIZE + 1
    listed = subprocess.run(["rsync", f"--port={port}", "rsync://127.0.0.1/"], capture_output=True, check=False)
    assert b"weights" not in listed.stdout


@needs_rsync
def test_a_failure_is_one_line(head, tmp_path):
    _, port = head
    pull = one_pull(["big/absent"])
    line = weights_pull.fault("spark2", pull, weights_pull.pull(pull, tmp_path / "copy", port))
    assert line.startswith("spark2: rsync from 127.0.0.1 over rail0 ended with 23: rsync: ")
    assert "absent" in line
    assert line.endswith("limit: 1 files of this round; remedy: run site.yml again, it goes on where it stopped")
    assert "\n" not in line


def test_a_file_with_another_name_is_parted_from_it(tmp_path):
    (tmp_path / "base").write_text("base")
    os.link(tmp_path / "base", tmp_path / "work")
    (tmp_path / "alone").write_text("alone")
    weights_pull.part_names(tmp_path, ["work", "alone", "absent"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "base"]
