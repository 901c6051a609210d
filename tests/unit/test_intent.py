"""An intent as data and back."""

from __future__ import annotations

import json

import pytest
from builders import intent

from ansible_collections.sparkwright.cluster.plugins.module_utils.intent import Intent, MemoryNeed


@pytest.mark.parametrize("rank", [0, 3])
def test_an_intent_survives_json(rank):
    whole = intent(rank)
    assert Intent.from_data(json.loads(json.dumps(whole.as_data()))) == whole


def test_data_of_another_version_are_refused():
    with pytest.raises(TypeError, match="from_the_future"):
        Intent.from_data({**intent().as_data(), "from_the_future": 1})


def test_only_rank_0_is_the_head():
    assert [intent(rank).is_head for rank in range(4)] == [True, False, False, False]


def test_the_need_is_a_sum():
    assert MemoryNeed(weights=1, kv_cache=20, runtime=300, floor=4000).total == 4321
