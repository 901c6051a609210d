"""A client of the engine's OpenAI-style API, as small as its purpose: does the model generate, and does it count it.

A stream has a deadline for the whole of it; any other answer comes at once when it is there, and has one for each
read. It does network I/O.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .names import API_ENV_FILE

# A line of the metrics: name, labels, value.
SAMPLE = re.compile(r"^(\w+:\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Names:
    """What an engine calls its counters; a name is empty where it does not count that."""

    generated: str
    prompt: str
    requests: tuple[str, ...]
    drafts: str = ""
    accepted: str = ""


# From v1/metrics/loggers.py, and with --metrics from tools/server/server-task.cpp.
VLLM = Names(
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
)
LLAMACPP = Names(
    "llamacpp:tokens_predicted_total",
    "llamacpp:prompt_tokens_total",
    ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
)
NAMES: Mapping[str, Names] = {"mp": VLLM, "ray": VLLM, "llamacpp": LLAMACPP}


class EngineError(ValueError):
    """An answer that is none; the text is one plain line."""


@dataclass(frozen=True)
class Answer:
    """What came back: the text, and the number of tokens that the engine says it read and generated.

    `ids` are the tokens themselves, where the engine tells them.
    """

    text: str
    tokens: int
    prompt_tokens: int = 0
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Streamed:
    """An answer that came in pieces: the seconds from the question to each piece that was generated."""

    at: tuple[float, ...]
    tokens: int
    prompt_tokens: int
    whole: bool


@dataclass(frozen=True)
class Counters:
    """The engine's own counters, over all its replicas; `accepted` are guessed tokens by position, from 0."""

    generated: float
    prompt: float
    requests: int
    drafts: float = 0.0
    accepted: tuple[float, ...] = ()

    @property
    def tokens(self) -> float:
        """All tokens read and generated."""
        return self.generated + self.prompt


def key_of(path: str = API_ENV_FILE) -> str | None:
    """The key of the API from the file that the head's container reads; None when none is set."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return dict(line.split("=", 1) for line in lines if "=" in line).get("VLLM_API_KEY") or None


def generate(url: str, model: str, prompt: str, *, tokens: int, timeout: float, api_key: str | None = None) -> Answer:
    """One completion without sampling. Raises OSError, or EngineError when the answer is no completion."""
    body = {**_greedy(model, prompt, tokens), "return_token_ids": True}
    data = _json(_ask(f"{url}/v1/completions", timeout, api_key, body), url)
    try:
        choice, usage = data["choices"][0], data["usage"]
        ids = tuple(int(one) for one in choice.get("token_ids") or ())
        return Answer(str(choice["text"]), int(usage["completion_tokens"]), int(usage.get("prompt_tokens", 0)), ids)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"the answer of {url} is no completion: {error}") from None


def chat(url: str, model: str, question: str, *, tokens: int, timeout: float, api_key: str | None = None) -> str:
    """What the model answers to a question, with what it thought before. Raises like `generate`."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": tokens,
        "temperature": 0,
    }
    data = _json(_ask(f"{url}/v1/chat/completions", timeout, api_key, body), url)
    try:
        message = data["choices"][0]["message"]
        # A model that thinks first may have spent all its tokens on that.
        parts = (message.get("reasoning_content"), message.get("reasoning"), message["content"])
        return "\n".join(str(part) for part in parts if part)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError(f"the answer of {url} is no chat completion: {error}") from None


def stream(url: str, model: str, prompt: str, *, tokens: int, timeout: float, api_key: str | None = None) -> Streamed:
    """One completion piece by piece. Raises like `generate`, and TimeoutError when the whole took too long."""
    body = {**_greedy(model, prompt, tokens), "stream": True, "stream_options": {"include_usage": True}}
    start, at, whole = time.monotonic(), list[float](), False
    usage: Mapping[str, Any] = {}
    with _plain_errors(url), _open(f"{url}/v1/completions", timeout, api_key, body) as response:
        for data in _events(response):
            now = time.monotonic() - start
            if now > timeout:
                raise TimeoutError(f"the answer was not whole after {timeout:.0f} s")
            if data == "[DONE]":
                whole = True
                break
            piece = _json(data, url)
            if piece.get("choices"):
                at.append(now)
            usage = piece.get("usage") or usage
    try:
        return Streamed(tuple(at), int(usage["completion_tokens"]), int(usage["prompt_tokens"]), whole)
    except (KeyError, TypeError) as error:
        raise EngineError(f"the stream of {url} told no usage: {error}") from None


def counters(url: str, executor: str, *, timeout: float, api_key: str | None = None) -> Counters:
    """The engine's counters. Raises OSError, or EngineError without a count of generated tokens."""
    return parse_counters(_ask(f"{url}/metrics", timeout, api_key), executor, url)


def parse_counters(text: str, executor: str, url: str = "the engine") -> Counters:
    """The counters in the text of /metrics. Raises EngineError without a count of generated tokens."""
    names = NAMES[executor]
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for name, labels, value in SAMPLE.findall(text):
        sums[name] = sums.get(name, 0.0) + float(value)
        if name == names.accepted:
            position = int(dict(LABEL.findall(labels)).get("position", 0))
            positions[position] = positions.get(position, 0.0) + float(value)
    if names.generated not in sums:
        raise EngineError(f"{url} has no count of generated tokens")
    requests = sum(sums.get(name, 0.0) for name in names.requests)
    accepted = tuple(positions[position] for position in sorted(positions))
    return Counters(
        sums[names.generated], sums.get(names.prompt, 0.0), int(requests), sums.get(names.drafts, 0.0), accepted
    )


def _greedy(model: str, prompt: str, tokens: int) -> dict[str, Any]:
    return {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def _events(response: Any) -> Iterator[str]:
    """The data of server-sent events."""
    for raw in response:
        line = raw.decode(errors="replace").strip()
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


def _json(text: str, url: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise EngineError(f"the answer of {url} is no JSON: {error}") from None


@contextmanager
def _plain_errors(url: str) -> Iterator[None]:
    """An engine that dies within its answer, or something else that answers there, is an OSError as any other."""
    try:
        yield
    except http.client.HTTPException as error:
        raise OSError(f"{url} gave no whole answer: {error!r}") from None


def _ask(url: str, timeout: float, api_key: str | None, body: Mapping[str, Any] | None = None) -> str:
    with _plain_errors(url), _open(url, timeout, api_key, body) as response:
        return bytes(response.read()).decode(errors="replace")


def _open(url: str, timeout: float, api_key: str | None, body: Mapping[str, Any] | None = None) -> Any:
    """Ask. Raises URLError, which is an OSError; what the engine says of a refusal is part of it."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, headers=headers)
    # No proxy: the engine is a neighbour, and a proxy of the environment would answer in its place.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        said = " ".join(error.read(300).decode(errors="replace").split())
        raise OSError(f"HTTP {error.code} {said}".strip()) from None
