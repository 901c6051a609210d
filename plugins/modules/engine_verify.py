#!/usr/bin/python
"""Prove on the head that the engine serves what the profile expects."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_verify
short_description: Prove that the engine serves as the profile expects
description:
  - Asks the engine and judges its answers. The same prompt twice gives the same tokens, the engine's own counter moves,
    an answer can be streamed, sums and code are right, a number deep in a long prompt is found, and guessed tokens are
    accepted at every position.
  - Proofs that the profile does not expect are returned as skipped, and so are two answers that differ while others are
    served, as answers that share a batch are rounded otherwise. Code that a model writes is read and never run.
  - The key of the API is read from the file that the engine's container reads.
options:
  url:
    description: Base address of the engine's API. Filled in from the profile.
    type: str
    required: true
  model:
    description: The name under which the model is served. Filled in from the profile.
    type: str
    required: true
  executor:
    description: How the engine is run, which says what it calls its counters. Filled in from the profile.
    type: str
    choices: [mp, ray, llamacpp]
    default: mp
  context:
    description: Tokens of a request of full length, 0 when not known. Filled in from the profile.
    type: int
    default: 0
  expect:
    description: The section C(expect) of the profile. Filled in from there.
    type: dict
    default: {}
  quick:
    description: Prove no more than that tokens are generated, the same twice, and counted.
    type: bool
    default: false
  tokens:
    description: How many tokens to generate where no answer is needed.
    type: int
    default: 32
  needle_tokens:
    description: Length of the long prompt, cut to what the context holds.
    type: int
    default: 32768
  needle_depth:
    description: Where in the long prompt the number stands, from 0 to 1.
    type: float
    default: 0.5
  timeout:
    description: Seconds for one answer.
    type: int
    default: 600
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Prove what the profile expects
  sparkwright.cluster.engine_verify:
    needle_tokens: 100000
  when: sparkwright_rank == 0
"""

RETURN = r"""
proofs:
  description: Each proof with its outcome (ok, failed or skipped), what was found and the limit.
  returned: always
  type: list
  elements: dict
"""

