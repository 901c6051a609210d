"""The page of all profiles is made from the profiles and is current."""

from __future__ import annotations

import subprocess
import sys

import yaml
from builders import REPO

PAGE = REPO / "docs/profiles.md"


def test_the_page_is_current():
    done = subprocess.run([sys.executable, "tools/profile_docs", "--check"], cwd=REPO, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), "run `make docs`"


def test_every_profile_for_sparks_has_a_section():
    names = {path.stem for path in (REPO / "profiles").glob("*.yml") if not path.stem.startswith("lab-")}
    found = {line.removeprefix("## ") for line in PAGE.read_text().splitlines() if line.startswith("## ")}
    assert found == names


def test_the_commands_are_those_of_the_profiles():
    text = PAGE.read_text()
    profile = yaml.safe_load((REPO / "profiles/glm52-nvfp4-dcp4-mtp4-128k.yml").read_text())
    assert f"--max-cudagraph-capture-size {profile['engine_args']['max-cudagraph-capture-size']}\n" in text
    assert '--hf-overrides {"use_index_cache":true,' in text
