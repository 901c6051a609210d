"""Checks of the checkpoint: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

import pytest
from builders import GONE, SHARD1, SHARD2, cluster, findings, weights

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Stage, refusals
from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import CheckpointNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.manifest import compare
from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.safetensors_index import fingerprint
from ansible_collections.sparkwright.cluster.plugins.module_utils.share import ShareWish

SPARK2 = "spark2"
WHOLE = fingerprint(weights())
OTHER = fingerprint({**weights(), "config_sha256": "other"})
MOVED = fingerprint(
    {**weights(), "shards": {**weights()["shards"], SHARD1: {**weights()["shards"][SHARD1], "header": "f"}}}
)
PUSHED = {"*": {"weights_pushed": True}}
ALL_SHARDS = "limit: all 2 shards of model.safetensors.index.json, whole, no other"
AGAIN = "remedy: copy the checkpoint to /models/big again"
UNREADABLE = {**weights(), "error": "it has no weight_map", "tensors": {}, "shards": {}}
MODEL = {"num_hidden_layers": 1, "num_key_value_heads": 4, "head_dim": 32}
CORRECT = "limit: the model of the profile; remedy: correct model in the profile, or use the checkpoint that it is for"
OVERLAY = "remedy: assemble the checkpoint with its overlay, or remove speculative-config from the profile"
HALF = {"size": 7 * GIB // 2, "expected": 7 * GIB // 2, "tensors": 7, "header": ""}
STRAY = {"size": 1, "expected": 1, "tensors": 0, "header": ""}
PINNED = {"*": {"checkpoint": CheckpointNeed(sources=("a/b@new",))}}
REPORT = compare({"path": "/models/big", "files": {}}, {}, {})
OF_MANIFEST = (
    "limit: the files of the manifest that the head made; remedy: bring these files again; where they were changed on"
    " purpose, remove the manifest on the head"
)
GUESSING = {"model.layers.78.": "guessing 3 tokens ahead"}


def on_spark2(*path, value, everywhere=None, **more):
    """One fact of spark2; `everywhere` is where the other nodes' checkpoints came from."""
    others = {(f"spark{n}", "weights", "sources"): everywhere for n in (1, 3, 4) if everywhere}
    return {"facts": {(SPARK2, *path): value, **others}, **more}


def needing(**need):
    return {"*": {"checkpoint": CheckpointNeed(**need)}}


