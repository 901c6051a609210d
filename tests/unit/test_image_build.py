"""From pins to a Dockerfile, its files and the options of `docker build`, and what is refused before."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_build import (
    build_findings,
    distribution_findings,
    dockerfile,
    render,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4
COMMIT = "ab666069935c1f23e8ef56038b4659ac9e8f19f8"
HASH = "fedcba9876543210" * 4
BASE = f"nvcr.io/nvidia/pytorch@{DIGEST}"
B12X = {"name": "b12x", "version": "0.23.0", "sha256": [HASH]}
NCCL = {"name": "nvidia-nccl-cu13", "version": "2.30.4", "sha256": [HASH, "0" * 64]}
WHOLE = {
    "base": BASE,
    "vllm_commit": COMMIT,
    "constraints": ["numpy<3"],
    "wheels": [B12X, NCCL],
    "patches": ["one", "two"],
    "args": {"MAX_JOBS": 8},
    "network": "host",
}
PATCHES = {"one": "the first\n", "two": "the second\n", "three": "another\n"}
TOOL = "the program\n"
IMAGE = {"commit": COMMIT, "patches": ["one", "other"]}


def test_the_dockerfile_goes_from_what_stays_to_what_changes():
    pip = [
        *("env", "PIP_BREAK_SYSTEM_PACKAGES=1", "python3", "-m", "pip", "install", "--no-cache-dir", "--no-deps"),
        *("--only-binary", ":all:", "--require-hashes", "-r", "/opt/sparkwright/wheels.txt"),
    ]
    assert dockerfile(WHOLE).splitlines() == [
        "# Written by Sparkwright (role engine_image).",
        f"FROM {BASE}",
        "ARG MAX_JOBS",
        "COPY constraints.txt vllm.sh /opt/sparkwright/",
        f'RUN ["sh", "/opt/sparkwright/vllm.sh", "https://github.com/vllm-project/vllm.git", "{COMMIT}"]',
        "COPY wheels.txt /opt/sparkwright/",
        f"RUN {json.dumps(pip)}",
        "COPY source_patch.py /opt/sparkwright/",
        "COPY one.patch /opt/sparkwright/patches/",
        'RUN ["python3", "-B", "/opt/sparkwright/source_patch.py", "/opt/sparkwright/patches/one.patch"]',
        "COPY two.patch /opt/sparkwright/patches/",
        'RUN ["python3", "-B", "/opt/sparkwright/source_patch.py", "/opt/sparkwright/patches/two.patch"]',
    ]


def test_a_base_alone():
    context = render({"base": "base:1", "base_id": DIGEST}, PATCHES, TOOL)
    assert context.files == {"Dockerfile": "# Written by Sparkwright (role engine_image).\nFROM base:1\n"}
    assert context.options == ("--label", f"sparkwright.build={context.hash}")
    assert (context.base, context.base_id) == ("base:1", DIGEST)


def test_the_context_has_what_the_dockerfile_copies_and_no_more():
    files = render(WHOLE, PATCHES, TOOL).files
    copied = {
        word for line in files["Dockerfile"].splitlines() if line.startswith("COPY") for word in line.split()[1:-1]
    }
    assert set(files) == {"Dockerfile", *copied}
    assert files["wheels.txt"] == (
        f"b12x==0.23.0 --hash=sha256:{HASH}\nnvidia-nccl-cu13==2.30.4 --hash=sha256:{HASH} --hash=sha256:{'0' * 64}\n"
    )
    assert files["constraints.txt"] == "numpy<3\n"
    assert (files["one.patch"], files["source_patch.py"]) == (PATCHES["one"], TOOL)


def test_the_options():
    context = render(WHOLE, PATCHES, TOOL)
    assert context.options == (
        *("--build-arg", "MAX_JOBS=8", "--network", "host", "--label", f"sparkwright.build={context.hash}"),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"base": f"other@{DIGEST}"},
        {"base_id": DIGEST},
        {"vllm_commit": COMMIT[::-1]},
        {"constraints": []},
        {"wheels": [B12X]},
        {"patches": ["two", "one"]},
        {"args": {"MAX_JOBS": 4}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_pin_is_in_the_hash(change):
    assert render({**WHOLE, **change}, PATCHES, TOOL).hash != render(WHOLE, PATCHES, TOOL).hash


def test_the_text_of_a_patch_is_in_the_hash_and_that_of_another_is_not():
    before = render(WHOLE, PATCHES, TOOL).hash
    assert render(WHOLE, {**PATCHES, "two": "changed\n"}, TOOL).hash != before
    assert render(WHOLE, PATCHES, "changed\n").hash != before
    assert render(WHOLE, {**PATCHES, "three": "changed\n"}, TOOL).hash == before


def test_a_changed_last_patch_changes_nothing_that_comes_before_it():
    one, other = (render(WHOLE, {**PATCHES, "two": text}, TOOL).files for text in ("a", "b"))
    assert {name for name in one if one[name] != other[name]} == {"two.patch"}
    assert one["Dockerfile"].index("two.patch") > one["Dockerfile"].index("one.patch")


WRONG = {
    "no base": (
        {"base": None},
        "engine_image_build.base is ''; limit: the name of an image; remedy: name the image to build on",
    ),
    "a base with a line break": (
        {"base": f"x@{DIGEST}\nRUN x"},
        f"engine_image_build.base is 'x@{DIGEST}\\nRUN x'; limit: the name of an image; remedy: name the image to build"
        " on",
    ),
    "a base by its tag": (
        {"base": "vllm/vllm-openai:v0.33.0"},
        "engine_image_build.base vllm/vllm-openai:v0.33.0 may be another image tomorrow; limit: a name with @sha256:"
        " and 64 hex digits, or base_id; remedy: add the digest that `docker image inspect` shows in RepoDigests, or"
        " its image ID as base_id",
    ),
    "a short commit": (
        {"vllm_commit": "ab66606"},
        "engine_image_build.vllm_commit is ab66606; limit: 40 hex digits; remedy: write the whole commit",
    ),
    "a commit that the weights do not need": (
        {"vllm_commit": "0" * 40},
        f"engine_image_build.vllm_commit is {'0' * 40}; limit: {COMMIT}, which the profile's weights need; remedy:"
        f" write vllm_commit: {COMMIT}",
    ),
    "a repository that is none": (
        {"vllm_repository": "https://x/y; rm"},
        "engine_image_build.vllm_repository is https://x/y; rm; limit: an https address; remedy: correct it",
    ),
    "a wheel without a hash": (
        {"wheels": [{**B12X, "sha256": []}]},
        "engine_image_build.wheels has b12x 0.23.0 with 0 hashes that are not all SHA-256; limit: 1 or more of 64 hex"
        " digits; remedy: write the hash that the package index shows for its file, as a list in sha256",
    ),
    "a wheel with half a hash": (
        {"wheels": [{**B12X, "sha256": [HASH, "abc"]}]},
        "engine_image_build.wheels has b12x 0.23.0 with 2 hashes that are not all SHA-256; limit: 1 or more of 64 hex"
        " digits; remedy: write the hash that the package index shows for its file, as a list in sha256",
    ),
    "a wheel of any version": (
        {"wheels": [{**B12X, "version": ">=0"}]},
        "engine_image_build.wheels has b12x >=0; limit: name and version of a package; remedy: correct it",
    ),
    "an argument that is none": (
        {"args": {"MAX JOBS": 1}},
        "engine_image_build.args has MAX JOBS; limit: letters, digits and _; remedy: correct the name",
    ),
    "constraints for nothing": (
        {"vllm_commit": None},
        "engine_image_build.constraints constrains nothing without vllm_commit; remedy: remove constraints",
    ),
    "an unknown patch": (
        {"patches": ["one", "tow"]},
        "engine_image_build.patches has tow; limit: one, two, three, the files of patches/; remedy: correct it",
    ),
    "a patch that the profile needs": (
        {"patches": ["two"]},
        "the profile needs the patch one and engine_image_build.patches does not list it; remedy: add one to"
        " engine_image_build.patches",
    ),
}


def said(found):
    return [f"{what}; remedy: {remedy}" for what, remedy in found]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    change, line = WRONG[name]
    assert said(build_findings({**WHOLE, **change}, "own:1", IMAGE, PATCHES)) == [line]


@pytest.mark.parametrize("ref", ["vllm/vllm-openai:latest", "docker.io/vllm/vllm-openai"])
def test_the_name_of_the_stock_image_is_not_taken(ref):
    assert said(build_findings(WHOLE, ref, IMAGE, PATCHES)) == [
        f"engine_image_ref is {ref}, which the build would take from the stock image; remedy: give it a name of its own"
    ]


@pytest.mark.parametrize(
    ("build", "image"),
    [
        (WHOLE, IMAGE),
        (WHOLE, {}),
        ({"base": "local:1", "base_id": DIGEST}, {}),
        ({"base": f"192.168.1.1:5000/x/y:tag@{DIGEST}", "patches": ["one"]}, IMAGE),
    ],
)
def test_what_is_right(build, image):
    assert said(build_findings(build, "own:1", image, PATCHES)) == []


@pytest.mark.parametrize(
    ("way", "archive", "build", "lines"),
    [
        ("auto", "", {}, []),
        ("auto", "x.tar", {}, []),
        ("auto", "", WHOLE, []),
        ("registry", "", WHOLE, []),
        ("registry", "x.tar", {}, []),
        ("pull", "", {}, []),
        (
            "pull",
            "",
            WHOLE,
            [
                "engine_image_distribution is pull with engine_image_build; limit: registry, as only the head builds;"
                " remedy: write engine_image_distribution: registry, or `docker save` the image and name it in"
                " engine_image_archive"
            ],
        ),
        (
            "auto",
            "x.tar",
            WHOLE,
            ["engine_image_build and engine_image_archive are both set; limit: one source; remedy: remove one of them"],
        ),
        (
            "archive",
            "",
            {},
            ["engine_image_distribution is archive without engine_image_archive; remedy: set engine_image_archive"],
        ),
    ],
)
def test_how_an_image_can_travel(way, archive, build, lines):
    assert said(distribution_findings(way, archive, build)) == lines