from collections.abc import Callable, Mapping

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils import proofs
from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import (
    Answer,
    Counters,
    EngineError,
    chat,
    counters,
    generate,
    key_of,
    stream,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.proofs import Outcome, Proof, Result, judged

PROMPT = "Four sparks make one cluster and"
# Tokens of an answer to a question; a model that thinks first needs many.
THINKING = 2048
# Tokens of an answer by which guesses are judged, and of the one that holds the needle.
GUESSED = 256
FOUND = 24


class Asker:
    """Makes each proof with real requests."""

    def __init__(self, module: AnsibleModule) -> None:
        """Remember whom to ask."""
        self.asked = module.params
        self.access = {"timeout": self.asked["timeout"], "api_key": key_of()}

    def counters(self) -> Counters:
        """The engine's counters now."""
        return counters(self.asked["url"], self.asked["executor"], **self.access)

    def generate(self, prompt: str, tokens: int) -> Answer:
        """A completion, no longer than the context allows."""
        context = self.asked["context"]
        most = max(1, min(tokens, context // 2) if context else tokens)
        return generate(self.asked["url"], self.asked["model"], prompt, tokens=most, **self.access)

    def chat(self, question: str) -> str:
        """The answer to a question."""
        context = self.asked["context"]
        most = max(1, min(THINKING, context // 2) if context else THINKING)
        return chat(self.asked["url"], self.asked["model"], question, tokens=most, **self.access)

    def deterministic(self) -> Result:
        """The same prompt twice."""
        before = self.counters().generated
        first, second = (self.generate(PROMPT, self.asked["tokens"]) for _ in range(2))
        return proofs.same_twice(first, second, self.asked["tokens"], self.counters().generated - before)

    def counter(self) -> Result:
        """The counter before and after an answer."""
        before = self.counters()
        return proofs.counted(before, self.after(self.generate(PROMPT, self.asked["tokens"])), self.asked["tokens"])

    def after(self, _: object) -> Counters:
        """The counters once an answer is there."""
        return self.counters()

    def streaming(self) -> Result:
        """An answer in pieces."""
        asked = self.asked
        answer = stream(asked["url"], asked["model"], PROMPT, tokens=asked["tokens"], **self.access)
        return proofs.streamed(answer, asked["tokens"])

    def arithmetic(self) -> Result:
        """All sums."""
        return proofs.added_up([self.chat(question) for question, _ in proofs.SUMS])

    def code(self) -> Result:
        """A function."""
        return proofs.wrote_code(self.chat(proofs.CODE))

    def needle(self) -> Result:
        """A number deep in a long prompt, as long as the context allows."""
        filler = self.generate(proofs.FILLER, 1).prompt_tokens
        context, wanted = self.asked["context"], self.asked["needle_tokens"]
        # A tenth is kept back, as the filler's tokens are counted from a sample.
        length = min(wanted, int((context - FOUND) * 0.9)) if context else wanted
        depth = min(1.0, max(0.0, self.asked["needle_depth"]))
        return proofs.found_needle(self.generate(proofs.haystack(length, depth, filler or 1), FOUND), depth)

    def acceptance(self) -> Result:
        """The guesses of one answer."""
        expect, before = self.asked["expect"], self.counters()
        after = self.after(self.generate(PROMPT, GUESSED))
        return proofs.accepted(before, after, expect.get("acceptance", []), expect.get("tolerance", 0.15))


def prove(asker: Asker, expect: Mapping[str, object]) -> list[Result]:
    """Every proof; an engine that does not answer fails the one that asked."""
    makers: dict[Proof, Callable[[], Result]] = {proof: getattr(asker, proof.value) for proof in Proof}
    results = []
    for proof, reason in proofs.applying(expect, bool(asker.counters().accepted)):
        if reason:
            results.append(Result(proof, Outcome.SKIPPED, reason))
            continue
        try:
            results.append(makers[proof]())
        except (OSError, EngineError) as error:
            results.append(judged(proof, False, f"no answer: {error}", f"one within {asker.asked['timeout']} s"))
    return results


def main() -> None:
    """Ask, judge, and fail when a proof does."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "executor": {"type": "str", "default": "mp", "choices": ["mp", "ray", "llamacpp"]},
            "context": {"type": "int", "default": 0},
            "expect": {"type": "dict", "default": {}},
            "quick": {"type": "bool", "default": False},
            "tokens": {"type": "int", "default": 32, "no_log": False},
            "needle_tokens": {"type": "int", "default": 32768, "no_log": False},
            "needle_depth": {"type": "float", "default": 0.5},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    url, expect = module.params["url"], module.params["expect"]
    if module.params["quick"]:
        expect = {**expect, "proofs": [Proof.DETERMINISTIC, Proof.COUNTER]}
    try:
        results = prove(Asker(module), expect)
    except (OSError, EngineError) as error:
        module.fail_json(
            msg=f"{url} does not answer: {error}; limit: the engine's counters; remedy: look at `journalctl -u "
            "sparkwright-engine` on the head, then run playbooks/start.yml",
            proofs=[],
        )
    if module.params["quick"]:
        results = [result for result in results if result.outcome is not Outcome.SKIPPED]
    data = [result.as_data() for result in results]
    failed = [result for result in results if result.outcome is Outcome.FAILED]
    lines = [
        f"{url}: {one.proof}: {one.fact}; limit: {one.limit}; remedy: {REMEDIES[Proof(one.proof)]}" for one in failed
    ]
    if failed:
        module.fail_json(msg="\n".join(lines), proofs=data)
    module.exit_json(changed=False, proofs=data)


RESTART = "run playbooks/stop.yml, then playbooks/start.yml"
MODEL = "check weights and image against the profile with playbooks/doctor.yml"
REMEDIES = {
    Proof.DETERMINISTIC: RESTART,
    Proof.COUNTER: RESTART,
    Proof.STREAMING: RESTART,
    Proof.ARITHMETIC: MODEL,
    Proof.CODE: MODEL,
    Proof.NEEDLE: MODEL,
    Proof.ACCEPTANCE: "use an image whose draft knows the target's DCP, and a checkpoint with its MTP layer",
}


if __name__ == "__main__":
    main()
