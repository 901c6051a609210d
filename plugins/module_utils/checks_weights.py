"""Checks of the checkpoint: is it there, whole, the same everywhere, and the one that the profile plans with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .checks import Check, Cluster, Stage, Status, all_equal, rule
from .facts import HashReport, Weights
from .intent import CheckpointNeed
from .meminfo import GIB
from .model_shape import ModelShapeError, differences, shape_of
from .origin import wrong_sources
from .safetensors_index import INDEX_NAME, complete, damaged, fingerprint, missing, surplus, total_bytes


@rule("weights.source", "The checkpoint that will be copied is whole.", Stage.PREFLIGHT)
def weights_source(cluster: Cluster) -> Iterator[Check]:
    """A damaged source is found on the controller before it is copied to every node."""
    if cluster.source is not None:
        remedy = "fetch the checkpoint again, or correct model_store_source"
        yield _completeness("weights.source", "controller", cluster.source, remedy)


@rule("weights.present", "A checkpoint that nobody copies is on the node already.", Stage.PREFLIGHT, needs="weights")
def weights_present(cluster: Cluster) -> Iterator[Check]:
    """Without model_store_source the weights must be there before the node is changed."""
    for host, weights, intent in cluster.having("weights"):
        if not intent.weights_pushed:
            remedy = f"copy the checkpoint to {weights['path']}, or set model_store_source or model_store_fetch"
            yield _completeness("weights.present", host, weights, remedy)


@rule(
    "weights.complete",
    "The index can be read and every shard it names is whole.",
    Stage.WEIGHTS,
    Stage.LAUNCH,
    needs="weights",
)
def weights_complete(cluster: Cluster) -> Iterator[Check]:
    """A shard that is missing or short is found by its header before the load, not ten minutes into it."""
    for host, weights, _ in cluster.having("weights"):
        yield _completeness("weights.complete", host, weights, f"copy the checkpoint to {weights['path']} again")


def _completeness(id_: str, host: str, weights: Weights, remedy: str) -> Check:
    count, path = len(weights["tensors"]), weights["path"]
    if weights["error"]:
        return Check(id_, host, Status.REFUSE, f"{path}: {weights['error']}", "a readable index", remedy)
    faults = [
        *_named("missing", missing(weights)),
        *_named("damaged", damaged(weights)),
        *_named("not in the index", surplus(weights)),
    ]
    fact = "; ".join(faults) or f"{count} shards with {total_bytes(weights)} bytes"
    status = Status.REFUSE if faults else Status.OK
    return Check(id_, host, status, f"{path}: {fact}", f"all {count} shards of {INDEX_NAME}, whole, no other", remedy)


@rule("weights.space", "The disk has room for what a run brings.", Stage.PREFLIGHT, needs="weights")
def weights_space(cluster: Cluster) -> Iterator[Check]:
    """A disk that is full after 400 of 410 GB has cost hours. What is there already counts, unfinished or not."""
    for host, weights, intent in cluster.having("weights"):
        # For what a node gets from another one there is `share.room`.
        if not intent.weights_pushed or not intent.share.holds:
            continue
        whole = total_bytes(cluster.source) if cluster.source else intent.checkpoint.disk
        done = cluster.source is None and complete(weights)
        need, free = 0 if done else max(whole - weights["disk_used"], 0), weights["disk_free"]
        limit = f"at most what is free for {weights['path']}"
        if free is None:
            fact = f"nobody knows what is free for {weights['path']}"
            yield Check("weights.space", host, Status.UNKNOWN, fact, limit, "check its disk or mount")
            continue
        fact = f"{_size(need)} of the checkpoint are to come and {_size(free)} are free"
        remedy = "free that much, or set model_store_path"
        yield Check("weights.space", host, Status.REFUSE if need > free else Status.OK, fact, limit, remedy)


@rule(
    "weights.revision",
    "The checkpoint was made from the revisions that are pinned.",
    Stage.PREFLIGHT,
    Stage.WEIGHTS,
    needs="weights",
)
def weights_revision(cluster: Cluster) -> Iterator[Check]:
    """Files of two revisions in one cluster, or of another than was tested, load without an error."""
    for host, weights, need in _read(cluster):
        if need.sources and host != "controller":
            wrong = wrong_sources(weights["sources"], need.sources)
            yield Check(
                "weights.revision",
                host,
                Status.REFUSE if wrong else Status.OK,
                f"{weights['path']}: {wrong or 'it was made from what is pinned'}",
                " and ".join(need.sources),
                "move it away and run site.yml, or pin the revision that it has",
            )


@rule("weights.hash", "Every file is the one of the head's manifest.", Stage.WEIGHTS)
def weights_hash(cluster: Cluster) -> Iterator[Check]:
    """Names and sizes always, contents when asked for: one byte that turned over loads without an error."""
    for host, report in cluster.hashes.items():
        path = cluster.intents[host].weights_path
        wrong = report["error"] or "; ".join(_hash_faults(report))
        fine = f"{report['files']} files, {report['hashed']} of them hashed"
        yield Check(
            "weights.hash",
            host,
            Status.REFUSE if wrong else Status.OK,
            f"{path}: {wrong or fine}",
            "the files of the manifest that the head made",
            "bring these files again; where they were changed on purpose, remove the manifest on the head",
        )


def _size(number: int) -> str:
    return f"{number / GIB:.2f} GiB" if number >= GIB else f"{number} bytes"


def _hash_faults(report: HashReport) -> list[str]:
    return [
        *_named("missing", report["missing"]),
        *_named("truncated or grown", report["truncated"]),
        *_named("corrupt", report["corrupt"]),
        *_named("not in the manifest", report["surplus"]),
    ]


@rule("weights.equal", "All nodes have the same checkpoint.", Stage.WEIGHTS, needs="weights")
def weights_equal(cluster: Cluster) -> Iterator[Check]:
    """Ranks that load different checkpoints answer nonsense without an error."""
    prints = {host: fingerprint(weights) for host, weights, _ in cluster.having("weights") if not weights["error"]}
    yield from all_equal("weights.equal", prints, "the fingerprint of its checkpoint is", "copy the checkpoint again")


@rule(
    "weights.shape",
    "The checkpoint is of the model that the profile plans with.",
    Stage.PREFLIGHT,
    Stage.WEIGHTS,
    Stage.LAUNCH,
    needs="weights",
)
def weights_shape(cluster: Cluster) -> Iterator[Check]:
    """Another number of layers, or an index on other layers, and the planned cache does not fit."""
    for host, weights, need in _read(cluster):
        if need.model:
            wrong = _shape_faults(weights, need)
            yield Check(
                "weights.shape",
                host,
                Status.REFUSE if wrong else Status.OK,
                f"{weights['path']}: {wrong or 'its config.json agrees with the profile'}",
                "the model of the profile",
                "correct model in the profile, or use the checkpoint that it is for",
            )


@rule(
    "weights.layers",
    "The checkpoint has every layer that the profile uses, the MTP layer among them.",
    Stage.PREFLIGHT,
    Stage.WEIGHTS,
    Stage.LAUNCH,
    needs="weights",
)
def weights_layers(cluster: Cluster) -> Iterator[Check]:
    """A checkpoint may announce an MTP layer in its config.json and not have it."""
    for host, weights, need in _read(cluster):
        for prefix, use in need.prefixes.items():
            there = prefix in weights["prefixes"]
            yield Check(
                "weights.layers",
                host,
                Status.OK if there else Status.REFUSE,
                f"{weights['path']}: {INDEX_NAME} has {'the' if there else 'no'} tensors of {prefix}*",
                f"those, which {use} needs",
                "assemble the checkpoint with its overlay, or remove speculative-config from the profile",
                subject=prefix.rstrip("."),
            )


def _read(cluster: Cluster) -> Iterator[tuple[str, Weights, CheckpointNeed]]:
    """The checkpoints whose index could be read, that of the controller among them.

    Before anything is changed, a node that gets the checkpoint from another one may have an old one.
    """
    intents = list(cluster.intents.values())
    if cluster.source is not None and not cluster.source["error"] and intents:
        yield "controller", cluster.source, intents[0].checkpoint
    for host, weights, intent in cluster.having("weights"):
        replaced = cluster.stage is Stage.PREFLIGHT and not intent.share.holds
        if not weights["error"] and not replaced:
            yield host, weights, intent.checkpoint


def _shape_faults(weights: Weights, need: CheckpointNeed) -> str:
    try:
        found = shape_of({**weights["config"], **need.overrides})
    except ModelShapeError as error:
        return f"its config.json: {error}"
    wrong = differences(found, shape_of({**need.model, **need.overrides}))
    return f"its config.json has {', '.join(wrong)}" if wrong else ""


def _named(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"{what}: {', '.join(names[:3])}{more}"]
