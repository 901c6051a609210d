"""Keeps what Python compiles from a zip file, as it keeps it for files: Ansible sends each module call as a new zip.

An emulated processor compiles for 10 s of each call; a third of all its time. Only what root runs is kept.
"""

# Every Python of the machine begins with this file, so it does without pathlib.
# ruff: noqa: PTH103, PTH105, PTH123
import marshal
import os
import sys
import zipimport
from _imp import source_hash

FOLDER = "/var/cache/sparkwright-lab"
compile_source = zipimport._compile_source


def compile_or_find(path: str, source: bytes):
    """The code that an earlier call kept for the same text, whatever the zip file was called."""
    kept = f"{FOLDER}/{source_hash(sys.hexversion, source).hex()}"
    try:
        with open(kept, "rb") as file:
            return marshal.load(file)
    except (OSError, EOFError, ValueError):
        code = compile_source(path, source)
    partial = f"{kept}.{os.getpid()}"
    with open(partial, "wb") as file:
        marshal.dump(code, file)
    os.replace(partial, kept)
    return code


if os.geteuid() == 0:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    zipimport._compile_source = compile_or_find
