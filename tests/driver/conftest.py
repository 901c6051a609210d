from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from driver import STATE

Shell = Callable[[str, str], str]


@pytest.fixture(scope="session")
def on_node() -> Shell:
    """Run a shell command as root on a node and return what it printed; a failure is a failure of the test."""

    def run(node: str, command: str) -> str:
        argv = ["ssh", "-F", str(STATE / "ssh_config"), node, f"sudo sh -c {subprocess.list2cmdline([command])}"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{node}: {command} ended with {done.returncode}: {done.stderr}"
        return done.stdout.strip()

    return run
