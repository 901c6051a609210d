"""Runs inside the environment of vLLM, stock or patched: what does create_draft_parallel_config make of a target?

Reads a JSON list of [tp, dcp, interleave, draft tp] and writes, as the last line, for each the draft's
[tp, dcp, interleave, DCP backend].
"""

from __future__ import annotations

import json
import sys

from vllm.config import ParallelConfig, SpeculativeConfig


def draft(tp: int, dcp: int, interleave: int, draft_tp: int) -> list:
    """The draft's parallel configuration of one target; the executor keeps it from asking for GPUs."""
    target = ParallelConfig(
        tensor_parallel_size=tp,
        decode_context_parallel_size=dcp,
        cp_kv_cache_interleave_size=interleave,
        dcp_comm_backend="ag_rs",
        distributed_executor_backend="external_launcher",
    )
    made = SpeculativeConfig.create_draft_parallel_config(target, draft_tp)
    return [
        made.tensor_parallel_size,
        made.decode_context_parallel_size,
        made.cp_kv_cache_interleave_size,
        made.dcp_comm_backend,
    ]


if __name__ == "__main__":
    print(json.dumps([draft(*target) for target in json.load(sys.stdin)]))
