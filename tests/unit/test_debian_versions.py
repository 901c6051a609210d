"""The order of Debian versions: a table, and dpkg itself as the judge where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.debian_versions import DebianVersion, within

# Each is older than the one below it.
ASCENDING = [
    "0.9~~",
    "0.9~rc1-1",
    "0.9",
    "0.9a",
    "0.9+b",
    "0.10-1",
    "0.10-1ubuntu0.1",
    "0.10-1ubuntu0.10",
    "6.17.0-1008.8",
    "6.17.0-1008.8+1",
    "6.17.0-1019.19",
    "7.0.0-1019.19",
    "580.95.05-0ubuntu0.24.04.1",
    "580.126.09-0ubuntu0.24.04.1",
    "1:0.1-1",
    "2:0",
]


@pytest.mark.parametrize(("older", "newer"), list(pairwise(ASCENDING)))
def test_the_order(older, newer):
    assert DebianVersion(older) < DebianVersion(newer)
    assert DebianVersion(newer) > DebianVersion(older)


@pytest.mark.parametrize(
    ("one", "other"), [("1.0", "0:1.0"), ("1.0", "1.0-0"), ("1.0", "1.00"), ("1.0-1", "01.0-01"), ("1", "1.0a~~")]
)
def test_versions_that_are_written_differently(one, other):
    same = (one, other) != ("1", "1.0a~~")
    assert (DebianVersion(one) == DebianVersion(other)) is same


@pytest.mark.parametrize(
    ("version", "limits", "inside"),
    [
        ("7.0.0-1019", {"from": "7.0.0-1019", "to": "7.0.0-1019"}, True),
        ("7.0.0-1020", {"from": "7.0.0-1019", "to": "7.0.0-1019"}, False),
        ("1.17.1-1", {"from": "1.17.0~", "before": "1.17.2"}, True),
        ("1.17.2-1", {"from": "1.17.0~", "before": "1.17.2~"}, False),
        ("1.16.9-1", {"from": "1.17.0~", "before": "1.17.2~"}, False),
        ("anything", {}, True),
    ],
)
def test_ranges(version, limits, inside):
    assert within(version, limits) is inside


parts = st.text("019.+~ab", min_size=1, max_size=6).map(lambda text: f"1{text}")
versions = st.builds(
    lambda epoch, upstream, revision: f"{epoch}{upstream}{revision}",
    st.sampled_from(["", "0:", "1:"]),
    parts,
    st.one_of(st.just(""), parts.map(lambda text: f"-{text}")),
)


@pytest.mark.skipif(not shutil.which("dpkg"), reason="dpkg is not installed here")
@settings(max_examples=150)
@given(one=versions, other=versions)
def test_dpkg_says_the_same(one, other):
    for operator, ours in (
        ("lt", DebianVersion(one) < DebianVersion(other)),
        ("eq", DebianVersion(one) == DebianVersion(other)),
    ):
        asked = subprocess.run(["dpkg", "--compare-versions", one, operator, other], check=False, capture_output=True)
        assert (asked.returncode == 0) is ours
