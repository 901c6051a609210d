#!/usr/bin/env python3
"""Writes a checkpoint that is right in form and all zeros: make_checkpoint.py OUT.

For what copies and verifies checkpoints. Nothing could load it: there is no model that has these tensors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SHARDS = 3
# One tensor a shard, of this shape, in BF16, which takes two bytes a number.
SHAPE = (128, 256)


def shard(tensor: str) -> bytes:
    """A safetensors file: the length of its header as eight bytes, the header in JSON, the numbers."""
    size = 2 * SHAPE[0] * SHAPE[1]
    header = json.dumps({tensor: {"dtype": "BF16", "shape": SHAPE, "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def main() -> None:
    """Write shards, index and configuration."""
    out = Path(sys.argv[1])
    out.mkdir()
    names = {f"layers.{n}.weight": f"model-{n + 1:05}-of-{SHARDS:05}.safetensors" for n in range(SHARDS)}
    for tensor, name in names.items():
        (out / name).write_bytes(shard(tensor))
    index = {"metadata": {"total_size": 2 * SHAPE[0] * SHAPE[1] * SHARDS}, "weight_map": names}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
    (out / "config.json").write_text(json.dumps({"model_type": "zeros"}), encoding="utf-8")


if __name__ == "__main__":
    main()