CASES = {
    "a missing shard": (
        on_spark2("weights", "shards", SHARD2, value=GONE, intents=PUSHED),
        f"refuse weights.complete spark2: /models/big: missing: {SHARD2}; {ALL_SHARDS}; {AGAIN}",
        "EQUAL",
    ),
    "a short shard": (
        on_spark2("weights", "shards", SHARD1, "expected", value=5_000_000_001, intents=PUSHED),
        f"refuse weights.complete spark2: /models/big: damaged: {SHARD1}; {ALL_SHARDS}; {AGAIN}",
    ),
    "an unreadable index": (
        on_spark2("weights", value=UNREADABLE, intents=PUSHED),
        "refuse weights.complete spark2: /models/big: it has no weight_map; limit: a readable index; " + AGAIN,
    ),
    "another configuration of the model": (
        on_spark2("weights", "config_sha256", value="other"),
        f"refuse weights.equal spark2: the fingerprint of its checkpoint is {OTHER}; limit: {WHOLE}, as on the others;"
        " remedy: copy the checkpoint again",
    ),
    "nobody copies the weights": (
        on_spark2("weights", value=UNREADABLE),
        "refuse weights.present spark2: /models/big: it has no weight_map; limit: a readable index; remedy: copy the"
        " checkpoint to /models/big, or set model_store_source or model_store_fetch",
        f"refuse weights.complete spark2: /models/big: it has no weight_map; limit: a readable index; {AGAIN}",
    ),
    "a damaged source": (
        {"source": {**weights(), "path": "/srv/big", "shards": {SHARD1: weights()["shards"][SHARD1]}}},
        f"refuse weights.source controller: /srv/big: missing: {SHARD2}; {ALL_SHARDS}; remedy: fetch the checkpoint"
        " again, or correct model_store_source",
    ),
    "a shard whose tensors lie elsewhere": (
        on_spark2("weights", "shards", SHARD1, "header", value="f"),
        f"refuse weights.equal spark2: the fingerprint of its checkpoint is {MOVED}; limit: {WHOLE}, as on the others;"
        " remedy: copy the checkpoint again",
    ),
    "a surplus shard": (
        on_spark2("weights", "shards", "old.safetensors", value=STRAY),
        f"refuse weights.present spark2: /models/big: not in the index: old.safetensors; {ALL_SHARDS}; remedy: copy the"
        " checkpoint to /models/big, or set model_store_source or model_store_fetch",
        f"refuse weights.complete spark2: /models/big: not in the index: old.safetensors; {ALL_SHARDS}; {AGAIN}",
        "EQUAL",
    ),
    "a full disk": (
        {
            "facts": {(SPARK2, "weights", "disk_free"): 4 * GIB, (SPARK2, "weights", "disk_used"): 2 * GIB},
            "intents": PUSHED,
            "source": {**weights(), "shards": dict.fromkeys((SHARD1, SHARD2), HALF)},
        },
        "refuse weights.space spark2: 5.00 GiB of the checkpoint are to come and 4.00 GiB are free; limit: at most what"
        " is free for /models/big; remedy: free that much, or set model_store_path",
    ),
    "a disk too small for what is fetched": (
        {
            "facts": {(SPARK2, "weights"): {**UNREADABLE, "disk_free": 6 * GIB, "disk_used": 0}},
            "intents": {SPARK2: {**PUSHED["*"], "checkpoint": CheckpointNeed(disk=7 * GIB)}},
        },
        f"refuse weights.complete spark2: /models/big: it has no weight_map; limit: a readable index; {AGAIN}",
        "refuse weights.space spark2: 7.00 GiB of the checkpoint are to come and 6.00 GiB are free; limit: at most what"
        " is free for /models/big; remedy: free that much, or set model_store_path",
    ),
    "a disk that does not answer": (
        on_spark2("weights", "disk_free", value=None, intents=PUSHED),
        "unknown weights.space spark2: nobody knows what is free for /models/big; limit: at most what is free for"
        " /models/big; remedy: check its disk or mount",
    ),
    "another revision": (
        on_spark2("weights", "sources", value=["a/b@old"], intents=PINNED, everywhere=["a/b@new"]),
        "refuse weights.revision spark2: /models/big: it was made from a/b@old; limit: a/b@new; remedy: move it away"
        " and run site.yml, or pin the revision that it has",
    ),
    "no word of where it came from": (
        on_spark2("weights", "sources", value=[], intents=PINNED, everywhere=["a/b@new"]),
        "refuse weights.revision spark2: /models/big: it does not say where it came from; limit: a/b@new; remedy: move"
        " it away and run site.yml, or pin the revision that it has",
    ),
    "an overlay of another revision": (
        on_spark2(
            "weights",
            "sources",
            value=["a/b@1", "c/d@old"],
            intents=needing(sources=("a/b@1", "c/d@2")),
            everywhere=["a/b@1", "c/d@2"],
        ),
        "refuse weights.revision spark2: /models/big: it was made from a/b@1, c/d@old; limit: a/b@1 and c/d@2; remedy:"
        " move it away and run site.yml, or pin the revision that it has",
    ),
    "what differs from the manifest": (
        {"hashes": {SPARK2: {**REPORT, "missing": ["a"], "truncated": ["b"], "corrupt": ["c"], "surplus": ["d"]}}},
        "refuse weights.hash spark2: /models/big: missing: a; truncated or grown: b; corrupt: c; not in the manifest:"
        f" d; {OF_MANIFEST}",
    ),
    "a mount that does not answer while it is hashed": (
        {"hashes": {SPARK2: {**REPORT, "error": "it was not read within 60 s"}}},
        f"refuse weights.hash spark2: /models/big: it was not read within 60 s; {OF_MANIFEST}",
    ),
    "another model": (
        on_spark2("weights", "config", "num_hidden_layers", value=2, intents=needing(model=MODEL)),
        f"refuse weights.shape spark2: /models/big: its config.json has layers 2 (1); {CORRECT}",
    ),
    "a config.json that says nothing": (
        on_spark2("weights", "config", value={}, intents=needing(model=MODEL)),
        "refuse weights.shape spark2: /models/big: its config.json: num_hidden_layers is None, which is no number of a"
        f" model; {CORRECT}",
    ),
    "no MTP layer": (
        {
            "facts": {(f"spark{n}", "weights", "prefixes"): {"model.layers.78.": 5} for n in (1, 3, 4)},
            "intents": needing(prefixes=GUESSING),
        },
        "refuse weights.layers spark2: /models/big: model.safetensors.index.json has no tensors of model.layers.78.*;"
        f" limit: those, which guessing 3 tokens ahead needs; {OVERLAY}",
    ),
}


