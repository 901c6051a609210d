#!/usr/bin/python
"""The note of what a node was when it served and answered."""

from __future__ import annotations

DOCUMENTATION = r"""
module: baseline
short_description: Note what a node was when it served and answered
description:
  - Writes C(/var/lib/sparkwright/provisioned.json), with which C(playbooks/doctor.yml) and
    C(playbooks/reprovision.yml) compare the node later. While nothing differs the note stays as it is.
  - An action plugin of the same name makes the items from facts.
options:
  facts:
    description: Name of the variable in which a task with C(sparkwright.cluster.node_facts) was registered, with all
      subsets, while the engine served.
    type: str
    required: true
  evidence:
    description: What proved that it served, such as the model.
    type: dict
    default: {}
  items:
    description: The node as names and values. Filled in from the facts.
    type: dict
attributes:
  check_mode:
    description: Writes nothing in check mode.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Note what served
  sparkwright.cluster.baseline:
    facts: evidence
    evidence:
      model: glm-5.2
"""

RETURN = r"""
differs:
  description: The items that were noted otherwise before.
  returned: always
  type: list
  elements: str
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.baseline import differing, items_in, make_baseline
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import BASELINE_FILE
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import write_atomically

# Changed by tests only.
NOTE = Path(BASELINE_FILE)


def noted() -> dict[str, Any] | None:
    """The note of before, None when there is none that can be read."""
    try:
        found = json.loads(NOTE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def main() -> None:
    """Compare, write."""
    module = AnsibleModule(
        argument_spec={
            "facts": {"type": "str", "required": True},
            "evidence": {"type": "dict", "default": {}},
            "items": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    items = {str(name): str(value) for name, value in module.params["items"].items()}
    was = items_in(noted())
    differs = differing(was or {}, items)
    changed = was is None or bool(differs)
    if changed and not module.check_mode:
        written = datetime.now(UTC).isoformat(timespec="seconds")
        note = make_baseline(items, module.params["evidence"], written)
        write_atomically(NOTE, (json.dumps(note, indent=1, sort_keys=True) + "\n").encode(), 0o644)
    module.exit_json(changed=changed, differs=differs)


if __name__ == "__main__":
    main()
