"""The figures of /proc/meminfo."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import (
    GIB,
    cma_trap,
    gib,
    parse_meminfo,
    shown_parts,
)

TEXT = """\
MemTotal:       125508240 kB
MemFree:         3145728 kB
MemAvailable:   119000000 kB
HugePages_Total:       0
CmaTotal:          65536 kB
Garbage
Odd:                 n/a kB
Empty:
"""


def test_figures_are_read_and_the_rest_is_left_out():
    assert parse_meminfo(TEXT) == {
        "MemTotal": 125508240,
        "MemFree": 3145728,
        "MemAvailable": 119000000,
        "HugePages_Total": 0,
        "CmaTotal": 65536,
    }


def test_nothing_gives_nothing():
    assert parse_meminfo("") == {}


@pytest.mark.parametrize(
    ("memory", "trapped"),
    [
        ({"CmaTotal": 65536, "CmaFree": 9_700_000}, True),
        ({"CmaTotal": 65536, "CmaFree": 65537}, True),
        ({"CmaTotal": 65536, "CmaFree": 65536}, False),
        ({"CmaTotal": 0, "CmaFree": 0}, False),
        ({}, False),
    ],
)
def test_the_mark_of_kho(memory, trapped):
    assert cma_trap(memory) is trapped


def test_kb_become_gib():
    assert gib(127_590_000) == pytest.approx(121.679, abs=0.001)


@pytest.mark.parametrize(
    ("parts", "total", "shown"),
    [
        ({}, "0.00", {}),
        ({"a": GIB, "b": GIB // 2}, "1.50", {"a": "1.00", "b": "0.50"}),
        # The sum of what is shown, not of what is hidden behind it.
        ({"a": GIB // 3, "b": GIB // 3, "c": GIB // 3}, "0.99", {"a": "0.33", "b": "0.33", "c": "0.33"}),
    ],
)
def test_parts_add_up_to_their_sum(parts, total, shown):
    assert shown_parts(parts) == (total, shown)


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 2**40)))
def test_parts_add_up_as_they_are_shown(parts):
    total, shown = shown_parts(parts)
    assert sum(map(Decimal, shown.values())) == Decimal(total)
    assert abs(Decimal(total) - Decimal(sum(parts.values())) / GIB) <= Decimal("0.0051") * len(parts)
