"""A client of the engine's OpenAI-style API, as small as its purpose: does the model generate, and does it count it."""

from __future__ import annotations

import json
import re
import urllib.request
from dataclasses import dataclass
from typing import Any

# The counters of generated tokens: vLLM's (vllm/v1/metrics/loggers.py), whose lines carry labels, and llama.cpp's
# (tools/server/server-task.cpp).
COUNTERS = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total")
COUNTER = re.compile(rf"^(?:{'|'.join(COUNTERS)})(?:\{{[^}}]*\}})? ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What came back: the text, and the number of tokens that the engine says it generated."""

    text: str
    tokens: int


def generate(url: str, model: str, prompt: str, *, tokens: int, timeout: float, api_key: str | None = None) -> Answer:
    """One completion without sampling. Raises URLError, OSError or ValueError when there is no valid answer."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    data = json.loads(_ask(f"{url}/v1/completions", timeout, api_key, json.dumps(body).encode()))
    try:
        return Answer(str(data["choices"][0]["text"]), int(data["usage"]["completion_tokens"]))
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the answer of {url} is no completion: {error}") from None


def generated_tokens(url: str, *, timeout: float, api_key: str | None = None) -> float:
    """The engine's own count of all tokens generated so far. Raises like `generate`."""
    found = COUNTER.findall(_ask(f"{url}/metrics", timeout, api_key))
    if not found:
        raise ValueError(f"{url}/metrics has no count of generated tokens")
    return sum(float(value) for value in found)


def _ask(url: str, timeout: float, api_key: str | None, body: bytes | None = None) -> str:
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(url, data=body, headers=headers)
    # No proxy: the engine is a neighbour, and a proxy of the environment would answer in its place.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as response:
        answer: Any = response.read()
    return bytes(answer).decode()
