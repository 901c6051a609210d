"""An intent as data and back."""

from __future__ import annotations

import json

import pytest
from builders import intent

from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import CheckpointNeed, Intent

NEED = CheckpointNeed({"num_hidden_layers": 2}, {"index_topk_freq": 4}, {"model.layers.2.": "guessing"})


@pytest.mark.parametrize("changes", [{"rank": 0}, {"rank": 3}, {"checkpoint": NEED, "free_memory": True}], ids=str)
def test_an_intent_survives_json(changes):
    whole = intent(**changes)
    assert Intent.from_data(json.loads(json.dumps(whole.as_data()))) == whole


def test_data_of_another_version_are_refused():
    with pytest.raises(TypeError, match="from_the_future"):
        Intent.from_data({**intent().as_data(), "from_the_future": 1})


def test_only_rank_0_is_the_head():
    assert [intent(rank).is_head for rank in range(4)] == [True, False, False, False]
