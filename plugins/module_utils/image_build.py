"""From the pins of `engine_image_build` to a build context: a Dockerfile, its files, and the options of `docker build`.

The layers are in the order in which things change: the base, vLLM at a commit, wheels, then one small pair of layers
for each patch. So a line changed in the last patch makes one small layer anew, and nothing else travels to the nodes.
Commands are lists, and what stands in them was checked against the patterns below.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .image_need import ARCHIVE, AUTO, LABEL_BUILD, REGISTRY
from .option_values import Finding
from .profile_rules import STOCK_IMAGE

Build = Mapping[str, Any]

# Where the context's files are in the image; they stay there, to say what was done.
FOLDER = "/opt/sparkwright"
REPOSITORY = "https://github.com/vllm-project/vllm.git"

DIGEST = r"sha256:[0-9a-f]{64}"
PINNED = re.compile(rf"\S+@{DIGEST}")
ID = re.compile(DIGEST)
COMMIT = re.compile(r"[0-9a-f]{40}")
URL = re.compile(r"https://[\w./~-]+")
WHEEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
VERSION = re.compile(r"[0-9][A-Za-z0-9.+!_-]*")
HASH = re.compile(r"[0-9a-f]{64}")
ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# vLLM's own way to build against the torch that is there already; the tree goes, what was built stays.
VLLM_SCRIPT = f"""#!/bin/sh
# vllm.sh REPOSITORY COMMIT: build vLLM at a commit, against the torch of the base image.
set -eu
export PIP_BREAK_SYSTEM_PACKAGES=1
git init --quiet /tmp/vllm
cd /tmp/vllm
git fetch --quiet --depth 1 "$1" "$2"
git checkout --quiet FETCH_HEAD
test "$(git rev-parse HEAD)" = "$2"
python3 use_existing_torch.py
requirements=requirements/build.txt
test -e "$requirements" || requirements=requirements/build/cuda.txt
python3 -m pip install --no-cache-dir --constraint {FOLDER}/constraints.txt --requirement "$requirements"
python3 -m pip install --no-cache-dir --constraint {FOLDER}/constraints.txt --no-build-isolation .
rm -r /tmp/vllm
"""


@dataclass(frozen=True)
class Context:
    """What `docker build` is given.

    Attributes:
        files: {name: text} of the context's folder, the Dockerfile among them.
        options: Options of `docker build`, without the tag and the folder.
        hash: A short hash of everything that the image follows from.
        base: The image that it is built on.
        base_id: The image ID that the base must have; empty where its name has a digest.
    """

    files: Mapping[str, str]
    options: tuple[str, ...]
    hash: str
    base: str
    base_id: str


def render(build: Build, patches: Mapping[str, str], tool: str) -> Context:
    """The context of a build without findings; `patches` are the texts by name, `tool` is what applies one."""
    arguments = {name: str(value) for name, value in (build.get("args") or {}).items()}
    files = {"Dockerfile": dockerfile(build), **dict(_files(build, patches, tool))}
    made = hashlib.sha256(json.dumps([files, arguments, build.get("base_id")], sort_keys=True).encode())
    mark = made.hexdigest()[:12]
    options = [
        *(part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")),
        *(("--network", build["network"]) if build.get("network") else ()),
        *("--label", f"{LABEL_BUILD}={mark}"),
    ]
    return Context(files, tuple(options), mark, build["base"], build.get("base_id") or "")


def dockerfile(build: Build) -> str:
    """The Dockerfile, without anything that only BuildKit understands."""
    return "\n".join(["# Written by Sparkwright (role engine_image).", f"FROM {build['base']}", *_steps(build)]) + "\n"


def _steps(build: Build) -> Iterator[str]:
    yield from (f"ARG {name}" for name in build.get("args") or ())
    if build.get("vllm_commit"):
        yield f"COPY constraints.txt vllm.sh {FOLDER}/"
        yield _run("sh", f"{FOLDER}/vllm.sh", build.get("vllm_repository") or REPOSITORY, build["vllm_commit"])
    if build.get("wheels"):
        yield f"COPY wheels.txt {FOLDER}/"
        pip = ("python3", "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--only-binary", ":all:")
        # Debian's and Ubuntu's Python refuses pip without it, others do not know it as an option.
        yield _run("env", "PIP_BREAK_SYSTEM_PACKAGES=1", *pip, "--require-hashes", "-r", f"{FOLDER}/wheels.txt")
    if build.get("patches"):
        yield f"COPY source_patch.py {FOLDER}/"
    for name in build.get("patches") or ():
        yield f"COPY {name}.patch {FOLDER}/patches/"
        yield _run("python3", "-B", f"{FOLDER}/source_patch.py", f"{FOLDER}/patches/{name}.patch")


def _run(*argv: str) -> str:
    return f"RUN {json.dumps(argv)}"


def _files(build: Build, patches: Mapping[str, str], tool: str) -> Iterator[tuple[str, str]]:
    if build.get("vllm_commit"):
        yield "constraints.txt", "".join(f"{line}\n" for line in build.get("constraints") or ())
        yield "vllm.sh", VLLM_SCRIPT
    if build.get("wheels"):
        yield "wheels.txt", "".join(map(_requirement, build["wheels"]))
    if build.get("patches"):
        yield "source_patch.py", tool
    yield from ((f"{name}.patch", patches[name]) for name in build.get("patches") or ())


def _requirement(wheel: Mapping[str, Any]) -> str:
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in wheel["sha256"])
    return f"{wheel['name']}=={wheel['version']} {hashes}\n"


def distribution_findings(way: str, archive: str, build: Build) -> Iterator[Finding]:
    """Whether the image can travel as it should."""
    if build and way not in (AUTO, REGISTRY):
        yield (
            f"engine_image_distribution is {way} with engine_image_build; limit: registry, as only the head builds",
            "write engine_image_distribution: registry, or `docker save` the image and name it in engine_image_archive",
        )
    if build and archive:
        yield "engine_image_build and engine_image_archive are both set; limit: one source", "remove one of them"
    if way == ARCHIVE and not archive:
        yield "engine_image_distribution is archive without engine_image_archive", "set engine_image_archive"


def build_findings(build: Build, ref: str, image: Mapping[str, Any], known: Collection[str]) -> Iterator[Finding]:
    """What is wrong with a build that is to be named `ref`, for a profile whose section is `image`.

    `known` are the patches of the project.
    """
    if ref.split(":")[0].removeprefix("docker.io/") == STOCK_IMAGE:
        yield f"engine_image_ref is {ref}, which the build would take from the stock image", "give it a name of its own"
    yield from _base(build)
    yield from _commit(build, image.get("commit", ""))
    yield from (found for wheel in build.get("wheels") or () for found in _wheel(wheel))
    yield from _arguments(build)
    yield from _patches(build, image.get("patches", ()), known)


def _base(build: Build) -> Iterator[Finding]:
    base, pin = str(build.get("base") or ""), str(build.get("base_id") or "")
    if not re.fullmatch(r"[\w./:@-]+", base):
        yield f"engine_image_build.base is {base!r}; limit: the name of an image", "name the image to build on"
    elif not PINNED.fullmatch(base) and not ID.fullmatch(pin):
        yield (
            f"engine_image_build.base {base} may be another image tomorrow; limit: a name with @sha256: and 64 hex "
            "digits, or base_id",
            "add the digest that `docker image inspect` shows in RepoDigests, or its image ID as base_id",
        )


def _commit(build: Build, wanted: str) -> Iterator[Finding]:
    commit, repository = str(build.get("vllm_commit") or ""), str(build.get("vllm_repository") or REPOSITORY)
    if commit and not COMMIT.fullmatch(commit):
        yield f"engine_image_build.vllm_commit is {commit}; limit: 40 hex digits", "write the whole commit"
    elif commit and wanted and commit != wanted:
        yield (
            f"engine_image_build.vllm_commit is {commit}; limit: {wanted}, which the profile's weights need",
            f"write vllm_commit: {wanted}",
        )
    if not URL.fullmatch(repository):
        yield f"engine_image_build.vllm_repository is {repository}; limit: an https address", "correct it"


def _wheel(wheel: Mapping[str, Any]) -> Iterator[Finding]:
    name, version, hashes = str(wheel.get("name")), str(wheel.get("version")), wheel.get("sha256") or []
    if not WHEEL_NAME.fullmatch(name) or not VERSION.fullmatch(version):
        yield f"engine_image_build.wheels has {name} {version}; limit: name and version of a package", "correct it"
    elif not hashes or not all(HASH.fullmatch(str(digest)) for digest in hashes):
        yield (
            f"engine_image_build.wheels has {name} {version} with {len(hashes)} hashes that are not all SHA-256; "
            "limit: 1 or more of 64 hex digits",
            "write the hash that the package index shows for its file, as a list in sha256",
        )


def _arguments(build: Build) -> Iterator[Finding]:
    for name in build.get("args") or {}:
        if not ARGUMENT.fullmatch(str(name)):
            yield f"engine_image_build.args has {name}; limit: letters, digits and _", "correct the name"
    if build.get("constraints") and not build.get("vllm_commit"):
        yield "engine_image_build.constraints constrains nothing without vllm_commit", "remove constraints"


def _patches(build: Build, wanted: Sequence[str], known: Collection[str]) -> Iterator[Finding]:
    listed = list(build.get("patches") or ())
    for name in listed:
        if name not in known:
            yield (
                f"engine_image_build.patches has {name}; limit: {', '.join(known)}, the files of patches/",
                "correct it",
            )
    for name in wanted:
        if name in known and name not in listed:
            yield (
                f"the profile needs the patch {name} and engine_image_build.patches does not list it",
                f"add {name} to engine_image_build.patches",
            )
