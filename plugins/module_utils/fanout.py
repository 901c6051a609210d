"""Who copies what from whom, so that every file leaves the head once and all rails carry it.

The nodes form a chain by rank: each copies from the one before it. The files are cut into chunks, and in each round
every node copies one chunk, which the node before it has had since the round before. So all of them copy at once, and
a copy to seven nodes takes hardly longer than one to a single node: for `m` chunks and `n` nodes, m + n - 2 rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from .facts import NodeFacts, Weights
from .intent import Intent
from .safetensors_index import INDEX_NAME, damaged

# Name below the shared directory to size in bytes and time of change in seconds.
Files = Mapping[str, Sequence[int]]

# More chunks fill the chain faster; each costs a round trip to every node.
CHUNKS = 16
# Of the service that a node runs for the next one, for the time of the copy. Nothing else is known to use it.
PORT = 18_730
MODULE = "weights"
GB = 10**9


@dataclass(frozen=True)
class Link:
    """The way to the node before, over one rail: the addresses of both ends."""

    rail: str
    own: str
    source: str


@dataclass(frozen=True)
class Pull:
    """Files that a node copies over one rail in one round, and their bytes."""

    rail: str
    own: str
    source: str
    files: tuple[str, ...]
    size: int


# What every node copies in one round.
Round = Mapping[str, tuple[Pull, ...]]


def lacking(own: Files, head: Files) -> set[str]:
    """The files of the head that a node does not have as they are there."""
    return {name for name, measures in head.items() if list(own.get(name, ())) != list(measures)}


def surplus(own: Files, head: Files) -> list[str]:
    """The files of a node that the head does not have; an engine would load them as well."""
    return sorted(set(own) - set(head))


def wrong_shards(own: Weights, head: Weights) -> set[str]:
    """The shards of a node that are damaged, or whose headers are not those of the head, whatever their times say."""
    other = {
        name
        for name, shard in own["shards"].items()
        if name in head["shards"] and shard["header"] != head["shards"][name]["header"]
    }
    return other | set(damaged(own))


def fan_out(files: Files, lacks: Mapping[str, Collection[str]], links: Mapping[str, Sequence[Link]]) -> list[Round]:
    """The rounds of a copy.

    `files` are those of the head, `lacks` what each other node needs of them, and `links` each node's ways to the node
    before it, in the order of the chain behind the head.
    """
    wanted = {name: files[name][0] for name in files if any(name in lacks[host] for host in links)}
    rails = max((len(ways) for ways in links.values()), default=1)
    # So many that each has something of the largest kind for every rail.
    most = sum(wanted.values()) // (max([1, *wanted.values()]) * rails)
    chunks = _chunks(wanted, max(1, min(CHUNKS, most)))
    rounds: list[dict[str, tuple[Pull, ...]]] = [{} for _ in range(len(chunks) + len(links))]
    for place, (host, ways) in enumerate(links.items()):
        for number, chunk in enumerate(chunks):
            needed = {name: wanted[name] for name in chunk if name in lacks[host]}
            if needed:
                rounds[number + place][host] = _spread(needed, ways)
    return [one for one in rounds if one]


def _chunks(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """The files in `count` parts of about the same size; the index, which makes a checkpoint of them, comes last."""
    names = sorted(sizes, key=lambda name: (name.endswith(INDEX_NAME), name))
    total = sum(sizes.values()) or 1
    parts: list[list[str]] = [[] for _ in range(count)]
    before = 0
    for name in names:
        parts[min(count - 1, before * count // total)].append(name)
        before += sizes[name]
    return [part for part in parts if part]


def _spread(sizes: Mapping[str, int], ways: Sequence[Link]) -> tuple[Pull, ...]:
    """The files over the rails, the largest first, each on the rail that has the least so far."""
    parts: list[dict[str, int]] = [{} for _ in ways]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        min(parts, key=lambda part: sum(part.values()))[name] = sizes[name]
    return tuple(
        Pull(way.rail, way.own, way.source, tuple(sorted(part)), sum(part.values()))
        for way, part in zip(ways, parts, strict=True)
        if part
    )


def links_of(intents: Mapping[str, Intent]) -> dict[str, list[Link]]:
    """Each node's ways to the node of the rank before it."""
    chain = sorted(intents.values(), key=lambda intent: intent.rank)
    return {
        intent.host: [
            Link(rail.name, rail.address, rail.peers[before.host]) for rail in intent.rails if before.host in rail.peers
        ]
        for before, intent in pairwise(chain)
    }


