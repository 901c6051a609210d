"""The engine environment of the lab, and the interpreter that it is for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
# Where lab/build puts the environment, by the hash of its inputs.
PLACE = '. lab/common.sh && echo "$cache/engine-env-$(inputs_hash engine/{build-env,requirements.lock,platform})"'
# Seconds. The import alone takes ten on a machine that does nothing else.
PATIENCE = 300
# As in the lab's engine image (lab/engine/Containerfile), and quiet.
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


class Engine:
    """Runs programs in the engine environment at `place`."""

    def __init__(self, place: Path, python: str) -> None:
        self.place, self._python = place, python

    def ask(self, program: Path, question: Any, before: Path | None = None) -> Any:
        """What a program of ours answers in JSON, as its last line; the folder `before` is looked into first."""
        path = os.pathsep.join(str(folder) for folder in (before, self.place) if folder)
        done = subprocess.run(
            [self._python, str(program)],
            input=json.dumps(question),
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def python_311() -> str | None:
    """The interpreter that the environment is for, not that of a virtual environment."""
    if sys.version_info[:2] == (3, 11):
        return str(Path(sys.base_prefix) / "bin/python3.11")
    return shutil.which("python3.11")


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The environment; without it the tests are skipped."""
    place = subprocess.run(["bash", "-c", PLACE], cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()
    python = python_311()
    if not Path(place).is_dir() or python is None:
        pytest.skip(f"no engine environment {place} (lab/build makes it) or no CPython 3.11 to run it with")
    return Engine(Path(place), python)
