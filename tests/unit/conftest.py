"""What several files of tests need from the machine that they run on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

NOBODY = 65534

# An example has no deadline of its own: the machine may be busy with the lab.
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


class OrdinaryUser:
    """While it is entered the tests run without root's rights, whoever started them; `root` is a folder for files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._own = os.geteuid()

    def __enter__(self) -> OrdinaryUser:
        if self._own == 0:
            os.seteuid(NOBODY)
        return self

    def __exit__(self, *_: object) -> None:
        os.seteuid(self._own)


@pytest.fixture
def ordinary_user():
    """The folder of `tmp_path` is closed to others, so this one is a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield OrdinaryUser(Path(folder))
        for path in Path(folder).rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755)
