"""How the checkpoint gets onto a node: the variables as a plan, and what contradicts itself in them."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.weights_source import (
    Fetch,
    Overlay,
    Prune,
    source_findings,
    source_plan,
)

ONE, TWO = "1" * 40, "2" * 40
BIG = "/models/big"
BASE = {"repo": "a/base", "revision": ONE, "directory": "base"}
LAYER = {"repo": "b/layer", "revision": TWO, "directory": "layer", "include": ["*.safetensors"]}
OVERLAY = {"base": "base", "overlay": "layer"}
PRUNE = {"base": "base", "tool": "https://x/t.git", "revision": ONE, "argv": ["prune", "{base}"], "experts": 218}


def values(**changes):
    names = {"source": "", "fetch": [], "overlay": {}, "prune": {}, "path": "/models/"}
    return {f"model_store_{name}": value for name, value in {**names, **changes}.items()}.get


def plan(**changes):
    return source_plan(values(**changes), "big")


def test_what_is_there_already_is_brought_by_nobody():
    found = plan()
    assert (found.path, found.brings, found.parts, found.sources) == (BIG, False, [], ())


@pytest.mark.parametrize(
    ("changes", "parts", "sources"),
    [
        ({"source": "/srv/big"}, [], ()),
        ({"fetch": [{"repo": "a/b", "revision": ONE}]}, [], (f"a/b@{ONE}",)),
        ({"fetch": [{"repo": "a/b", "revision": ONE, "directory": "big/"}, LAYER]}, [], (f"a/b@{ONE}",)),
        ({"overlay": OVERLAY}, ["/models/base", "/models/layer"], ()),
        ({"overlay": {"base": "/old/base/", "overlay": "layer"}}, ["/old/base", "/models/layer"], ()),
        (
            {"overlay": OVERLAY, "fetch": [BASE, LAYER]},
            ["/models/base", "/models/layer"],
            (f"a/base@{ONE}", f"b/layer@{TWO}"),
        ),
        ({"prune": PRUNE, "fetch": [BASE]}, ["/models/base"], (f"a/base@{ONE}", f"https://x/t.git@{ONE}")),
    ],
    ids=str,
)
def test_what_brings_the_checkpoint(changes, parts, sources):
    found = plan(**changes)
    assert (found.path, found.brings, found.parts, found.sources) == (BIG, True, parts, sources)


def test_a_draft_alone_does_not_bring_the_checkpoint():
    found = plan(fetch=[{"repo": "a/draft", "revision": ONE, "directory": "draft"}])
    assert (found.brings, found.sources) == (False, ())


def test_the_whole_plan():
    assert plan(fetch=[LAYER]).fetches == (Fetch("b/layer", TWO, "/models/layer", ("*.safetensors",)),)
    assert plan(overlay=OVERLAY).overlay == Overlay("/models/base", "/models/layer")
    assert plan(prune=PRUNE).prune == Prune("/models/base", "https://x/t.git", ONE, ("prune", "{base}"), 218)


PINNED = "limit: the 40 hexadecimal digits of a commit, as a branch or a tag may name other files tomorrow"
KEEP = "keep one of them, or fetch into other directories"
MEANT = "write the commit of the revision that you mean"


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({}, []),
        ({"overlay": OVERLAY, "fetch": [BASE, LAYER]}, []),
        (
            {"fetch": [{"repo": "a/b", "revision": "main"}]},
            [(f"model_store_fetch[0].revision is main; {PINNED}", MEANT)],
        ),
        (
            {"fetch": [BASE, {"repo": "a/b", "revision": ONE[:-1]}]},
            [(f"model_store_fetch[1].revision is {ONE[:-1]}; {PINNED}", MEANT)],
        ),
        (
            {"overlay": {"base": "base"}},
            [
                (
                    "model_store_overlay has no overlay",
                    "write model_store_overlay.overlay, or remove model_store_overlay",
                )
            ],
        ),
        (
            {"prune": {name: value for name, value in PRUNE.items() if name != "experts"}},
            [("model_store_prune has no experts", "write model_store_prune.experts, or remove model_store_prune")],
        ),
        (
            {"prune": {**PRUNE, "revision": "v1"}},
            [(f"model_store_prune.revision is v1; {PINNED}", MEANT)],
        ),
        (
            {"source": "/srv/big", "fetch": [{"repo": "a/b", "revision": ONE}]},
            [(f"model_store_source and model_store_fetch bring {BIG}; limit: one", KEEP)],
        ),
        (
            {"source": "/srv/big", "overlay": OVERLAY, "prune": PRUNE},
            [
                (
                    f"model_store_source and model_store_overlay and model_store_prune bring {BIG}; limit: one",
                    KEEP,
                )
            ],
        ),
        (
            {"fetch": [BASE, {**LAYER, "directory": "base/"}]},
            [("model_store_fetch brings a/base and b/layer to /models/base", "give each a directory of its own")],
        ),
        (
            {"overlay": {"base": "base", "overlay": "base"}},
            [("model_store_overlay has /models/base as base and overlay", "name two directories")],
        ),
        (
            {"overlay": {"base": "big", "overlay": "layer"}},
            [
                (
                    f"the checkpoint {BIG} is made from itself",
                    "name other directories in model_store_overlay or _prune",
                )
            ],
        ),
    ],
    ids=str,
)
def test_what_contradicts_itself(changes, findings):
    assert list(source_findings(values(**changes), "big")) == findings