def plan_copy(intents: Mapping[str, Intent], facts: Mapping[str, NodeFacts]) -> list[Round]:
    """The rounds of the copy to all nodes; none while the head's own checkpoint is not there."""
    head = next(intent.host for intent in intents.values() if intent.is_head)
    files = facts[head]["share"]["files"]
    return fan_out(files, {host: needs(host, head, intents, facts) for host in intents}, links_of(intents))


def needs(host: str, head: str, intents: Mapping[str, Intent], facts: Mapping[str, NodeFacts]) -> set[str]:
    """What a node lacks of the head's files."""
    files = facts[head]["share"]["files"]
    folder = intents[host].share.folders[0]
    wrong = wrong_shards(facts[host]["weights"], facts[head]["weights"])
    return lacking(facts[host]["share"]["files"], files) | ({f"{folder}/{name}" for name in wrong} & set(files))


def room_needed(host: str, head: str, intents: Mapping[str, Intent], facts: Mapping[str, NodeFacts]) -> int:
    """Bytes that the copy adds on a node's disk: what it lacks, less what is there of it already."""
    files, own = facts[head]["share"]["files"], facts[host]["share"]["files"]
    return sum(
        max(0, files[name][0] - (own[name][0] if name in own else 0)) for name in needs(host, head, intents, facts)
    )


def said(rounds: Sequence[Round]) -> list[str]:
    """What a person is told before each round."""
    sizes = [{host: sum(pull.size for pull in pulls) for host, pulls in one.items()} for one in rounds]
    total = sum(sum(one.values()) for one in sizes)
    done, lines = 0, []
    for number, one in enumerate(sizes, 1):
        lines.append(
            f"round {number} of {len(rounds)}: {', '.join(one)} copy {sum(one.values()) / GB:.2f} GB, "
            f"{done / GB:.2f} of {total / GB:.2f} GB are done"
        )
        done += sum(one.values())
    return lines


def pulls_of(rounds: Sequence[Round], host: str) -> list[list[dict[str, Any]]]:
    """What one node copies in each round, as plain data."""
    return [[{**asdict(pull), "files": list(pull.files)} for pull in one.get(host, ())] for one in rounds]


def readers_of(rounds: Sequence[Round], links: Mapping[str, Sequence[Link]], host: str, head: str) -> list[Link]:
    """The ways by which the next node copies from this one; none when it copies nothing."""
    chain = [head, *links]
    follower = dict(pairwise(chain)).get(host)
    busy = follower is not None and any(follower in one for one in rounds)
    return list(links[follower]) if follower and busy else []


def daemon_config(path: str, readers: Sequence[str]) -> str:
    """The configuration of the rsync that serves the next node: read-only, to its addresses, as nobody."""
    return (
        "# Written by Sparkwright (role model_store) for the time of a copy.\n"
        "uid = nobody\ngid = nogroup\nuse chroot = yes\nnumeric ids = yes\nreverse lookup = no\n\n"
        f"[{MODULE}]\npath = {path}\nread only = yes\nlist = no\n"
        f"hosts allow = {' '.join(readers)}\nhosts deny = *\n"
    )


def pull_argv(pull: Mapping[str, Any], path: str, port: int = PORT) -> list[str]:
    """The rsync that copies the files of one pull, whose names it reads from its input, ended by zeros.

    It writes in place, so that what was copied is still there after it was killed, and compares what is there already.
    """
    return [
        *("rsync", "--times", "--perms", "--chmod=D755,F644", "--omit-dir-times", "--copy-links"),
        *("--inplace", "--partial", "--ignore-times", "--fsync", "--stats", "--no-human-readable"),
        *("--contimeout=10", "--timeout=120", f"--address={pull['own']}", f"--port={port}"),
        *("--from0", "--files-from=-", f"rsync://{pull['source']}/{MODULE}/", f"{path}/"),
    ]
