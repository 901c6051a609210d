"""The page of all checks is made from the catalogue and is current."""

from __future__ import annotations

import shutil
import subprocess
import sys

from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import CATALOGUE


def run(root, *arguments):
    command = [sys.executable, str(root / "tools/check_docs"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_page_is_current():
    assert run(REPO, "--check") == (0, ""), "run `make docs`"


def test_every_check_has_a_line():
    lines = [line for line in (REPO / "docs/checks.md").read_text().splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == [rule.id for rule in CATALOGUE]


def test_a_stale_page_is_named_and_written_only_when_asked(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "docs").mkdir()
    shutil.copy(REPO / "tools/check_docs", tmp_path / "tools")
    (tmp_path / "collections").symlink_to(REPO / "collections")
    page = tmp_path / "docs/checks.md"
    assert run(tmp_path, "--check") == (1, "stale: docs/checks.md\n")
    assert not page.exists()
    assert run(tmp_path) == (0, "wrote: docs/checks.md\n")
    assert run(tmp_path) == run(tmp_path, "--check") == (0, "")
    assert page.read_text() == (REPO / "docs/checks.md").read_text()
