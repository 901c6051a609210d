"""Manifests: what is hashed again, what a hash must be, and what differs."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.manifest import (
    EMPTY,
    compare,
    current,
    due,
    dump_manifest,
    own_hashes,
    parse_manifest,
    renewed,
    unit_argv,
    unreadable,
)

PATH = "/m/big"
A, B = (10, 1_000), (20, 2_000)
STATS = {"a": A, "b": B}


def entry(stat, sha256, wanted=None):
    return {"size": stat[0], "mtime": stat[1], "sha256": sha256, "wanted": wanted or sha256}


MANIFEST = {"path": PATH, "files": {"a": entry(A, "aa"), "b": entry(B, "bb")}}


def test_what_is_written_is_read_again():
    assert parse_manifest(dump_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 1, "path": "x"}', '{"schema": 9, "path": "", "files": {}}']
)
def test_a_file_of_others_is_an_empty_manifest(text):
    assert parse_manifest(text) == EMPTY


@pytest.mark.parametrize(
    ("path", "stats", "names"),
    [
        (PATH, STATS, []),
        (PATH, {"a": A}, []),
        (PATH, {**STATS, "a": (11, 1_000)}, ["a"]),
        (PATH, {**STATS, "b": (20, 2_001)}, ["b"]),
        (PATH, {**STATS, "c": A}, ["c"]),
        ("/m/other", STATS, ["a", "b"]),
    ],
)
def test_a_file_is_hashed_again_when_its_size_or_time_changed(path, stats, names):
    assert due(MANIFEST, path, stats) == names
    assert current(MANIFEST, path, stats) is (names == [])


LATER = (10, 9_000)


@pytest.mark.parametrize(
    ("manifest", "stats", "hashes", "published", "files"),
    [
        (EMPTY, STATS, {"a": "aa", "b": "bb"}, {}, MANIFEST["files"]),
        (MANIFEST, STATS, {}, {}, MANIFEST["files"]),
        # Touched, and the same.
        (MANIFEST, {**STATS, "a": LATER}, {"a": "aa"}, {}, {**MANIFEST["files"], "a": entry(LATER, "aa")}),
        # A byte turned over: the first hash stays the right one.
        (MANIFEST, {**STATS, "a": LATER}, {"a": "xx"}, {}, {**MANIFEST["files"], "a": entry(LATER, "xx", "aa")}),
        # What was published counts from the first hash on.
        (EMPTY, {"a": A}, {"a": "xx"}, {"a": {"size": 10, "sha256": "aa"}}, {"a": entry(A, "xx", "aa")}),
        (EMPTY, {"a": A}, {"a": "xx"}, {"a": {"size": 10, "sha256": None}}, {"a": entry(A, "xx")}),
        # What is gone is not forgotten.
        (MANIFEST, {"a": A}, {}, {}, MANIFEST["files"]),
        ({**MANIFEST, "path": "/m/other"}, {"a": A}, {"a": "xx"}, {}, {"a": entry(A, "xx")}),
    ],
    ids=["new", "unchanged", "touched", "corrupt", "not as published", "small", "lost", "of another directory"],
)
def test_the_next_manifest(manifest, stats, hashes, published, files):
    assert renewed(manifest, PATH, stats, hashes, published) == {"path": PATH, "files": files}


SIZES = {"a": 10, "b": 20}


@pytest.mark.parametrize(
    ("sizes", "hashes", "wrong"),
    [
        (SIZES, {}, {}),
        (SIZES, {"a": "aa", "b": "bb"}, {}),
        (SIZES, {"a": "aa", "b": "xx"}, {"corrupt": ["b"]}),
        ({"a": 10}, {"a": "aa"}, {"missing": ["b"]}),
        ({"a": 10, "b": 19}, {}, {"truncated": ["b"]}),
        ({**SIZES, "c": 1}, {}, {"surplus": ["c"]}),
    ],
)
def test_what_differs_from_a_manifest(sizes, hashes, wrong):
    nothing = {"missing": [], "surplus": [], "truncated": [], "corrupt": []}
    counts = {"error": None, "files": 2, "hashed": len(hashes)}
    assert compare(MANIFEST, sizes, hashes) == {**nothing, **counts, **wrong}


def test_the_directory_of_the_manifest_is_judged_by_what_was_found_there():
    bad = {"path": PATH, "files": {"a": entry(A, "xx", "aa"), "b": entry(B, "bb")}}
    assert compare(bad, SIZES, own_hashes(bad, SIZES))["corrupt"] == ["a"]
    assert unreadable("no")["error"] == "no"


def test_the_unit_yields_to_everything_else():
    argv = unit_argv("u.service", "/lib", PATH, "/r.json")
    assert argv[0] == "systemd-run"
    assert {"--unit=u.service", "--property=IOSchedulingClass=idle", "--property=Nice=19"} <= set(argv)
    assert argv[-5:] == ["/usr/bin/python3", "-m", "sparkwright.manifest_job", PATH, "/r.json"]
