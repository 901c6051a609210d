"""A checkpoint assembled from a base and an overlay: one index, one directory, every tensor from one place.

A shard may hold tensors that the index takes from elsewhere; an engine that reads shard after shard then meets such a
tensor twice, and the later one stays. So a shard of the overlay that replaces some of another's is named to come last.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .facts import Origin, Published
from .origin import NOWHERE, ORIGIN_NAME, dump_origin
from .safetensors_index import INDEX_NAME

# Put before the name of an overlay's shard that must not hide one of the base, and that must be read after it.
LAST = "overlay-"


class AssemblyError(ValueError):
    """Parts from which no checkpoint can be made; the text is `fact; limit: ...; remedy: ...`."""


@dataclass(frozen=True)
class PartShard:
    """A safetensors file: its size, the size by its own header (None: no header), and the bytes of each tensor."""

    size: int
    expected: int | None
    tensors: Mapping[str, int]


@dataclass(frozen=True)
class Part:
    """A directory that a checkpoint is assembled from.

    Attributes:
        path: The directory.
        index: {tensor: shard}.
        shards: The safetensors files that are there.
        files: The names of all other files that are directly in it.
        metadata: What the index says beside its map.
        origin: Where the directory came from.
    """

    path: str
    index: Mapping[str, str]
    shards: Mapping[str, PartShard]
    files: Collection[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = field(default_factory=lambda: NOWHERE)


@dataclass(frozen=True)
class Assembly:
    """What the directory must hold: files that are links to those of the parts, and files with a text of their own."""

    links: Mapping[str, str]
    texts: Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """One change of the unfinished directory: `remove`, `link` to a source, or `write` a text."""

    action: str
    name: str
    value: str = ""


def assemble(base: Part, overlay: Part, prefixes: Mapping[str, str]) -> Assembly:
    """Base and overlay in one; `prefixes` are beginnings of tensor names that must be there, with what needs them.

    Raises AssemblyError.
    """
    for part in (base, overlay):
        _refuse(part, _faults(part))
    kept = {name: shard for name, shard in base.index.items() if name not in overlay.index}
    names = _overlay_names(base, overlay, set(kept.values()))
    index = {**kept, **{name: names[shard] for name, shard in overlay.index.items()}}
    for prefix, use in prefixes.items():
        if not any(name.startswith(prefix) for name in index):
            raise AssemblyError(
                f"{base.path} and {overlay.path}: neither has tensors of {prefix}*; limit: those, which {use} needs; "
                "remedy: name the overlay that has them in model_store_overlay"
            )
    links = {
        **{name: f"{part.path}/{name}" for part in (base, overlay) for name in part.files},
        **{shard: f"{base.path}/{shard}" for shard in set(kept.values())},
        **{name: f"{overlay.path}/{shard}" for shard, name in names.items()},
    }
    texts = {INDEX_NAME: _index_text(base, overlay, index), ORIGIN_NAME: _origin_text(base, overlay, links)}
    return Assembly({name: links[name] for name in sorted(links) if name not in texts}, texts)


def steps(wanted: Assembly, current: Mapping[str, bool]) -> list[Step]:
    """What makes the unfinished directory what is wanted; `current` says of each entry in it whether it is right."""
    stray = [Step("remove", name) for name in sorted(set(current) - set(wanted.links) - set(wanted.texts))]
    links = [Step("link", name, source) for name, source in wanted.links.items() if not current.get(name)]
    texts = [Step("write", name, text) for name, text in wanted.texts.items() if not current.get(name)]
    # The index comes last: nothing takes a directory without one for a checkpoint.
    return [*stray, *links, *reversed(texts)]


def _faults(part: Part) -> Iterator[tuple[str, str]]:
    for shard in sorted(set(part.index.values())):
        found = part.shards.get(shard)
        if found is None:
            yield "missing", shard
        elif found.size != found.expected:
            yield "damaged", shard
    promised = ((shard, name) for name, shard in part.index.items() if shard in part.shards)
    yield from (("damaged", shard) for shard, name in promised if name not in part.shards[shard].tensors)


def _refuse(part: Part, faults: Iterator[tuple[str, str]]) -> None:
    found = list(dict.fromkeys(faults))
    if found or not part.index:
        words = [f"{what}: {shard}" for what, shard in found[:3]] or ["it holds no tensors"]
        raise AssemblyError(
            f"{part.path}: {'; '.join(words)}{f' and {len(found) - 3} more' if len(found) > 3 else ''}; "
            "limit: every shard of its index, whole; remedy: fetch it again"
        )


def _overlay_names(base: Part, overlay: Part, kept: Collection[str]) -> dict[str, str]:
    """{shard of the overlay: its name in the directory}. Raises AssemblyError."""
    places = {shard: [name for name, where in overlay.index.items() if where == shard] for shard in overlay.shards}
    used = {shard: names for shard, names in places.items() if names}
    # Which shards are still needed, and hold tensors that this one replaces.
    hidden = {
        shard: {base.index[name] for name in names if name in base.index} & set(kept) for shard, names in used.items()
    }
    renamed = {shard: f"{LAST}{shard}" if hidden[shard] or shard in kept else shard for shard in used}
    for shard, others in sorted(hidden.items()):
        first = max(others, default="")
        if renamed[shard] < first:
            raise AssemblyError(
                f"{overlay.path}/{shard} replaces tensors of shards that are still needed, and {first} would be read "
                f"after it; limit: base shards named before {LAST}*; remedy: use another base"
            )
    return renamed


def _index_text(base: Part, overlay: Part, index: Mapping[str, str]) -> str:
    sizes = {name: size for part in (base, overlay) for name, size in _taken(part)}
    metadata = {**base.metadata, **overlay.metadata, "total_size": sum(sizes[name] for name in index)}
    return json.dumps({"metadata": metadata, "weight_map": dict(sorted(index.items()))}, indent=2) + "\n"


def _taken(part: Part) -> Iterator[tuple[str, int]]:
    return ((name, part.shards[shard].tensors[name]) for name, shard in part.index.items())


def _origin_text(base: Part, overlay: Part, links: Mapping[str, str]) -> str:
    known: dict[str, Published] = {
        f"{part.path}/{name}": entry for part in (base, overlay) for name, entry in part.origin["files"].items()
    }
    files = {name: known[source] for name, source in links.items() if source in known and name != INDEX_NAME}
    return dump_origin(sorted({*base.origin["sources"], *overlay.origin["sources"]}), files)


def expert_faults(names: Collection[str], experts: int) -> list[str]:
    """The layers of a pruned checkpoint that have not exactly the experts 0 to `experts` - 1; names are of tensors."""
    found: dict[str, set[str]] = {}
    for name in names:
        layer, expert, rest = name.partition(".experts.")
        if expert:
            found.setdefault(layer, set()).add(rest.partition(".")[0])
    wanted = {str(number) for number in range(experts)}
    return [f"{layer} has {len(has)}" for layer, has in sorted(found.items()) if has != wanted]
