"""Runs inside the engine image and says what is in there, as one line of JSON: image_probe.py REQUEST.

REQUEST is JSON, {"imports": [module], "marks": [{patch, file, text, within}], "preload": path}. It needs nothing but
Python 3.10, no GPU and no network. It judges nothing.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Seconds for one import; that of vLLM takes ten on a quiet machine.
PATIENCE = 180
# What vLLM's build writes about its commit, and what a version of it carries.
COMMIT = re.compile(r"commit_id[^=\n]*= *['\"]g?([0-9a-f]{7,40})['\"]|\+g([0-9a-f]{7,40})")
# Where the wheel of NCCL has its library, relative to the folder nvidia of the packages.
WHEEL = "nccl/lib/libnccl.so.2"


def version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def roots(package: str) -> Iterator[Path]:
    """The folder in which a package is, found without importing it."""
    with contextlib.suppress(ImportError, ValueError):
        spec = find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            yield Path(place).parent


def commit() -> str | None:
    """The commit that vLLM was built from."""
    texts = [root.joinpath("vllm/_version.py") for root in roots("vllm")]
    found = [COMMIT.search(path.read_text(encoding="utf-8")) for path in texts if path.exists()]
    found.append(COMMIT.search(version("vllm") or ""))
    return next((match[1] or match[2] for match in found if match), None)


def imported(module: str) -> str:
    """Empty when a module can be imported, else the reason; in a process of its own, which may crash."""
    argv = [sys.executable, "-c", "import importlib, sys; importlib.import_module(sys.argv[1])", module]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {PATIENCE} s"
    if not done.returncode:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it ended with code {done.returncode}"


def marked(mark: dict[str, str]) -> str:
    """Empty when a patch shows in the sources, else the reason."""
    path = next((r / mark["file"] for r in roots(mark["file"].partition("/")[0]) if (r / mark["file"]).exists()), None)
    if path is None:
        return f"there is no {mark['file']}"
    text = path.read_text(encoding="utf-8")
    within = mark.get("within")
    if within:
        text = "\n".join(functions(text, within))
        if not text:
            return f"{mark['file']} has no function {within}"
    place = f"{within} of {mark['file']}" if within else mark["file"]
    return "" if mark["text"] in text else f"{place} does not have {mark['text']}"


def functions(text: str, name: str) -> list[str]:
    """The sources of all functions of that name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds) and node.name == name]
    return [ast.get_source_segment(text, node) or "" for node in nodes]


def nccl(preload: str) -> tuple[str | None, str]:
    """The version of the NCCL that the engine would load, and its path or why it cannot be loaded."""
    preloaded = [name for name in preload.replace(":", " ").split() if "libnccl" in name]
    wheels = [str(root / WHEEL) for root in roots("nvidia.nccl") if (root / WHEEL).exists()]
    path = [*preloaded, *wheels, "libnccl.so.2"][0]
    number = ctypes.c_int()
    try:
        code = ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError) as error:
        return None, str(error)
    return (None, f"ncclGetVersion of {path} failed with {code}") if code else (dotted(number.value), path)


def dotted(number: int) -> str:
    """NCCL's number of a version, such as 23004, as 2.30.4."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def strays() -> list[str]:
    """Files by which an image configures NCCL behind everybody's back."""
    names = ["/etc/nccl.conf", "/root/.nccl.conf", "~/.nccl.conf", os.environ.get("NCCL_CONF_FILE", "")]
    return sorted({str(path) for path in map(Path, names) if path.expanduser().is_file()})


def look(request: dict[str, Any]) -> dict[str, Any]:
    """Everything."""
    found, how = nccl(request["preload"])
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "vllm": version("vllm"),
        "commit": commit(),
        "ray": version("ray"),
        "nccl": found,
        "nccl_from": how,
        "imports": {module: imported(module) for module in request["imports"]},
        "marks": {mark["patch"]: marked(mark) for mark in request["marks"]},
        "strays": strays(),
    }


if __name__ == "__main__":
    print(json.dumps(look(json.loads(sys.argv[1]))))
