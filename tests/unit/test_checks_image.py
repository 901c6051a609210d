"""Checks of the engine image: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

import pytest
from builders import GONE, IMAGE, IMAGE_ID, OTHER_IMAGE_ID, cluster, findings

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_need import ImageNeed, Mark

SPARK2 = "spark2"
COMMIT = "ab666069935c1f23e8ef56038b4659ac9e8f19f8"
MARK = Mark("draft-dcp", "vllm/config/speculative.py", "decode_context", "create")
BUILD = "run site.yml, which builds and distributes the image"
HAVE_IT = "remedy: build or load an image that has it, and name it in engine_image_ref"


def wanted(**need):
    return {"*": {"image_need": ImageNeed(**need), "image_id": ""}}


def found(*path, value):
    return {(SPARK2, "image", *path): value}


def everywhere(*path, value):
    return {(f"spark{n}", "image", *path): value for n in range(1, 5)}


CASES = {
    "another build": (
        wanted(build="c0ffee"),
        everywhere("build", value="c0ffee") | found("build", value="0ld"),
        f"refuse image.build spark2: {IMAGE} is of build 0ld; limit: c0ffee; remedy: {BUILD}",
    ),
    "an image that we did not build": (
        wanted(build="c0ffee"),
        everywhere("build", value="c0ffee") | found("build", value=None),
        f"refuse image.build spark2: {IMAGE} is of build unknown; limit: c0ffee; remedy: {BUILD}",
    ),
    "another image than the head's": (
        wanted(distribution="registry"),
        found("digests", value=[OTHER_IMAGE_ID]) | found("id", value=OTHER_IMAGE_ID),
        "refuse image.distributed spark2: its engine image is fedcba987654; limit: 0123456789ab, as on spark1; remedy:"
        " run site.yml, which distributes the image",
    ),
    "another processor": (
        {},
        found("architecture", value="amd64"),
        "refuse image.architecture spark2: its engine image is for amd64; limit: arm64; remedy: build or load the image"
        " for arm64",
    ),
    "nobody looked": (
        {},
        found("gates", value=None),
        "refuse image.gates spark2: its engine image was not looked into: nobody looked into it yet; limit: an answer"
        " of the Python in it; remedy: run site.yml; it needs python3 in the image",
    ),
    "no Python": (
        {},
        found("gates", value=None) | found("error", value='exec: "python3": executable file not found in $PATH'),
        'refuse image.gates spark2: its engine image was not looked into: exec: "python3": executable file not found in'
        " $PATH; limit: an answer of the Python in it; remedy: run site.yml; it needs python3 in the image",
    ),
    "a missing module": (
        wanted(imports=("b12x",)),
        everywhere("gates", "imports", value={"b12x": ""})
        | found("gates", "imports", value={"b12x": "ModuleNotFoundError: No module named 'b12x'"}),
        "refuse image.imports spark2: import b12x in its engine image: ModuleNotFoundError: No module named 'b12x';"
        f" limit: it works; {HAVE_IT}",
    ),
    "a module that nobody tried": (
        wanted(imports=("b12x",)),
        everywhere("gates", "imports", value={"b12x": ""}) | found("gates", "imports", value={}),
        f"refuse image.imports spark2: import b12x in its engine image: it was not tried; limit: it works; {HAVE_IT}",
    ),
    "a missing patch": (
        wanted(marks=(MARK,)),
        everywhere("gates", "marks", value={"draft-dcp": ""})
        | found("gates", "marks", value={"draft-dcp": "create of vllm/config/speculative.py does not have x"}),
        "refuse image.patches spark2: the patch draft-dcp in its engine image: create of vllm/config/speculative.py"
        " does not have x; limit: it is there; remedy: list draft-dcp in engine_image_build.patches, or load an image"
        " that has it",
    ),
    "another commit of vLLM": (
        wanted(commit=COMMIT),
        everywhere("gates", "commit", value=COMMIT[:9]) | found("gates", "commit", value="4ba787ec9"),
        f"refuse image.vllm spark2: vLLM 0.33.0 in its engine image is of commit 4ba787ec9; limit: {COMMIT}, which the"
        f" profile's weights need; remedy: build the image with engine_image_build.vllm_commit: {COMMIT}",
    ),
    "a commit that nobody knows": (
        wanted(commit=COMMIT),
        everywhere("gates", "commit", value=COMMIT) | found("gates", "commit", value=None),
        f"refuse image.vllm spark2: vLLM 0.33.0 in its engine image is of commit unknown; limit: {COMMIT}, which the"
        f" profile's weights need; remedy: build the image with engine_image_build.vllm_commit: {COMMIT}",
    ),
    "an old vLLM": (
        wanted(vllm="0.32.0"),
        found("gates", "vllm", value="0.31.2+cpu"),
        f"refuse image.vllm spark2: vLLM in its engine image is 0.31.2+cpu; limit: 0.32.0 or newer; {HAVE_IT}",
    ),
    "no vLLM": (
        wanted(vllm="0.32.0"),
        found("gates", "vllm", value=None),
        f"refuse image.vllm spark2: vLLM in its engine image is none; limit: 0.32.0 or newer; {HAVE_IT}",
    ),
    "an old NCCL": (
        wanted(nccl="2.30.4"),
        found("gates", "nccl", value="2.29.7"),
        "refuse image.nccl spark2: NCCL in its engine image (libnccl.so.2) is 2.29.7; limit: 2.30.4 or newer; remedy:"
        " add a newer nvidia-nccl wheel to engine_image_build.wheels, or preload one",
    ),
    "no Ray": (
        wanted(ray=True),
        everywhere("gates", "ray", value="2.60.0") | found("gates", "ray", value=None),
        "refuse image.ray spark2: Ray in its engine image is not installed; limit: any, as the profile's executor is"
        " ray; remedy: add the ray wheel to engine_image_build.wheels, or choose a profile with the executor mp",
    ),
    "an old driver": (
        wanted(driver="580"),
        {(SPARK2, "platform", "driver"): "575.57.08"},
        "refuse image.driver spark2: its GPU driver is 575.57.08; limit: 580 or newer; remedy: update DGX OS on the"
        " node",
    ),
    "no driver": (
        wanted(driver="580"),
        {(SPARK2, "platform", "driver"): None},
        "refuse image.driver spark2: its GPU driver is none; limit: 580 or newer; remedy: update DGX OS on the node",
    ),
    "a file for NCCL": (
        {},
        found("gates", "strays", value=["/etc/nccl.conf"]),
        "refuse image.nccl-conf spark2: its engine image has /etc/nccl.conf; limit: no such file; remedy: remove"
        " /etc/nccl.conf, and write its lines to nccl_env of the profile",
    ),
}


def of_the_image(lines):
    return [line for line in lines if line.split()[1].startswith("image.")]


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named_on_its_node_alone(name):
    intents, facts, line = CASES[name]
    assert of_the_image(findings(cluster(facts=facts, intents=intents))) == [line]


@pytest.mark.parametrize(
    ("need", "facts"),
    [
        ({"imports": ("b12x",)}, {"imports": {"b12x": "ImportError: libcuda.so.1: cannot open shared object file"}}),
        ({"imports": ("b12x",)}, {"imports": {"b12x": ""}}),
        ({"commit": COMMIT}, {"commit": COMMIT[:9]}),
        ({"commit": COMMIT}, {"commit": COMMIT}),
        ({"vllm": "0.32.0"}, {"vllm": "0.32.0+cpu"}),
        ({"vllm": "0.32.0"}, {"vllm": "0.33.1.dev5+gabcdef012"}),
        ({"nccl": "2.30.4"}, {"nccl": "2.30.4"}),
        ({"nccl": "2.9.9"}, {"nccl": "2.30.4"}),
        ({}, {"ray": None, "nccl": None, "vllm": None}),
    ],
)
def test_what_is_right(need, facts):
    changes = {(f"spark{n}", "image", "gates", key): value for n in range(1, 5) for key, value in facts.items()}
    assert findings(cluster(facts=changes, intents=wanted(**need))) == []


def test_a_ring_needs_an_nccl_that_knows_rings():
    ring = {"*": {"topology": "ring", "image_need": ImageNeed(nccl="2.30.4")}}
    lines = [line for line in findings(cluster(intents=ring)) if "image.nccl " in line]
    assert len(lines) == 4
    assert "is 2.30.4; limit: 2.30.7 or newer" in lines[0]


@pytest.mark.parametrize(
    ("built", "refused"), [("c0ffee", False), ("0ld", True)], ids=["the same build", "another build"]
)
def test_no_image_is_built_under_a_serving_engine(built, refused):
    facts = everywhere("build", value="c0ffee") | found("build", value=built)
    lines = findings(cluster(serving=True, facts=facts, intents=wanted(build="c0ffee")))
    due = [line for line in lines if "image.due" in line]
    assert due == [
        "refuse image.due spark2: its image is of build 0ld, the inventory's is c0ffee; limit: no new image while the"
        " engine serves; remedy: undo the change of engine_image_build, or run playbooks/stop.yml first"
    ] * int(refused)


def test_a_serving_node_that_was_not_looked_into_is_only_warned_about():
    lines = of_the_image(findings(cluster(serving=True, facts=found("gates", value=None))))
    assert [line.split()[:2] for line in lines] == [["warn", "image.gates"]]


def test_without_an_image_only_its_absence_is_said():
    nothing = {"id": None, "architecture": None, "digests": [], "build": None, "gates": None, "error": None}
    facts = {(SPARK2, "image"): nothing, (SPARK2, "runtime", "images", IMAGE): None}
    assert [line.split()[1] for line in findings(cluster(facts=facts))] == ["image.present"]


def test_two_kinds_of_stores_name_one_image_in_two_ways():
    """One names it by its content, and remembers the digest of the registry, by which the other names it."""
    digest = "sha256:" + "d" * 64
    facts = {
        (SPARK2, "runtime", "images", IMAGE): digest,
        (SPARK2, "runtime", "containerd_store"): True,
        (SPARK2, "image", "id"): digest,
        (SPARK2, "image", "digests"): [digest],
        **{(f"spark{n}", "image", "digests"): sorted([IMAGE_ID, digest]) for n in (1, 3, 4)},
    }
    for need in (ImageNeed(), ImageNeed(distribution="registry")):
        assert of_the_image(findings(cluster(facts=facts, intents={"*": {"image_id": "", "image_need": need}}))) == []


def test_where_the_head_gives_its_image_to_all_nobody_votes():
    facts = {(f"spark{n}", "runtime", "images", IMAGE): OTHER_IMAGE_ID for n in (2, 3)}
    lines = findings(cluster(facts=facts, intents=wanted(distribution="registry")))
    assert [line for line in lines if "image.equal" in line] == []


def test_a_platform_that_was_not_read_is_nothing_to_compare_with():
    lines = findings(cluster(facts={(SPARK2, "platform"): GONE}, intents=wanted(driver="580")))
    assert of_the_image(lines) == []
