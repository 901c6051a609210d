"""Runs a module's main() in this process and returns what it printed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args


def run_module(main: Callable[[], None], check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
    """The module's result, a failed one as well."""
    printed = io.StringIO()
    patched = patch_module_args({**arguments, "_ansible_check_mode": check_mode})
    with patched, redirect_stdout(printed), pytest.raises(SystemExit):
        main()
    return json.loads(printed.getvalue())
