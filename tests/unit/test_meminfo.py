"""The figures of /proc/meminfo."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import cma_trap, gib, parse_meminfo

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
