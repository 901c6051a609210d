"""Checks of the engine image: is it the one that was built and given out, and does it hold what the profile needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, rule
from .facts import ImageFacts, ImageGates, engine_runs
from .image_need import REGISTRY, ImageNeed
from .intent import Intent

# Docker's names of the architectures that `uname -m` shows.
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
# As address_plan, which is not on the nodes, names it.
RING = "ring"
# In a ring NCCL must know which device shares a subnet with the peer.
RING_NCCL = "2.30.7"
# What an import lacks without a GPU, and finds with one: the NVIDIA runtime mounts the driver's library.
DRIVER_LIBRARY = "libcuda.so"
# Digits of a commit that a build writes at least.
SHORT_COMMIT = 7

REBUILD = "build or load an image that has it, and name it in engine_image_ref"


@rule("image.due", "No image has to be built while the engine serves.", Stage.PREFLIGHT, needs="image")
def due(cluster: Cluster) -> Iterator[Check]:
    """A new image is another configuration, and that would restart the cluster."""
    for host, image, intent in cluster.having("image"):
        need = intent.image_need
        if not need.build or not engine_runs(cluster.facts[host]):
            continue
        yield Check(
            "image.due",
            host,
            Status.OK if image["build"] == need.build else Status.REFUSE,
            f"its image is of build {image['build'] or 'unknown'}, the inventory's is {need.build}",
            "no new image while the engine serves",
            "undo the change of engine_image_build, or run playbooks/stop.yml first",
        )


@rule("image.build", "The image is the one that engine_image_build describes.", Stage.IMAGE, needs="image")
def build(cluster: Cluster) -> Iterator[Check]:
    """A name says nothing about what an image was built from; the label that the build gave it does."""
    for host, image, intent in cluster.having("image"):
        if intent.image_need.build and image["id"]:
            yield Check(
                "image.build",
                host,
                Status.OK if image["build"] == intent.image_need.build else Status.REFUSE,
                f"{intent.image} is of build {image['build'] or 'unknown'}",
                intent.image_need.build,
                "run site.yml, which builds and distributes the image",
            )


@rule("image.distributed", "Every node has the image of the head.", Stage.IMAGE, needs="image")
def distributed(cluster: Cluster) -> Iterator[Check]:
    """What the head's registry gave out must have arrived, whatever name each node's store has for it."""
    for host, image, intent in cluster.having("image"):
        if intent.image_need.distribution != REGISTRY:
            continue
        head: ImageFacts | None = cluster.facts.get(intent.head, {}).get("image")
        if head is None or not head["id"]:
            continue
        good = bool(set(image["digests"]) & set(head["digests"]))
        yield Check(
            "image.distributed",
            host,
            Status.OK if good else Status.REFUSE,
            f"its engine image is {_short(image['id'])}",
            f"{_short(head['id'])}, as on {intent.head}",
            "run site.yml, which distributes the image",
        )


@rule("image.architecture", "The image is for the node's processor.", Stage.IMAGE, needs="image")
def architecture(cluster: Cluster) -> Iterator[Check]:
    """An image for another processor is pulled and loaded without a word and fails at its first command."""
    for host, image, _ in cluster.having("image"):
        platform = cluster.facts[host].get("platform")
        if image["architecture"] is None or platform is None:
            continue
        wanted = ARCHITECTURES.get(platform["architecture"], platform["architecture"])
        yield Check(
            "image.architecture",
            host,
            Status.OK if image["architecture"] == wanted else Status.REFUSE,
            f"its engine image is for {image['architecture']}",
            wanted,
            f"build or load the image for {wanted}",
        )


@rule("image.gates", "The image was looked into on this node.", Stage.IMAGE, needs="image")
def looked_into(cluster: Cluster) -> Iterator[Check]:
    """Without an answer from inside, none of the following checks says anything."""
    for host, image, _ in cluster.having("image"):
        if image["id"] is None:
            continue
        if image["gates"] is not None:
            yield Check("image.gates", host, Status.OK, f"its engine image has Python {image['gates']['python']}")
            continue
        serves, why = engine_runs(cluster.facts[host]), image["error"] or "nobody looked into it yet"
        yield Check(
            "image.gates",
            host,
            Status.WARN if serves and not image["error"] else Status.REFUSE,
            f"its engine image was not looked into: {why}",
            "an answer of the Python in it",
            "nothing is done while the engine serves" if serves else "run site.yml; it needs python3 in the image",
        )


@rule("image.imports", "What the profile needs can be imported in the image.", Stage.IMAGE, needs="image")
def imports(cluster: Cluster) -> Iterator[Check]:
    """A missing module ends the launch after the load, or breaks the capture of CUDA graphs."""
    for host, gates, intent in _inside(cluster):
        for module in intent.image_need.imports:
            error = gates["imports"].get(module, "it was not tried")
            good = not error or DRIVER_LIBRARY in error
            yield Check(
                "image.imports",
                host,
                Status.OK if good else Status.REFUSE,
                f"import {module} in its engine image: {error or 'works'}",
                "it works",
                REBUILD,
                subject=module,
            )


@rule(
    "image.patches", "The sources in the image have the patches that can be seen in them.", Stage.IMAGE, needs="image"
)
def patches(cluster: Cluster) -> Iterator[Check]:
    """The list of patches in a profile is a promise; this looks at the code."""
    for host, gates, intent in _inside(cluster):
        for mark in intent.image_need.marks:
            error = gates["marks"].get(mark.patch, "it was not looked for")
            yield Check(
                "image.patches",
                host,
                Status.REFUSE if error else Status.OK,
                f"the patch {mark.patch} in its engine image: {error or 'is there'}",
                "it is there",
                f"list {mark.patch} in engine_image_build.patches, or load an image that has it",
                subject=mark.patch,
            )


@rule(
    "image.vllm",
    "The vLLM in the image has the version and the commit that the weights need.",
    Stage.IMAGE,
    needs="image",
)
def vllm(cluster: Cluster) -> Iterator[Check]:
    """Some weights crash while they are loaded in any other state of vLLM."""
    for host, gates, intent in _inside(cluster):
        need = intent.image_need
        if need.commit:
            yield Check(
                "image.vllm",
                host,
                Status.OK if _same_commit(gates["commit"] or "", need.commit) else Status.REFUSE,
                f"vLLM {gates['vllm'] or 'none'} in its engine image is of commit {gates['commit'] or 'unknown'}",
                f"{need.commit}, which the profile's weights need",
                f"build the image with engine_image_build.vllm_commit: {need.commit}",
                subject="commit",
            )
        if need.vllm:
            yield _at_least("image.vllm", host, "vLLM in its engine image", gates["vllm"], need.vllm, REBUILD)


@rule("image.nccl", "NCCL in the image is new enough.", Stage.IMAGE, needs="image")
def nccl(cluster: Cluster) -> Iterator[Check]:
    """Read from the library that would be loaded, not from a list of packages."""
    for host, gates, intent in _inside(cluster):
        oldest = _oldest_nccl(intent)
        if oldest:
            what = f"NCCL in its engine image ({gates['nccl_from']})"
            remedy = "add a newer nvidia-nccl wheel to engine_image_build.wheels, or preload one"
            yield _at_least("image.nccl", host, what, gates["nccl"], oldest, remedy)


@rule("image.ray", "Ray is in the image when the executor is Ray.", Stage.IMAGE, needs="image")
def ray(cluster: Cluster) -> Iterator[Check]:
    """NVIDIA's newest images ship no Ray."""
    for host, gates, intent in _inside(cluster):
        if intent.image_need.ray:
            yield Check(
                "image.ray",
                host,
                Status.OK if gates["ray"] else Status.REFUSE,
                f"Ray in its engine image is {gates['ray'] or 'not installed'}",
                "any, as the profile's executor is ray",
                "add the ray wheel to engine_image_build.wheels, or choose a profile with the executor mp",
            )


