"""Reads inventory, role specifications and profile for every plugin that works on the controller."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.template import Templar
from jsonschema import Draft202012Validator

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_build import (
    build_findings,
    distribution_findings,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import (
    GROUP,
    PROFILE,
    Inventory,
    Unreadable,
    owned_prefixes,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.mistakes import ALL_NODES, Mistake
from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import env_file
from ansible_collections.sparkwright.cluster.plugins.module_utils.option_values import Finding
from ansible_collections.sparkwright.cluster.plugins.module_utils.profile_rules import (
    contradictions,
)

# The collection is a symbolic link to the checkout, where roles/ and profiles/ are.
REPO = Path(__file__).resolve().parents[2]
KNOWN_BAD = REPO / "roles" / "os_update" / "files" / "known_bad.yml"


@dataclass(frozen=True)
class Source:
    """The inventory as data, and the file that its profile came from."""

    inventory: Inventory
    profile_file: Path | None


def read_inventory(templar: Templar, task_vars: Mapping[str, Any]) -> Source:
    """Everything that the rules and the plan look at; nothing is checked yet."""
    role_specs = load_role_specs(REPO / "roles")
    groups = plain(task_vars["groups"])
    nodes = groups.get(GROUP, [])
    prefixes = owned_prefixes(list(role_specs))
    hostvars = {host: read_variables(templar, task_vars["hostvars"], host, prefixes) for host in nodes}
    profiles = find_profiles([Path(task_vars.get("inventory_dir") or "."), REPO])
    profile_file = profiles.get(str(hostvars[nodes[0]].get(PROFILE))) if nodes else None
    inventory = Inventory(
        hostvars=hostvars,
        groups=groups,
        play_hosts=plain(task_vars["ansible_play_hosts_all"]),
        role_specs=role_specs,
        profile=load_profile(profile_file),
        profile_names=list(profiles),
    )
    return Source(inventory, profile_file)


def read_variables(templar: Templar, hostvars, host: str, prefixes: tuple[str, ...]) -> dict[str, object]:
    """Those of a host's variables that the rules look at, evaluated as that host sees them."""
    raw = hostvars.raw_get(host)
    own = templar.copy_with_new_env(available_variables={**raw, "hostvars": hostvars})
    names = [name for name in raw if name.startswith(prefixes) or name == "ansible_host"]
    return {name: evaluate(own, raw[name]) for name in names}


def profile_mistakes(profile: object) -> list[Mistake]:
    """What the profile's schema finds, one line each, and variables that no environment file can carry.

    A profile that could not be read has its own line already.
    """
    if not isinstance(profile, Mapping):
        return []
    schema = json.loads((REPO / "profiles" / "schema.json").read_text(encoding="utf-8"))
    errors = sorted(Draft202012Validator(schema).iter_errors(profile), key=lambda error: error.json_path)
    lines = [f"the profile at {error.json_path}: {error.message}" for error in errors]
    for section in ("engine_env", "nccl_env"):
        lines += environment_faults(section, profile.get(section))
    return [Mistake(ALL_NODES, line, "correct the profile") for line in lines]


def environment_faults(section: str, variables: object) -> list[str]:
    """Why a profile's variables cannot be written for Docker; what is no mapping of text has its line already."""
    if not isinstance(variables, Mapping):
        return []
    try:
        env_file({str(name): str(value) for name, value in variables.items()})
    except ValueError as error:
        return [f"the profile at $.{section}: {error}"]
    return []


def profile_contradictions(inventory: Inventory) -> list[Mistake]:
    """What contradicts itself in the profile of an inventory without a mistake; the profile has passed its schema."""
    name = inventory.value(inventory.nodes[0], PROFILE)
    image = str(inventory.value(inventory.nodes[0], "engine_image_ref") or "")
    found = contradictions(inventory.profile, image)
    return [
        *(Mistake(ALL_NODES, f"the profile {name} {what}", remedy) for what, remedy in found),
        *(Mistake(ALL_NODES, what, remedy) for what, remedy in image_findings(inventory, image)),
    ]


def image_findings(inventory: Inventory, ref: str) -> Iterator[Finding]:
    """What is wrong with how the engine image is built and travels."""
    names = ("engine_image_distribution", "engine_image_archive", "engine_image_build")
    way, archive, build = (inventory.value(inventory.nodes[0], name) for name in names)
    yield from distribution_findings(way, archive, build)
    if build:
        yield from build_findings(build, ref, inventory.profile.get("image", {}), read_patches())


def read_patches() -> dict[str, str]:
    """The patches of the checkout by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((REPO / "patches").glob("*.patch"))}


def load_role_specs(roles: Path) -> dict[str, dict[str, dict]]:
    """{role: {option: spec}} of every role that documents its variables, whatever the entry point."""
    files = {path.parts[-3]: load_mapping(path) for path in sorted(roles.glob("*/meta/argument_specs.yml"))}
    return {role: merge_entry_points(content["argument_specs"]) for role, content in files.items()}


def merge_entry_points(entry_points: dict[str, dict]) -> dict[str, dict]:
    """The options of all entry points of one role."""
    return {name: spec for entry in entry_points.values() for name, spec in (entry.get("options") or {}).items()}


def find_profiles(homes: Iterable[Path]) -> dict[str, Path]:
    """{name: file}; a profile beside the inventory comes before one of the checkout."""
    files: dict[str, Path] = {}
    for home in homes:
        for path in sorted(home.glob("profiles/*.yml")):
            files.setdefault(path.stem, path)
    return files


def load_profile(path: Path | None) -> dict | Unreadable | None:
    """The content of a profile, if there is one; a broken file is one mistake among others."""
    try:
        return load_mapping(path) if path else None
    except AnsibleActionFail as error:
        return Unreadable(one_line(error))


def load_mapping(path: Path) -> dict:
    """The YAML mapping in a file; anything else is a failure in one line."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise AnsibleActionFail(f"{path} cannot be read: {one_line(error)}") from None
    if not isinstance(data, dict):
        raise AnsibleActionFail(f"{path} does not hold a YAML mapping")
    return data


def evaluate(templar: Templar, value: object) -> object:
    """A variable's value; a template that fails is a value of its own kind and no reason to stop."""
    try:
        return plain(templar.template(value))
    except AnsibleError as error:
        return Unreadable(one_line(error))


def plain(value: object) -> object:
    """A copy in Python's own types: values from Ansible carry tags, and its containers evaluate lazily."""
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def one_line(error: Exception) -> str:
    """The text of an error without its line breaks."""
    return " ".join(str(error).split())
