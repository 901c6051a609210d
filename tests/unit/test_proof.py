"""The page of proofs leaves no check and no role out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")


def test_every_check_has_a_line_in_the_order_of_the_catalogue():
    assert re.findall(r"^\| `([a-z]+\.[a-z-]+)` \|", PAGE, re.MULTILINE) == [rule.id for rule in CATALOGUE]


@pytest.mark.parametrize("role", sorted(path.name for path in (ROOT / "roles").iterdir()))
def test_every_role_has_a_line(role):
    assert re.search(rf"^\| .*`{role}`", PAGE, re.MULTILINE)
