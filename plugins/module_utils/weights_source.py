"""How the checkpoint gets onto a node: the variables of model_store as a plan, and what contradicts itself in them.

At most one thing makes the directory that the profile names: a copy from the controller, a fetch from Hugging Face, an
assembly of a base and an overlay, or a pruning. What these need may be fetched into directories beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .hub import REVISION
from .option_values import Finding
from .origin import source_name

Value = Callable[[str], Any]


@dataclass(frozen=True)
class Fetch:
    """A repository of Hugging Face at one revision, and the directory that it is fetched into."""

    repo: str
    revision: str
    path: str
    include: tuple[str, ...] = ()


@dataclass(frozen=True)
class Overlay:
    """Two directories that become one."""

    base: str
    overlay: str


@dataclass(frozen=True)
class Prune:
    """A program that writes a smaller checkpoint; `experts` are how many of each layer it leaves."""

    base: str
    tool: str
    revision: str
    argv: tuple[str, ...]
    experts: int


@dataclass(frozen=True)
class SourcePlan:
    """All that brings a checkpoint onto a node; `path` is its directory there."""

    path: str
    pushed: bool
    fetches: tuple[Fetch, ...] = ()
    overlay: Overlay | None = None
    prune: Prune | None = None

    @property
    def parts(self) -> list[str]:
        """The directories that the checkpoint is made from."""
        return [self.overlay.base, self.overlay.overlay] if self.overlay else [self.prune.base] if self.prune else []

    @property
    def brings(self) -> bool:
        """Whether a run brings the checkpoint itself, so that it need not be there before."""
        return self.pushed or bool(self.parts) or any(fetch.path == self.path for fetch in self.fetches)

    @property
    def sources(self) -> tuple[str, ...]:
        """What the checkpoint must have been made from, as far as that is pinned."""
        wanted = self.parts or [self.path]
        fetched = [source_name(fetch.repo, fetch.revision) for fetch in self.fetches if fetch.path in wanted]
        return (*fetched, *([source_name(self.prune.tool, self.prune.revision)] if self.prune else []))


def source_plan(value: Value, directory: str) -> SourcePlan:
    """The plan of one node; `value` gives a variable or its default, `directory` is the profile's."""
    root = str(value("model_store_path"))
    overlay, prune = value("model_store_overlay") or {}, value("model_store_prune") or {}
    return SourcePlan(
        path=_below(root, directory),
        pushed=bool(value("model_store_source")),
        fetches=tuple(_fetch(root, entry, directory) for entry in value("model_store_fetch") or ()),
        overlay=Overlay(_below(root, overlay["base"]), _below(root, overlay["overlay"])) if overlay else None,
        prune=_prune(root, prune) if prune else None,
    )


def _fetch(root: str, entry: Mapping[str, Any], directory: str) -> Fetch:
    path = _below(root, entry.get("directory") or directory)
    return Fetch(entry["repo"], entry["revision"], path, tuple(entry.get("include") or ()))


def _prune(root: str, entry: Mapping[str, Any]) -> Prune:
    argv = tuple(map(str, entry["argv"]))
    return Prune(_below(root, entry["base"]), entry["tool"], entry["revision"], argv, entry["experts"])


def _below(root: str, directory: str) -> str:
    """A directory below the root; an absolute one is taken as it is."""
    return directory.rstrip("/") if directory.startswith("/") else f"{root.rstrip('/')}/{directory.rstrip('/')}"


def source_findings(value: Value, directory: str) -> Iterator[Finding]:
    """What is wrong with the variables of one node, whose types are right."""
    lacking = list(_lacking(value))
    yield from lacking
    if lacking:
        return
    yield from _revisions(value)
    plan = source_plan(value, directory)
    yield from _bringers(plan)
    for path in sorted({fetch.path for fetch in plan.fetches}):
        repos = [fetch.repo for fetch in plan.fetches if fetch.path == path]
        if len(repos) > 1:
            yield f"model_store_fetch brings {' and '.join(repos)} to {path}", "give each a directory of its own"
    if plan.overlay and plan.overlay.base == plan.overlay.overlay:
        yield f"model_store_overlay has {plan.overlay.base} as base and overlay", "name two directories"
    if plan.path in plan.parts:
        yield (
            f"the checkpoint {plan.path} is made from itself",
            "name other directories in model_store_overlay or _prune",
        )


def _lacking(value: Value) -> Iterator[Finding]:
    """What a mapping that is not empty must have; an empty one means that nobody wants it."""
    for name, parts in (("model_store_overlay", Overlay), ("model_store_prune", Prune)):
        given = value(name) or {}
        for part in fields(parts):
            if given and part.name not in given:
                yield f"{name} has no {part.name}", f"write {name}.{part.name}, or remove {name}"


def _revisions(value: Value) -> Iterator[Finding]:
    fetched = [(f"model_store_fetch[{n}]", entry) for n, entry in enumerate(value("model_store_fetch") or ())]
    pruned = [("model_store_prune", value("model_store_prune"))] if value("model_store_prune") else []
    for label, entry in [*fetched, *pruned]:
        if not REVISION.fullmatch(entry["revision"]):
            yield (
                f"{label}.revision is {entry['revision']}; limit: the 40 hexadecimal digits of a commit, as a "
                "branch or a tag may name other files tomorrow",
                "write the commit of the revision that you mean",
            )


def _bringers(plan: SourcePlan) -> Iterator[Finding]:
    fetched = any(fetch.path == plan.path for fetch in plan.fetches)
    asked = {
        "model_store_source": plan.pushed,
        "model_store_fetch": fetched,
        "model_store_overlay": plan.overlay is not None,
        "model_store_prune": plan.prune is not None,
    }
    names: Sequence[str] = [name for name, bring in asked.items() if bring]
    if len(names) > 1:
        yield (
            f"{' and '.join(names)} bring {plan.path}; limit: one",
            "keep one of them, or fetch into other directories",
        )
