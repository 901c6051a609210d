"""Which nodes lack the engine image, and which images of ours may go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .checks import Cluster
from .facts import ImageFacts, has_image
from .image_need import REGISTRY


@dataclass(frozen=True)
class Stored:
    """An image on a node: ID, names, when it was made (ISO 8601), and whether it is one of ours."""

    id: str
    names: tuple[str, ...]
    created: str
    ours: bool


def image_current(cluster: Cluster, host: str) -> bool | None:
    """Whether a node needs no image: it has one, the pinned or built one, and that of the head. None: not read."""
    facts, intent = cluster.facts[host], cluster.intents[host]
    runtime, image = facts.get("runtime"), facts.get("image")
    if runtime is None or image is None:
        return None
    need = intent.image_need
    if not has_image(runtime, intent.image, intent.image_id) or (need.build and image["build"] != need.build):
        return False
    return need.distribution != REGISTRY or same_image(image, cluster.facts[intent.head].get("image"))


def same_image(one: ImageFacts, other: ImageFacts | None) -> bool:
    """Whether two nodes have the same image, also where one of them names it by its manifest and one by its content."""
    return other is not None and bool(set(one["digests"]) & set(other["digests"]))


def to_prune(
    images: Sequence[Stored], used: Collection[str], current: str, keep: int, repositories: Collection[str]
) -> list[Stored]:
    """The images that go: of ours all but the newest `keep`, the current one among these.

    One that a container uses stays, and so does one to which somebody gave a name of another repository.
    """
    ours = [image for image in images if image.ours]
    newest = sorted(ours, key=lambda image: (image.id == current, image.created, image.id), reverse=True)
    kept = {*used, current}
    return [image for image in newest[keep:] if image.id not in kept and not _named(image, repositories)]


def repository_of(ref: str) -> str:
    """The name of an image without its tag; a port belongs to the name."""
    head, slash, last = ref.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _named(image: Stored, repositories: Collection[str]) -> bool:
    return any(repository_of(name) not in repositories for name in image.names)
