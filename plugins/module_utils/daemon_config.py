"""/etc/docker/daemon.json: our keys are added, the user's are kept, and a contradiction is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .names import DAEMON_FILE

# Registries that Docker speaks plain HTTP with. A set in the form of a list, and Docker reads it anew when it is told
# to (moby, daemon/reload.go); almost everything else needs a restart.
INSECURE = "insecure-registries"


class DaemonConfigError(ValueError):
    """The file cannot be merged; the text is one plain line without the host."""


def parse(text: str | None) -> dict[str, Any]:
    """The file as data; no file is an empty one. Raises DaemonConfigError when Docker could not read it either."""
    if not text or not text.strip():
        return {}
    try:
        data = json.loads(text)
    except ValueError as error:
        raise DaemonConfigError(f"{DAEMON_FILE} is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise DaemonConfigError(f"{DAEMON_FILE} is not an object")
    return data


def merge(current: Mapping[str, Any], wanted: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """`current` with the keys of `wanted` that it lacks, at every depth.

    Raises DaemonConfigError on a contradiction.
    """
    merged = dict(current)
    for key, value in wanted.items():
        name = f"{path}{key}"
        if key not in merged:
            merged[key] = value
        elif key == INSECURE and isinstance(merged[key], list):
            merged[key] = [*merged[key], *(entry for entry in value if entry not in merged[key])]
        elif isinstance(merged[key], Mapping) and isinstance(value, Mapping):
            merged[key] = merge(merged[key], value, f"{name}.")
        elif merged[key] != value:
            raise DaemonConfigError(f"{DAEMON_FILE} has {name}={merged[key]!r}, wanted is {value!r}")
    return merged


def restarts(current: Mapping[str, Any], merged: Mapping[str, Any]) -> bool:
    """Whether Docker must be restarted for what was merged; otherwise it is enough that it reads its file again."""
    return any(current.get(key) != value for key, value in merged.items() if key != INSECURE)


def dump(data: Mapping[str, Any]) -> str:
    """The file's text, in a stable order that keeps the user's own."""
    return json.dumps(data, indent=4) + "\n"
