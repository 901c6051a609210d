"""Every verb parses with every inventory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERBS = sorted([*ROOT.glob("site.yml"), *ROOT.glob("playbooks/*.yml")])
INVENTORIES = sorted(path.parent for path in ROOT.glob("inventory/*/hosts.yml"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_something_is_found() -> None:
    assert {"site.yml", "playbooks/site.yml"} <= set(map(relative, VERBS))
    assert {"inventory/lab", "inventory/spark2", "inventory/spark4"} <= set(map(relative, INVENTORIES))


@pytest.mark.parametrize("inventory", INVENTORIES, ids=relative)
@pytest.mark.parametrize("verb", VERBS, ids=relative)
def test_syntax(verb: Path, inventory: Path) -> None:
    command = ["ansible-playbook", "--syntax-check", "-i", relative(inventory), relative(verb)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", "a verb parses without a warning"
