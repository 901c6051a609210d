"""What the engine's own log says about a rank: its KV cache, the transport that it took, and why it died.

vLLM up to 0.31 prints tokens and concurrency in two lines and names the GPU; 0.32 prints one line with the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
# torch.distributed of one rank, and where it meets the others.
GROUP = re.compile(r"world_size=\d+ rank=\d+ .*distributed_init_method=(\S+) backend=(\w+)")
# NCCL with NCCL_DEBUG=INFO: `NET/IB : Using [0]rocep1s0f0:1/RoCE [1]roceP2p1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:...`.
NCCL_NET = re.compile(r"NCCL INFO NET/(\w+) ?: Using (.*)")
NCCL_DEVICE = re.compile(r"\[\d+\]([^\s:]+):[^\s]+")

# Lines that name a cause, the plainest first. A traceback ends with its cause, so of each kind the last line counts.
CAUSES = (
    # What our own program says of Ray, see ray_plan.py.
    re.compile(r"has not registered \S+ with Ray|is registered with Ray"),
    re.compile(r"out of memory|OutOfMemory|Cannot allocate memory", re.IGNORECASE),
    re.compile(r"No space left on device"),
    # Docker's own words when the container could not be started.
    re.compile(r"Error response from daemon: .+"),
    re.compile(r"\b(?:[A-Za-z_.]*(?:Error|Exception)): .+"),
    re.compile(r"died unexpectedly"),
    re.compile(r"\b(?:ERROR|FATAL|CRITICAL)\b"),
    re.compile(r"of rank \d+ ended with \d+|rank \d+ is gone: nothing answers"),
)
# What a rank says of another one; its own cause comes before it.
OTHERS = re.compile(
    r"Connection closed by peer|remote worker|Connection reset by peer|EngineDeadError|See stack trace"
    r"|rank \d+ is gone: nothing answers"
)
# How a line of our own goes on after the fact; whoever reads the cause gets his own.
REMEDY = re.compile(r"; limit: .*")
# How vLLM and NCCL begin a line; without it the same line of two processes is one.
HEAD = re.compile(r"^\(\S+ pid=\d+\)\s+|\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\]\s*")
# Lines and characters that are kept of a rank that died.
KEPT_LINES, KEPT_CHARACTERS = 40, 300


@dataclass(frozen=True)
class Figures:
    """What was read of one rank so far; None and empty where no line said it.

    `backend` and `meets` are of torch.distributed, `network` and `devices` of NCCL.
    """

    kv_tokens: int | None = None
    context: int | None = None
    concurrency: float | None = None
    backend: str = ""
    meets: str = ""
    network: str = ""
    devices: tuple[str, ...] = ()


def noticed(figures: Figures, line: str) -> Figures:
    """The figures after one more line."""
    if found := TOKENS.search(line):
        figures = replace(figures, kv_tokens=_number(found[1]))
    if found := CONCURRENCY.search(line):
        figures = replace(figures, context=_number(found[1]), concurrency=float(found[2]))
    if found := GROUP.search(line):
        figures = replace(figures, meets=found[1], backend=found[2])
    if found := NCCL_NET.search(line):
        figures = replace(figures, network=found[1], devices=tuple(NCCL_DEVICE.findall(found[2])))
    return figures


def cause(lines: Sequence[str]) -> str:
    """The line that says why a rank died, without what stands before its message; empty when none does."""
    plain = [HEAD.sub("", HEAD.sub("", line)).strip() for line in lines]
    own = [line for line in plain if line and not OTHERS.search(line)]
    for candidates in (own, [line for line in plain if line]):
        for pattern in CAUSES:
            found = [line for line in candidates if pattern.search(line)]
            if found:
                return REMEDY.sub("", found[-1])[:KEPT_CHARACTERS]
    return ""


def kept(lines: Iterable[str]) -> list[str]:
    """The last lines that say anything, as they are kept with the end of a rank."""
    return [line.rstrip()[:KEPT_CHARACTERS] for line in lines if line.strip()][-KEPT_LINES:]


def _number(text: str) -> int:
    return int(text.replace(",", ""))
