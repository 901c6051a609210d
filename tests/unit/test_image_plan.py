"""Which nodes lack the image, and which images of ours go."""

from __future__ import annotations

import pytest
from builders import GONE, IMAGE, IMAGE_ID, OTHER_IMAGE_ID, cluster

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_need import ImageNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.image_plan import (
    Stored,
    image_current,
    repository_of,
    to_prune,
)

SPARK2 = "spark2"
OTHER = {(SPARK2, "image", "digests"): [OTHER_IMAGE_ID], (SPARK2, "runtime", "images", IMAGE): OTHER_IMAGE_ID}
LABELLED = {(f"spark{n}", "image", "build"): "c0ffee" for n in range(1, 5)}


@pytest.mark.parametrize(
    ("need", "facts", "pinned", "current"),
    [
        (ImageNeed(), {}, IMAGE_ID, True),
        (ImageNeed(), OTHER, IMAGE_ID, False),
        (ImageNeed(), OTHER, "", True),
        (ImageNeed(), {(SPARK2, "runtime", "images", IMAGE): None}, "", False),
        (ImageNeed(distribution="registry"), {}, "", True),
        (ImageNeed(distribution="registry"), OTHER, "", False),
        (ImageNeed(distribution="registry"), {("spark1", "image", "digests"): []}, "", False),
        (ImageNeed(distribution="registry"), {("spark1", "image"): GONE}, "", False),
        (ImageNeed(distribution="registry", build="c0ffee"), {}, "", False),
        (ImageNeed(distribution="registry", build="c0ffee"), LABELLED, "", True),
        (ImageNeed(distribution="registry", build="c0ffee"), LABELLED | OTHER, "", False),
        (ImageNeed(), {(SPARK2, "image"): GONE}, "", None),
        (ImageNeed(), {(SPARK2, "runtime"): GONE}, "", None),
    ],
)
def test_whether_a_node_has_the_image(need, facts, pinned, current):
    found = cluster(facts=facts, intents={"*": {"image_need": need, "image_id": pinned}})
    assert image_current(found, SPARK2) is current


def image(number, *names, ours=True):
    return Stored(f"sha256:{number}", names, f"2026-01-0{number}T00:00:00Z", ours)


OURS = ("own", "127.0.0.1:5055/sparkwright/engine")


@pytest.mark.parametrize(
    ("images", "used", "current", "keep", "gone"),
    [
        ([image(1), image(2), image(3)], [], "sha256:3", 2, [1]),
        ([image(1), image(2), image(3)], [], "sha256:3", 1, [2, 1]),
        ([image(1), image(2), image(3)], [], "sha256:3", 3, []),
        ([image(1), image(2), image(3)], [], "sha256:1", 1, [3, 2]),
        ([image(1), image(2), image(3)], ["sha256:2"], "sha256:3", 1, [1]),
        ([image(1, ours=False), image(2), image(3)], [], "sha256:3", 1, [2]),
        ([image(1, "own:1"), image(2, "own:2"), image(3)], [], "sha256:3", 1, [2, 1]),
        ([image(1, "keep:1"), image(2), image(3)], [], "sha256:3", 1, [2]),
        ([image(1, "own:1", "keep:1"), image(2), image(3)], [], "sha256:3", 1, [2]),
        ([image(1, "127.0.0.1:5055/sparkwright/engine:1"), image(3)], [], "sha256:3", 1, [1]),
        ([image(1, "127.0.0.1:6000/sparkwright/engine:1"), image(3)], [], "sha256:3", 1, []),
        ([image(1), image(2)], [], "sha256:2", 0, [1]),
        ([image(1), image(2)], [], "", 1, [1]),
        ([], [], "", 2, []),
    ],
    ids=[
        "the oldest",
        "all but the current",
        "none too many",
        "the current is the oldest",
        "one in use",
        "one of others",
        "names of ours",
        "a name of the user's",
        "one of each",
        "the registry's name",
        "another registry's name",
        "the current stays whatever is asked",
        "no current one",
        "no images",
    ],
)
def test_which_images_go(images, used, current, keep, gone):
    found = to_prune(images, used, current, keep, OURS)
    assert [item.id for item in found] == [f"sha256:{number}" for number in gone]


@pytest.mark.parametrize(
    ("ref", "repository"),
    [
        ("own", "own"),
        ("own:1", "own"),
        ("a/b:1", "a/b"),
        ("host:5000/a/b", "host:5000/a/b"),
        ("host:5000/a/b:1", "host:5000/a/b"),
    ],
)
def test_a_port_is_no_tag(ref, repository):
    assert repository_of(ref) == repository