def equal_line(changes):
    """What `weights.equal` adds when the files of spark2 are others."""
    found = fingerprint(cluster(**changes).facts[SPARK2]["weights"])
    return (
        f"refuse weights.equal spark2: the fingerprint of its checkpoint is {found}; limit: {WHOLE}, as on the others;"
        " remedy: copy the checkpoint again"
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_thing_is_wrong(case):
    changes, *lines = case
    assert findings(cluster(**changes)) == [equal_line(changes) if line == "EQUAL" else line for line in lines]


def test_the_source_is_looked_at_before_it_is_copied():
    found = cluster(
        source={**weights(), "path": "/srv/big"},
        intents=needing(prefixes=GUESSING),
        facts={(f"spark{n}", "weights"): UNREADABLE for n in range(1, 5)},
    )
    lines = [line for line in findings(found) if "weights.layers" in line]
    assert lines == [
        "refuse weights.layers controller: /srv/big: model.safetensors.index.json has no tensors of model.layers.78.*;"
        f" limit: those, which guessing 3 tokens ahead needs; {OVERLAY}"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"source": weights()},
        {"intents": PUSHED},
        {"intents": {"*": {**PUSHED["*"], "checkpoint": CheckpointNeed(disk=10**13)}}},
        {"intents": PINNED, "facts": {(f"spark{n}", "weights", "sources"): ["a/b@new"] for n in range(1, 5)}},
        {"hashes": {SPARK2: REPORT}},
        {"intents": needing(model=MODEL)},
        {"intents": needing(model={**MODEL, "num_nextn_predict_layers": 0})},
        {"intents": needing(model={**MODEL, "head_dim": 64}, overrides={"head_dim": 16})},
        {"intents": needing(prefixes={"model.layers.0.": "guessing 1 token ahead"})},
    ],
    ids=str,
)
def test_what_is_close_and_right(changes):
    assert findings(cluster(**changes)) == []


COPIED = {"*": {**PUSHED["*"], "checkpoint": CheckpointNeed(sources=("a/b@new",), prefixes=GUESSING)}} | {
    f"spark{n}": {"share": ShareWish(mode="copy", path="/models", folders=("big",), holds=n == 1)} for n in range(1, 5)
}
OF_A_COPY = ("weights.revision", "weights.layers", "weights.space")


@pytest.mark.parametrize(
    ("stage", "refused"),
    [
        (Stage.PREFLIGHT, []),
        (Stage.WEIGHTS, ["weights.layers", "weights.revision"]),
        (Stage.LAUNCH, ["weights.layers"]),
    ],
)
def test_an_old_copy_counts_only_after_it_was_overwritten(stage, refused):
    """Its disk is full, too: of that `share.room` tells."""
    new = {"sources": ["a/b@new"], "prefixes": {"model.layers.78.": 5}}
    facts = {(f"spark{n}", "weights", key): value for n in (1, 3, 4) for key, value in new.items()}
    facts |= {(SPARK2, "weights", key): value for key, value in (("sources", ["a/b@old"]), ("disk_used", 0))}
    facts[SPARK2, "weights", "disk_free"] = 0
    found = cluster(facts=facts, intents=COPIED, source={**weights(), **new})
    lines = [(one.host, one.id) for one in refusals(run_checks(found, stage)) if one.id in OF_A_COPY]
    assert sorted(lines) == [(SPARK2, one) for one in refused]


def test_what_the_head_itself_has_counts_before_it_is_shared():
    facts = {(f"spark{n}", "weights", "sources"): ["a/b@old"] for n in range(1, 5)}
    found = run_checks(cluster(facts=facts, intents=COPIED), Stage.PREFLIGHT)
    assert [one.host for one in refusals(found) if one.id == "weights.revision"] == ["spark1"]


@pytest.mark.parametrize(("count", "more"), [(3, ""), (6, " and 3 more")])
def test_of_many_missing_shards_three_are_named(count, more):
    lost = {**weights(), "tensors": {f"model-{n}.safetensors": 1 for n in range(1, count + 1)}, "shards": {}}
    lines = findings(cluster(**on_spark2("weights", value=lost, intents=PUSHED)))
    names = f"model-1.safetensors, model-2.safetensors, model-3.safetensors{more}"
    limit = f"limit: all {count} shards of model.safetensors.index.json, whole, no other"
    assert lines[0] == f"refuse weights.complete spark2: /models/big: missing: {names}; {limit}; {AGAIN}"
