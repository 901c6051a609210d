"""When an engine that serves is started again, and when that is given up. Pure: looks go in, decisions come out.

An engine that is busy is judged by its counters alone, because a probe would wait behind a long prompt; an idle one by
a generation. One restart is allowed within a day; what fails again, or before it ever answered, is stopped and
reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

# Seconds between two looks, and for an idle engine's one token.
LOOK_SECONDS = 60
ANSWER_SECONDS = 60
# So many looks in a row that fail are a failure; one may be a hiccup of the network.
FAILED_LOOKS = 2
# Seconds for which the counters of a busy engine may stand still: at 475 tokens a second a prompt of 131,072 tokens
# takes under 5 minutes, and no counter moves before it was read.
FROZEN_SECONDS = 900
# Restarts that are allowed within that many seconds.
RESTARTS, FORGIVEN_SECONDS = 1, 86_400


class Decision(StrEnum):
    """What is to be done after a failure."""

    AGAIN = "again"
    STOP = "stop"


@dataclass(frozen=True)
class Look:
    """One look at the engine.

    Attributes:
        at: Seconds since 1970.
        tokens: Sum of the counters of read and generated tokens; None when the engine did not say.
        requests: Requests that run or wait.
        generated: Whether an idle engine generated a token; None when it was busy and not asked.
    """

    at: float
    tokens: float | None = None
    requests: int = 0
    generated: bool | None = None


@dataclass(frozen=True)
class Watch:
    """What is known from earlier looks: failed ones in a row, and when the counters last moved."""

    failed: int = 0
    tokens: float | None = None
    moved: float = 0.0


def observed(watch: Watch, look: Look) -> tuple[Watch, str]:
    """The watch after a look, and why the engine has failed, empty while it has not."""
    if look.tokens is not None and look.tokens != watch.tokens:
        return Watch(0, look.tokens, look.at), ""
    if look.tokens is not None and look.generated is None and look.requests:
        return _while_busy(replace(watch, failed=0), look)
    if look.generated:
        return replace(watch, failed=0, moved=look.at), ""
    failed = replace(watch, failed=watch.failed + 1)
    if failed.failed < FAILED_LOOKS:
        return failed, ""
    return failed, f"{failed.failed} generations in a row failed; limit: {FAILED_LOOKS - 1}"


def _while_busy(watch: Watch, look: Look) -> tuple[Watch, str]:
    still = look.at - watch.moved
    if still < FROZEN_SECONDS:
        return watch, ""
    requests = "1 request runs" if look.requests == 1 else f"{look.requests} requests run"
    return watch, f"the token counters stood still for {still:.0f} s while {requests}; limit: {FROZEN_SECONDS} s"


def recent(restarts: Iterable[float], now: float) -> list[float]:
    """The restarts that still count, as seconds since 1970."""
    return [at for at in restarts if now - at < FORGIVEN_SECONDS]


def decide(restarts: Iterable[float], now: float, *, was_ready: bool, enabled: bool = True) -> Decision:
    """Whether the cluster is started again after a failure; `was_ready` is whether this launch ever answered."""
    if enabled and was_ready and len(recent(restarts, now)) < RESTARTS:
        return Decision.AGAIN
    return Decision.STOP
