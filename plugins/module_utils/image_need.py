"""What the engine image must be: where it comes from, and what must hold inside of it for a profile to run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# How the image reaches the nodes, see the role engine_image.
AUTO, REGISTRY, ARCHIVE, PULL = "auto", "registry", "archive", "pull"

# The label of an image that we built: the hash of everything that it was built from.
LABEL_BUILD = "sparkwright.build"


@dataclass(frozen=True)
class Mark:
    """How a patch shows in the installed sources: the file has the text, inside of the function `within` if named."""

    patch: str
    file: str
    text: str
    within: str = ""


@dataclass(frozen=True)
class ImageNeed:
    """One node's engine image.

    `build` is the hash of what the image is built from, empty where we do not build it. `registry` is where the others
    pull from the head. `imports`, `marks`, `vllm`, `commit`, `nccl`, `driver` and `ray` are what the profile wants, see
    profiles/schema.json; the versions are the oldest that will do. `preload` is a library that the engine's environment
    preloads, `mounts` are further mounts of the engine's container.
    """

    distribution: str = PULL
    build: str = ""
    registry: str = ""
    imports: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    vllm: str = ""
    commit: str = ""
    nccl: str = ""
    driver: str = ""
    ray: bool = False
    preload: str = ""
    mounts: tuple[str, ...] = ()

    def request(self) -> dict[str, Any]:
        """What the program inside the image is asked."""
        return {"imports": list(self.imports), "marks": [asdict(mark) for mark in self.marks], "preload": self.preload}

    @property
    def key(self) -> str:
        """A short hash of all that the program's answer follows from, besides the image."""
        parts = json.dumps([self.request(), list(self.mounts)], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()[:12]

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ImageNeed:
        """The need that `asdict` made of one. Raises TypeError when the data are of another version."""
        given = dict(data)
        for name in ("imports", "mounts"):
            given[name] = tuple(given.get(name, ()))
        given["marks"] = tuple(Mark(**mark) for mark in given.get("marks", ()))
        return cls(**given)


def distribution_of(asked: str, archive: str, build: Mapping[str, Any]) -> str:
    """How the image travels when the inventory leaves it open."""
    if asked != AUTO:
        return asked
    return REGISTRY if build else ARCHIVE if archive else PULL


def need_of(profile: Mapping[str, Any], **inventory: Any) -> ImageNeed:
    """The need of a profile; `inventory` are the fields that it does not decide."""
    image = profile.get("image", {})
    gates = image.get("gates", {})
    return ImageNeed(
        imports=tuple(gates.get("imports", ())),
        marks=tuple(Mark(**mark) for mark in gates.get("marks", ())),
        vllm=gates.get("vllm", ""),
        commit=image.get("commit", ""),
        nccl=gates.get("nccl", ""),
        driver=gates.get("driver", ""),
        ray=profile["executor"] == "ray",
        preload=str(profile.get("engine_env", {}).get("LD_PRELOAD", "")),
        **inventory,
    )
