"""How the engine image is looked into: one container without network, GPU and rights, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .facts import ImageGates
from .machine import json_or

CONTAINER = "sparkwright-gates"


def gates_argv(image_id: str, request: Mapping[str, Any], mounts: Sequence[str]) -> list[str]:
    """The command line; the program comes on standard input. Only /tmp can be written."""
    return [
        *("docker", "run", "--rm", "--interactive", "--name", CONTAINER, "--network", "none", "--read-only"),
        *("--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--env", "HOME=/tmp", "--env", "PYTHONDONTWRITEBYTECODE=1"),
        *(part for mount in mounts for part in ("--volume", mount)),
        *("--entrypoint", "python3", image_id, "-", json.dumps(request)),
    ]


def answer(code: int, out: str, err: str) -> tuple[ImageGates | None, str | None]:
    """What was found, or why nothing was: the last line of either output counts."""
    found = json_or(out.strip().rpartition("\n")[2], None)
    if code == 0 and isinstance(found, dict):
        # Written by image_probe.py, whose result is an ImageGates; JSON keeps no types.
        return found, None  # type: ignore[return-value]
    said = [line for line in err.strip().splitlines() if not line.startswith(("Run 'docker", "See 'docker"))]
    return None, " ".join(said[-1].split()) if said else f"python3 in it ended with code {code} and no answer"
