#!/usr/bin/python
"""Measure on the head how fast the engine serves."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_bench
short_description: Measure how fast the engine serves
description:
  - Streams answers and measures decode after a short and after a long prompt, prefill of the long one, and several
    requests at once. No prompt repeats the beginning of another, so nothing comes from the engine's prefix cache.
  - Returns the figures; an action plugin of the same name holds them against the profile and keeps them.
options:
  url:
    description: Base address of the engine's API. Filled in from the profile.
    type: str
    required: true
  model:
    description: The name under which the model is served. Filled in from the profile.
    type: str
    required: true
  context:
    description: Tokens of a request of full length, 0 when not known. Filled in from the profile.
    type: int
    default: 0
  long_tokens:
    description: Length of the long prompt, cut to what the context holds.
    type: int
    default: 32768
  answer_tokens:
    description: Tokens of each answer, cut to a quarter of the context.
    type: int
    default: 256
  requests:
    description: How many requests at once.
    type: int
    default: 1
  timeout:
    description: Seconds for one answer.
    type: int
    default: 1800
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Measure three requests at once, too
  sparkwright.cluster.engine_bench:
    requests: 3
  when: sparkwright_rank == 0
"""

RETURN = r"""
measured:
  description: Tokens a second by what was measured.
  returned: success
  type: dict
  sample: {decode: 22.4, decode_long: 13.1, prefill: 475.0, concurrent: 48.2}
sizes:
  description: Tokens of the prompts as the engine counted them, of the answers, and how many requests at once.
  returned: success
  type: dict
"""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils import speeds
from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import (
    EngineError,
    Streamed,
    generate,
    key_of,
    stream,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.proofs import FILLER


class Bench:
    """Measures with real requests."""

    def __init__(self, module: AnsibleModule) -> None:
        """Remember whom to ask, and learn how long the filler is. Raises OSError and EngineError."""
        asked = module.params
        self.place = (asked["url"], asked["model"])
        self.access = {"timeout": asked["timeout"], "api_key": key_of()}
        self.sizes = speeds.sizes(asked["context"], asked["long_tokens"], asked["answer_tokens"], asked["requests"])
        # The first answer after a start compiles kernels, so it is not measured.
        self.filler = max(1, generate(*self.place, FILLER, tokens=1, **self.access).prompt_tokens)

    def prompt(self, tokens: int) -> str:
        """About that many tokens that no earlier prompt began with."""
        words = FILLER.split()
        count = max(1, int((tokens - 8) * len(words) / self.filler))
        return " ".join([uuid.uuid4().hex[:4], *(words * (count // len(words) + 1))[:count]])

    def ask(self, prompt_tokens: int) -> Streamed:
        """One answer in pieces."""
        return stream(*self.place, self.prompt(prompt_tokens), tokens=self.sizes.answer, **self.access)

    def measure(self) -> tuple[dict[str, float], dict[str, int]]:
        """All figures, and the sizes that were really asked for."""
        short, long = self.ask(self.sizes.short), self.ask(self.sizes.long)
        measured = {
            "decode": speeds.decode_rate(short),
            "decode_long": speeds.decode_rate(long),
            "prefill": speeds.prefill_rate(long),
        }
        if self.sizes.requests > 1:
            start = time.monotonic()
            with ThreadPoolExecutor(self.sizes.requests) as pool:
                answers = list(pool.map(self.ask, [self.sizes.short] * self.sizes.requests))
            measured["concurrent"] = speeds.together_rate(answers, time.monotonic() - start)
        sizes = {"short": short.prompt_tokens, "long": long.prompt_tokens, "answer": short.tokens}
        return {key: round(rate, 2) for key, rate in measured.items()}, {**sizes, "requests": self.sizes.requests}


def main() -> None:
    """Measure and return."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "context": {"type": "int", "default": 0},
            "long_tokens": {"type": "int", "default": 32768, "no_log": False},
            "answer_tokens": {"type": "int", "default": 256, "no_log": False},
            "requests": {"type": "int", "default": 1},
            "timeout": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    try:
        measured, sizes = Bench(module).measure()
    except (OSError, EngineError) as error:
        module.fail_json(
            msg=f"{module.params['url']} does not answer: {error}; limit: {module.params['timeout']} s for an answer; "
            "remedy: run playbooks/verify.yml"
        )
    module.exit_json(changed=False, measured=measured, sizes=sizes)


if __name__ == "__main__":
    main()
