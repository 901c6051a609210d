"""How fast the engine serves, from the times of its answers, and whether that is what the profile expects. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .engine_client import Streamed

# What is measured, in the order of the report: key, what it is, unit.
MEASURES: Mapping[str, tuple[str, str]] = {
    "decode": ("decode after a short prompt", "tok/s"),
    "decode_long": ("decode after a long prompt", "tok/s"),
    "prefill": ("prefill", "tok/s"),
    "concurrent": ("decode of several requests in sum", "tok/s"),
}
# Share by which a speed may stay behind what is expected, unless the profile says otherwise.
TOLERANCE = 0.15


@dataclass(frozen=True)
class Sizes:
    """Tokens of the prompts and answers of a bench; `requests` at once."""

    short: int
    long: int
    answer: int
    requests: int


def sizes(context: int, long: int, answer: int, requests: int) -> Sizes:
    """What is asked for, cut to what one request of full length can be; 0 is an unknown length."""
    if not context:
        return Sizes(16, long, answer, requests)
    answer = min(answer, max(2, context // 4))
    # A tenth is kept back: a prompt is made of words, and its tokens are counted by the engine alone.
    most = max(8, int((context - answer) * 0.9))
    return Sizes(min(16, most), min(long, most), answer, requests)


def decode_rate(answer: Streamed) -> float:
    """Tokens a second after the first piece; 0 when there was one piece alone."""
    if len(answer.at) < 2:
        return 0.0
    # The first piece holds at least one token; with guesses it may hold more, which counts a little too much.
    return (answer.tokens - 1) / max(answer.at[-1] - answer.at[0], 1e-9)


def prefill_rate(answer: Streamed) -> float:
    """Tokens of the prompt a second until the first piece."""
    return answer.prompt_tokens / max(answer.at[0], 1e-9) if answer.at else 0.0


def together_rate(answers: Sequence[Streamed], seconds: float) -> float:
    """Tokens of all answers a second, from the first question to the last piece."""
    return sum(answer.tokens for answer in answers) / max(seconds, 1e-9)


def too_slow(measured: Mapping[str, float], expected: Mapping[str, float], tolerance: float) -> list[str]:
    """A line for each speed that stays behind what the profile expects."""
    lines = []
    for key, (what, unit) in MEASURES.items():
        if key in expected and key in measured and measured[key] < expected[key] * (1 - tolerance):
            limit = f"{expected[key] * (1 - tolerance):.1f} {unit}, the expected {expected[key]:g} less {tolerance:.0%}"
            lines.append(f"{what} is {measured[key]:.1f} {unit}; limit: {limit}")
    return lines


def line(measured: Mapping[str, float], expected: Mapping[str, float]) -> str:
    """All speeds in one line, each with what is expected of it."""
    parts = []
    for key, (what, unit) in MEASURES.items():
        if key in measured:
            against = f" (expected {expected[key]:g})" if key in expected else ""
            parts.append(f"{what} {measured[key]:.1f} {unit}{against}")
    return ", ".join(parts)
