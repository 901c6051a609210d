"""Command lines of `hf`, its listing, and the disk that a fetch takes."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.hub import (
    bytes_needed,
    download_argv,
    environment,
    list_argv,
    parse_listing,
)

REV = "a" * 40
SHA = "b" * 64
ROWS = [
    {"path": "config.json", "size": 10, "blob_id": "c", "lfs": None},
    {"path": "one.safetensors", "size": 1000, "blob_id": "d", "lfs": {"size": 1000, "sha256": SHA, "pointer_size": 1}},
    {"path": "sub", "tree_id": "e", "last_commit": None},
    {"path": "sub/two.json", "size": 20, "blob_id": "f", "lfs": None},
]


def test_the_command_lines_hold_no_token():
    listed = ["/x/hf", "models", "ls", "a/b", "--revision", REV, "--recursive", "--json"]
    fetched = ["/x/hf", "download", "a/b", "--revision", REV, "--local-dir", "/m/b.partial"]
    assert list_argv("/x/hf", "a/b", REV) == listed
    assert download_argv("/x/hf", "a/b", REV, "/m/b.partial", []) == [*fetched, "--quiet"]
    patterns = ["--include", "*.json", "--include", "sub/"]
    assert download_argv("/x/hf", "a/b", REV, "/m/b.partial", ["*.json", "sub/"]) == [*fetched, *patterns, "--quiet"]


def test_the_token_is_in_the_environment_alone():
    found = environment("https://hub", "/cache/hf", "hf_secret")
    assert {name for name, value in found.items() if "hf_secret" in value} == {"HF_TOKEN"}
    assert (found["HF_ENDPOINT"], found["HF_HOME"]) == ("https://hub", "/cache/hf")
    assert "HF_TOKEN" not in environment("https://hub", "/cache/hf", "")


@pytest.mark.parametrize(
    ("include", "names"),
    [
        ([], ["config.json", "one.safetensors", "sub/two.json"]),
        (["*.json"], ["config.json", "sub/two.json"]),
        (["sub/"], ["sub/two.json"]),
        (["one.*", "config.json"], ["config.json", "one.safetensors"]),
        (["no"], []),
    ],
)
def test_the_files_that_are_wanted(include, names):
    assert list(parse_listing(json.dumps(ROWS), include)) == names


def test_a_large_file_comes_with_its_hash():
    found = parse_listing(json.dumps(ROWS), [])
    assert found["one.safetensors"] == {"size": 1000, "sha256": SHA}
    assert found["config.json"] == {"size": 10, "sha256": None}


@pytest.mark.parametrize("text", ["", "{", "5", '[{"size": 1}]', '{"error": "no"}', '[{"path": "a", "size": "x"}]'])
def test_what_is_no_listing_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_listing(text, [])


FILES = {"a": {"size": 100, "sha256": SHA}, "b": {"size": 50, "sha256": None}}


@pytest.mark.parametrize(
    ("sizes", "unfinished", "need"),
    [
        ({}, {}, 150),
        ({"a": 100}, {}, 50),
        ({"a": 100, "b": 50}, {}, 0),
        # The short one stays until the new one is whole.
        ({"a": 99, "b": 50}, {}, 100),
        ({}, {f"x.{SHA}.incomplete": 60, "b.metadata": 40}, 90),
        ({}, {f"x.{'c' * 64}.incomplete": 60}, 150),
        ({"b": 50}, {f"x.{SHA}.incomplete": 200}, 0),
    ],
)
def test_the_bytes_that_are_still_to_come(sizes, unfinished, need):
    assert bytes_needed(FILES, sizes, unfinished) == need
