"""How far a rank has come, from the lines that its engine prints, and how long it may stay where it is.

The lines are vLLM's (those of 0.32 are in the tests; releases before it write some of them otherwise) and llama.cpp's.
A line that no pattern knows tells nothing, so an engine that prints other lines stays in the stage `container`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class LoadStage(StrEnum):
    """The stages of a launch, in their order."""

    # The ranks are not all there; no container runs, and no memory is taken.
    ROLL_CALL = "roll call"
    CONTAINER = "container"
    RENDEZVOUS = "rendezvous"
    WEIGHTS = "weights"
    CACHE = "KV cache"
    GRAPHS = "graphs"
    API = "API"
    READY = "ready"


ORDER = list(LoadStage)
# Minutes that a rank may stay in a stage, unless the profile says otherwise: a load of 410 GB takes about ten minutes,
# the graphs as long again. The roll call has no limit, as a node may be off for hours after a power cut.
MINUTES: Mapping[str, float] = {
    LoadStage.CONTAINER: 10,
    LoadStage.RENDEZVOUS: 10,
    LoadStage.WEIGHTS: 30,
    LoadStage.CACHE: 15,
    LoadStage.GRAPHS: 30,
    LoadStage.API: 10,
}
# The ranks above 0 print nothing between their weights and the first request, so only the head's stages say more.
WORKER_LIMITS = (LoadStage.CONTAINER, LoadStage.RENDEZVOUS, LoadStage.WEIGHTS)
# What is known of a rank that has its weights.
LOADED = "loaded"

# What a line says: the stage that it begins or is part of; its groups are the detail.
PATTERNS: tuple[tuple[re.Pattern[str], LoadStage, str], ...] = (
    (re.compile(r"world_size=(\d+) rank=\d+ .*distributed_init_method="), LoadStage.RENDEZVOUS, "meets {} ranks"),
    (re.compile(r"Starting to load model "), LoadStage.WEIGHTS, ""),
    (re.compile(r"Loading .*shards:.*\| (\d+)/(\d+) \["), LoadStage.WEIGHTS, "{} of {} shards"),
    (re.compile(r"(?:Loading weights|Model loading) took "), LoadStage.WEIGHTS, LOADED),
    (re.compile(r"Available KV cache memory: (\S+ GiB)"), LoadStage.CACHE, "{}"),
    (re.compile(r"(\S+ GiB) for KV cache"), LoadStage.CACHE, "{}"),
    (re.compile(r"KV cache size: ([\d,]+ tokens)"), LoadStage.CACHE, "{}"),
    (re.compile(r"Warming up model for the compilation"), LoadStage.GRAPHS, "compiles"),
    (re.compile(r"Capturing CUDA graphs?.*\| (\d+)/(\d+) \["), LoadStage.GRAPHS, "{} of {} graphs"),
    (re.compile(r"Graph capturing finished"), LoadStage.GRAPHS, "captured"),
    (re.compile(r"init engine \(.*\) took "), LoadStage.API, ""),
    (re.compile(r"Starting vLLM (?:API )?server|Application startup complete"), LoadStage.API, "listens"),
    # The head of llama.cpp; its RPC servers say nothing of the load.
    (re.compile(r"load_tensors: loading model tensors"), LoadStage.WEIGHTS, ""),
    (re.compile(r"llama_kv_cache\w*: size = +([\d.]+ MiB)"), LoadStage.CACHE, "{}"),
    (re.compile(r"main: server is listening on http"), LoadStage.API, "listens"),
)


@dataclass(frozen=True)
class Progress:
    """Where a rank is: the stage, what is known of it, and since when, in seconds since 1970."""

    stage: LoadStage
    since: float
    detail: str = ""

    def __str__(self) -> str:
        """The stage with its detail."""
        return f"{self.stage}: {self.detail}" if self.detail else str(self.stage)


def advanced(progress: Progress, line: str, now: float) -> Progress:
    """The progress after one more line of the log; a stage that is over never comes back."""
    for pattern, stage, words in PATTERNS:
        found = pattern.search(line)
        if found and ORDER.index(stage) >= ORDER.index(progress.stage):
            since = progress.since if stage is progress.stage else now
            return Progress(stage, since, words.format(*found.groups()))
    return progress


def at(stage: LoadStage, progress: Progress, now: float) -> Progress:
    """The progress once something other than the log says which stage it is."""
    return progress if stage is progress.stage else Progress(stage, now)


def limit_of(stage: LoadStage, limits: Mapping[str, float]) -> float:
    """Minutes that a rank may stay in a stage that has a limit; `limits` are those of the profile, by stage."""
    return limits.get(stage, MINUTES[stage])


def overdue(progress: Progress, now: float, limits: Mapping[str, float], head: bool) -> str:
    """Why a rank has stayed in its stage for too long, empty while it has not; `limits` are minutes by stage."""
    if progress.stage not in MINUTES or not (head or progress.stage in WORKER_LIMITS):
        return ""
    if progress.detail == LOADED and not head:
        # It waits for the head's cache and graphs, and says nothing any more.
        return ""
    limit = limit_of(progress.stage, limits)
    minutes = (now - progress.since) / 60
    return f"stage {progress} for {minutes:.0f} minutes; limit: {limit:g} minutes" if minutes > limit else ""
