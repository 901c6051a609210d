"""Where a checkpoint directory came from."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.origin import (
    NOWHERE,
    dump_origin,
    parse_origin,
    source_name,
    unlike,
    wrong_sources,
)

FILES = {"a": {"size": 1, "sha256": None}, "b": {"size": 2, "sha256": "f" * 64}}
TEXT = dump_origin(["a/b@1"], FILES, ["*"])


def test_what_is_written_is_read_again():
    assert parse_origin(TEXT) == {"sources": ["a/b@1"], "include": ["*"], "files": FILES}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps({**json.loads(TEXT), "schema": 2}),
        json.dumps({**json.loads(TEXT), "files": [1]}),
    ],
)
def test_a_file_of_others_says_nothing(text):
    assert parse_origin(text) == NOWHERE


@pytest.mark.parametrize(
    ("found", "pinned", "wrong"),
    [
        ([], [], ""),
        (["a@1"], [], ""),
        (["a@1", "b@2"], ["b@2"], ""),
        (["a@1"], ["a@2"], "it was made from a@1"),
        ([], ["a@2"], "it does not say where it came from"),
    ],
)
def test_the_pinned_sources(found, pinned, wrong):
    assert wrong_sources(found, pinned) == wrong
    assert source_name("a/b", "1") == "a/b@1"


@pytest.mark.parametrize(
    ("sizes", "names"), [({"a": 1, "b": 2, "c": 3}, []), ({"a": 1}, ["b"]), ({"a": 2, "b": 2}, ["a"])]
)
def test_files_that_are_not_as_published(sizes, names):
    assert unlike(FILES, sizes) == names
