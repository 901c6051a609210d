"""Roles and plugins are documented, and the documentation agrees with what they do."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parents[1].name for path in ROOT.glob("roles/*/tasks/main.yml"))
MODULES = sorted(path.stem for path in ROOT.glob("plugins/modules/*.py"))
ACTIONS = sorted(path.stem for path in ROOT.glob("plugins/action/*.py"))
# The role that documents the variables which belong to the project and not to one role.
PROJECT_WIDE_ROLE = "preflight"
PROJECT_WIDE_PREFIX = "sparkwright_"
PYTHON_TYPES = {"str": str, "path": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict}


@cache
def load(path: str) -> dict[str, Any]:
    file = ROOT / path
    return (yaml.safe_load(file.read_text()) or {}) if file.exists() else {}


def defaults(role: str) -> dict[str, Any]:
    return load(f"roles/{role}/defaults/main.yml")


def options(role: str) -> dict[str, dict[str, Any]]:
    """The variables of all entry points of a role."""
    specs = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]
    return {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}


@cache
def ansible_doc(plugin_type: str) -> dict[str, Any]:
    """What `ansible-doc` says of all local plugins of one type, by short name."""
    names = {"role": ROLES, "module": MODULES}[plugin_type]
    command = ["ansible-doc", "-t", plugin_type, "--json", *(f"sparkwright.cluster.{name}" for name in names)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return {name.rpartition(".")[2]: doc for name, doc in json.loads(result.stdout).items()}


def has_type(value: Any, name: str) -> bool:
    """Whether a YAML value is of the type that a spec names; a template has its type only at run time."""
    if isinstance(value, str) and "{{" in value:
        return True
    if isinstance(value, bool):
        return name in ("bool", "raw")
    return name == "raw" or isinstance(value, PYTHON_TYPES[name])


def test_something_is_found() -> None:
    assert PROJECT_WIDE_ROLE in ROLES
    assert MODULES
    assert ACTIONS


def test_readmes_are_current() -> None:
    command = [sys.executable, "tools/role_docs", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"run `make docs`\n{result.stdout}{result.stderr}"


@pytest.mark.parametrize("role", ROLES)
def test_every_default_is_in_the_spec(role: str) -> None:
    """A project-wide variable belongs to no role alone: its default is in the spec, where the plan finds it."""
    specified = {
        name: option["default"]
        for name, option in options(role).items()
        if "default" in option and not name.startswith(PROJECT_WIDE_PREFIX)
    }
    assert defaults(role) == specified


@pytest.mark.parametrize("role", ROLES)
def test_every_default_has_the_type_of_its_spec(role: str) -> None:
    wrong = {name: value for name, value in defaults(role).items() if not has_type(value, options(role)[name]["type"])}
    assert wrong == {}


@pytest.mark.parametrize("role", ROLES)
def test_variables_bear_the_name_of_their_role(role: str) -> None:
    project_wide = {name for name in options(PROJECT_WIDE_ROLE) if name.startswith(PROJECT_WIDE_PREFIX)}
    assert [name for name in options(role) if not name.startswith(f"{role}_") and name not in project_wide] == []


@pytest.mark.parametrize("role", ROLES)
def test_role_is_documented(role: str) -> None:
    entry_points = ansible_doc("role")[role]["entry_points"]
    files = {path.stem for path in ROOT.glob(f"roles/{role}/tasks/*.yml")}
    assert "main" in entry_points
    assert set(entry_points) <= files
    for spec in entry_points.values():
        assert spec["short_description"]
        assert spec["description"]
        assert all(option["description"] for option in spec.get("options", {}).values())


@pytest.mark.parametrize("module", MODULES)
def test_module_is_documented(module: str) -> None:
    documentation = ansible_doc("module")[module]
    assert documentation["doc"]["short_description"]
    assert documentation["doc"]["description"]
    assert yaml.safe_load(documentation["examples"])
    assert documentation["return"]


@pytest.mark.parametrize("action", ACTIONS)
def test_action_has_a_module_that_documents_it(action: str) -> None:
    assert action in MODULES
