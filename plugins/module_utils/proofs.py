"""What is asked of a serving engine to prove it, and how the answers are judged. Pure: text and numbers go in.

What applies is data of the profile (`expect.proofs`): a random model generates the same tokens twice, and does no sums.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from .engine_client import Answer, Counters, Streamed


class Proof(StrEnum):
    """The proofs, in the order in which they are made."""

    DETERMINISTIC = "deterministic"
    COUNTER = "counter"
    STREAMING = "streaming"
    ARITHMETIC = "arithmetic"
    CODE = "code"
    NEEDLE = "needle"
    ACCEPTANCE = "acceptance"


class Outcome(StrEnum):
    """`skipped` is a proof that does not apply, and is said to be one."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Result:
    """One proof: what was found, against what."""

    proof: str
    outcome: Outcome
    fact: str
    limit: str = ""

    def as_data(self) -> dict[str, str]:
        """Plain data for JSON."""
        return {key: str(value) for key, value in asdict(self).items()}


def judged(proof: str, good: bool, fact: str, limit: str) -> Result:
    """A proof that was made."""
    return Result(proof, Outcome.OK if good else Outcome.FAILED, fact, limit)


# Questions that have one answer; no number of a question is the answer of another.
SUMS = (
    ("What is 17 times 23? Answer with the number.", "391"),
    ("What is 1204 minus 877? Answer with the number.", "327"),
    ("A box holds 12 eggs. How many eggs are in 14 boxes? Answer with the number.", "168"),
)
CODE_NAME = "is_prime"
CODE = (
    f"Write a Python function {CODE_NAME}(n) that returns True if n is a prime number and False otherwise. Code only."
)
FILLER = "The grass of the meadow is green, the water of the brook is cold, and the road goes on behind the hill. "
NEEDLE, SECRET = "The number of the boat in the old harbour is 58213. ", "58213"
QUESTION = "\nQuestion: What is the number of the boat in the old harbour?\nAnswer: The number of the boat is"
# Tokens that the question, the needle and the answer take besides the filler, generously.
NEEDLE_ROOM = 160


def applying(expect: Mapping[str, Any], guesses: bool) -> Iterator[tuple[Proof, str]]:
    """Every proof with the reason why it does not apply, empty when it does; `guesses` is whether there is a draft."""
    asked = expect.get("proofs", list(Proof))
    for proof in Proof:
        reason = "" if proof in asked else "the profile does not expect it"
        if proof is Proof.ACCEPTANCE and not reason and not guesses:
            reason = "the engine guesses no tokens"
        yield proof, reason


def same_twice(first: Answer, second: Answer, tokens: int, generated: float) -> Result:
    """Nothing is sampled, so two answers have the same tokens, and as many as were asked for.

    An answer that shares its batches with others is rounded otherwise than one alone, so two of them may differ and
    prove nothing. `generated` are the tokens that the engine generated meanwhile, for anybody.
    """
    compared = "tokens" if first.ids and second.ids else "texts"
    same = (first.ids, first.text) == (second.ids, second.text)
    others = int(generated - first.tokens - second.tokens)
    if not same and others > 0 and first.tokens == second.tokens == tokens:
        reason = f"others got {others} tokens meanwhile, and answers that share a batch may differ"
        return Result(Proof.DETERMINISTIC, Outcome.SKIPPED, reason)
    right = same and first.tokens == second.tokens == tokens
    fact = f"{first.tokens} and {second.tokens} tokens, {compared} {'equal' if same else 'different'}"
    return judged(Proof.DETERMINISTIC, right, fact, f"{tokens} equal tokens, as nothing is sampled")


def counted(before: Counters, after: Counters, tokens: int) -> Result:
    """The engine's own counter moved by what came back."""
    moved = int(after.generated - before.generated)
    return judged(Proof.COUNTER, moved >= tokens, f"the engine counted {moved} tokens", f"at least {tokens}")


def streamed(answer: Streamed, tokens: int) -> Result:
    """The answer came in pieces, with its end. An engine that guesses may send several tokens in a piece."""
    pieces = len(answer.at)
    good = answer.whole and pieces > 1 and answer.tokens == tokens
    fact = f"{answer.tokens} tokens in {pieces} pieces, {'with' if answer.whole else 'without'} an end"
    return judged(Proof.STREAMING, good, fact, f"{tokens} tokens in several pieces, with an end")


def added_up(answers: Sequence[str]) -> Result:
    """Every sum is right; digits may be grouped."""
    right = [has_number(answer, wanted) for answer, (_, wanted) in zip(answers, SUMS, strict=True)]
    return judged(Proof.ARITHMETIC, all(right), f"{sum(right)} of {len(SUMS)} sums are right", "all of them")


def has_number(answer: str, wanted: str) -> bool:
    """Whether a number stands in a text by itself."""
    return wanted in re.findall(r"\d+", answer.replace(",", ""))


def wrote_code(answer: str) -> Result:
    """The function can be compiled, has one argument, divides and returns. It is read and never run."""
    blocks = re.findall(r"```(?:python)?\n(.*?)```", answer, re.DOTALL) or [answer]
    good = any(_is_wanted(block) for block in blocks)
    fact = f"the answer {'has' if good else 'has no'} function {CODE_NAME}(n) that divides and returns"
    return judged(Proof.CODE, good, fact, "Python that compiles")


def _is_wanted(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == CODE_NAME:
            parts = list(ast.walk(function))
            divides = any(isinstance(part, (ast.Mod, ast.FloorDiv)) for part in parts)
            returns = any(isinstance(part, ast.Return) for part in parts)
            return divides and returns and len(function.args.args) == 1
    return False


def haystack(tokens: int, depth: float, filler_tokens: float) -> str:
    """A prompt of about that many tokens, with the needle at that share of its length."""
    lines = max(2, int((tokens - NEEDLE_ROOM) / filler_tokens))
    before = round(lines * depth)
    return FILLER * before + NEEDLE + FILLER * (lines - before) + QUESTION


def found_needle(answer: Answer, depth: float) -> Result:
    """The number in the middle of a long prompt comes back."""
    good = has_number(answer.text, SECRET)
    fact = f"{'found' if good else 'not found'} at {depth:.0%} of {answer.prompt_tokens} tokens"
    return judged(Proof.NEEDLE, good, fact, f"{SECRET} in the answer")


def accepted(before: Counters, after: Counters, expected: Sequence[float], tolerance: float) -> Result:
    """How many of the guessed tokens were right, by position."""
    rates = acceptance(before, after)
    shown = ", ".join(f"{rate:.2f}" for rate in rates) or "none"
    if not rates:
        return judged(Proof.ACCEPTANCE, False, "nothing was guessed", "guesses at every position")
    if not expected:
        # A position that is never right is what a draft that does not know the target's DCP looks like.
        return judged(Proof.ACCEPTANCE, min(rates) > 0, f"acceptance {shown}", "more than 0 at every position")
    least = [rate * (1 - tolerance) for rate in expected]
    good = len(rates) >= len(least) and all(rate >= want for rate, want in zip(rates, least, strict=False))
    limit = f"at least {', '.join(f'{rate:.2f}' for rate in least)}"
    return judged(Proof.ACCEPTANCE, good, f"acceptance {shown}", limit)


def acceptance(before: Counters, after: Counters) -> list[float]:
    """The share of drafts whose token at each position was right, between two looks at the counters."""
    drafts = after.drafts - before.drafts
    earlier = before.accepted or (0.0,) * len(after.accepted)
    moved = [now - then for now, then in zip(after.accepted, earlier, strict=True)]
    return [one / drafts for one in moved] if drafts > 0 else []
