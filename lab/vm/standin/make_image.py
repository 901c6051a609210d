#!/usr/bin/env python3
"""Writes the image of the engine's stand-in as `docker save` does: make_image.py TAG OUT.tar.

The image holds the stand-in alone, a few kilobytes; its Python is the node's, mounted by the lab's inventory. The image
ID follows from the content alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

# Debian's links from / into /usr, and where the image or the container engine puts something.
LINKS = {name: f"usr/{name}" for name in ("bin", "lib", "lib64")}
FOLDERS = ("usr", "usr/bin", "usr/lib", "usr/lib64", "usr/local", "usr/local/bin", "tmp")


def entry(name: str, kind: bytes, mode: int, link: str = "") -> tarfile.TarInfo:
    """An entry of an archive, without owner and time."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, link
    return info


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Put a file into an archive."""
    info = entry(name, tarfile.REGTYPE, mode)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def layer() -> bytes:
    """The file system of the image."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in FOLDERS:
            tar.addfile(entry(folder, tarfile.DIRTYPE, 0o755))
        for name, target in LINKS.items():
            tar.addfile(entry(name, tarfile.SYMTYPE, 0o777, target))
        add(tar, "usr/local/bin/vllm", Path(__file__).with_name("vllm").read_bytes(), 0o755)
    return out.getvalue()


def main() -> None:
    """Write the archive: the layer, the configuration named by its own hash, and the manifest."""
    tag, out = sys.argv[1:]
    content = layer()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/bin:/usr/bin"],
                "Labels": {"sparkwright.lab": "a stand-in for the engine, not an engine"},
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]
    with tarfile.open(out, "w") as tar:
        add(tar, "layer.tar", content)
        add(tar, name, config)
        add(tar, "manifest.json", json.dumps(manifest).encode())


if __name__ == "__main__":
    main()
