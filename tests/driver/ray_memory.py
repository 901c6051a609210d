"""Runs on a node as root: prints as JSON the memory of the Ray in a container, process by process.

    python3 ray_memory.py CONTAINER

The figures are the proportional set size (PSS) in kB: a page that several processes share is counted once in all. Ranks
of the engine, which Ray starts as workers, and the engine itself are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

# How a process of the engine calls itself, and how its command line begins.
ENGINE = re.compile(r"^(ray::RayWorker|VLLM|python3 -m vllm)")
INTERPRETER = re.compile(r"^\S*python[0-9.]*$")


def name_of(words: list[str]) -> str:
    """A name by which a process can be told from the others of the same interpreter."""
    if not INTERPRETER.match(words[0]):
        return Path(words[0].split(" ")[0]).name
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return "/".join(Path(script).parts[-2:])


def main() -> None:
    """Print the figures."""
    top = subprocess.run(["docker", "top", sys.argv[1], "-eo", "pid"], capture_output=True, text=True, check=True)
    found: dict[str, int] = {}
    for pid in top.stdout.split()[1:]:
        try:
            words = [word for word in Path(f"/proc/{pid}/cmdline").read_text().split("\0") if word]
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        if words and not ENGINE.match(" ".join(words).replace(words[0], Path(words[0]).name, 1)):
            pss = re.search(r"^Pss:\s+(\d+) kB$", rollup, re.MULTILINE)
            found[name_of(words)] = found.get(name_of(words), 0) + int(pss[1] if pss else 0)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
