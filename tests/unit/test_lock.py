"""requirements.lock pins what pyproject.toml asks for, for each Python that may run it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ASKED = [Requirement(text) for text in (*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"])]
PINNED = [
    Requirement(line.rstrip(" \\"))
    for line in (ROOT / "requirements.lock").read_text().splitlines()
    if re.match(r"[a-z0-9]", line)
]


def environment(python: str) -> dict[str, str]:
    return {"python_version": python, "python_full_version": f"{python}.1"}


@pytest.mark.parametrize(
    ("asked", "python"),
    [
        pytest.param(asked, python, id=f"{asked.name}-{python}")
        for python in ("3.11", "3.12", "3.14")
        for asked in ASKED
        if asked.marker is None or asked.marker.evaluate(environment(python))
    ],
)
def test_a_package_is_pinned_within_the_range_asked_for(asked: Requirement, python: str) -> None:
    versions = [
        next(iter(pin.specifier)).version
        for pin in PINNED
        if canonicalize_name(pin.name) == canonicalize_name(asked.name)
        and (pin.marker is None or pin.marker.evaluate(environment(python)))
    ]
    assert len(versions) == 1, "run make lock"
    assert versions[0] in asked.specifier, "run make lock"


def test_every_pin_names_the_checksum_of_its_files() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text)[1:]
    assert len(entries) == len(PINNED)
    assert all("--hash=sha256:" in entry for entry in entries)
