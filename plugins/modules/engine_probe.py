#!/usr/bin/python
"""Does the engine serve? Asked with real generations and its own counter."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_probe
short_description: Prove that the engine serves
description:
  - Sends a completion, twice, and reads the engine's own counter of generated tokens before and after.
  - Fails unless both answers have the asked number of tokens, both are equal (nothing is sampled), and the counter
    moved by at least as many tokens.
options:
  url:
    description: Base address of the engine's API.
    type: str
    required: true
  model:
    description: The name under which the model is served.
    type: str
    required: true
  prompt:
    description: The text to complete.
    type: str
    default: Four sparks make one cluster and
  tokens:
    description: How many tokens to generate.
    type: int
    default: 16
  timeout:
    description: Seconds for one answer.
    type: int
    default: 120
  api_key:
    description: Bearer token of the API, where one is set.
    type: str
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Prove that the engine serves
  sparkwright.cluster.engine_probe:
    url: http://192.168.1.11:8000
    model: glm-5.2
"""

RETURN = r"""
text:
  description: What the model wrote.
  returned: success
  type: str
tokens:
  description: Number of tokens of one answer.
  returned: success
  type: int
counted:
  description: By how much the engine's counter moved.
  returned: success
  type: int
seconds:
  description: Wall time of the second answer.
  returned: success
  type: float
"""

import time
import urllib.error

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import generate, generated_tokens


def main() -> None:
    """Ask twice and count."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "prompt": {"type": "str", "default": "Four sparks make one cluster and"},
            "tokens": {"type": "int", "default": 16},
            "timeout": {"type": "int", "default": 120},
            "api_key": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    url, access = asked["url"], {"timeout": asked["timeout"], "api_key": asked["api_key"]}
    try:
        before = generated_tokens(url, **access)
        first = generate(url, asked["model"], asked["prompt"], tokens=asked["tokens"], **access)
        start = time.monotonic()
        second = generate(url, asked["model"], asked["prompt"], tokens=asked["tokens"], **access)
        seconds = time.monotonic() - start
        counted = int(generated_tokens(url, **access) - before)
    except (urllib.error.URLError, OSError, ValueError) as error:
        module.fail_json(
            msg=f"{url} does not generate: {error}; limit: an answer within {asked['timeout']} s; "
            "remedy: look at `journalctl -u sparkwright-engine` on the head, then run playbooks/start.yml"
        )
    faults = []
    if asked["tokens"] not in (first.tokens, second.tokens):
        faults.append(f"{first.tokens} and {second.tokens} tokens came back; limit: {asked['tokens']}")
    if first.text != second.text:
        faults.append("two answers to one prompt differ; limit: equal, as nothing is sampled")
    if counted < first.tokens + second.tokens:
        faults.append(f"the engine counted {counted} tokens; limit: at least {first.tokens + second.tokens}")
    if faults:
        module.fail_json(msg=f"{url}: {'; '.join(faults)}; remedy: run playbooks/stop.yml, then playbooks/start.yml")
    module.exit_json(changed=False, text=second.text, tokens=second.tokens, counted=counted, seconds=round(seconds, 2))


if __name__ == "__main__":
    main()