@rule("image.driver", "The node's GPU driver is new enough for the image.", Stage.IMAGE, needs="image")
def driver(cluster: Cluster) -> Iterator[Check]:
    """CUDA in the image needs a driver that an update of one node may have left behind."""
    for host, _, intent in cluster.having("image"):
        platform = cluster.facts[host].get("platform")
        if intent.image_need.driver and platform is not None:
            remedy = "update DGX OS on the node"
            yield _at_least(
                "image.driver", host, "its GPU driver", platform["driver"], intent.image_need.driver, remedy
            )


@rule("image.nccl-conf", "No file in the image or in the engine's home configures NCCL.", Stage.IMAGE, needs="image")
def nccl_conf(cluster: Cluster) -> Iterator[Check]:
    """NCCL reads such a file before everything that this project tells it."""
    for host, gates, _ in _inside(cluster):
        strays = ", ".join(gates["strays"])
        yield Check(
            "image.nccl-conf",
            host,
            Status.REFUSE if strays else Status.OK,
            f"its engine image has {strays or 'no file that configures NCCL'}",
            "no such file",
            f"remove {strays}, and write its lines to nccl_env of the profile",
        )


def _inside(cluster: Cluster) -> Iterator[tuple[str, ImageGates, Intent]]:
    """The nodes whose image was looked into."""
    for host, image, intent in cluster.having("image"):
        if image["gates"] is not None:
            yield host, image["gates"], intent


def _oldest_nccl(intent: Intent) -> str:
    need: ImageNeed = intent.image_need
    ring = RING_NCCL if intent.topology == RING and intent.accelerator == "cuda" else ""
    return max(need.nccl, ring, key=_numbers)


def _at_least(id_: str, host: str, what: str, found: str | None, oldest: str, remedy: str) -> Check:
    good = found is not None and _numbers(found) >= _numbers(oldest)
    status = Status.OK if good else Status.REFUSE
    return Check(id_, host, status, f"{what} is {found or 'none'}", f"{oldest} or newer", remedy, subject="version")


def _numbers(version: str) -> tuple[int, ...]:
    """A version as numbers; what a build appends to it counts for nothing."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]|\.dev", version, maxsplit=1)[0]))


def _same_commit(found: str, wanted: str) -> bool:
    return len(found) >= SHORT_COMMIT and (wanted.startswith(found) or found.startswith(wanted))


def _short(image_id: str | None) -> str:
    return image_id.removeprefix("sha256:")[:12] if image_id else "absent"
