#!/usr/bin/python
"""Start this node's rank, and let systemd read its unit first where that does no harm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_started
short_description: Start the engine's unit on a node
description:
  - Enables or disables the unit for the next boot, and with O(start) starts it and returns at once.
  - Lets systemd read its files again only when the unit's file changed and no engine runs on the node, because a reload
    can take the GPU away from a container.
  - A start by a person is a new beginning, so what rank and watchdog remember of earlier launches is forgotten.
options:
  start:
    description: Start the unit if it does not run.
    type: bool
    required: true
  at_boot:
    description: Whether the unit starts when the node boots.
    type: bool
    required: true
attributes:
  check_mode:
    description: Says what it would do.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Start this node's rank
  sparkwright.cluster.engine_started:
    start: true
    at_boot: true
"""

RETURN = r"""
acted:
  description: What was done, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["systemctl daemon-reload", "systemctl --no-reload enable sparkwright-engine.service"]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import Runtime, own_container
from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import Unit, start_commands
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_CONTAINER, ENGINE_UNIT
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import NodeReader
from ansible_collections.sparkwright.cluster.plugins.module_utils.rank import forget_launches

PROPERTIES = "LoadState,ActiveState,NeedDaemonReload"


def main() -> None:
    """Look, decide, act."""
    module = AnsibleModule(
        argument_spec={"start": {"type": "bool", "required": True}, "at_boot": {"type": "bool", "required": True}},
        supports_check_mode=True,
    )
    _, shown, _ = module.run_command(["systemctl", "show", ENGINE_UNIT, f"--property={PROPERTIES}"], check_rc=True)
    # Its status is 1 for a unit that is not enabled.
    _, enabled, _ = module.run_command(["systemctl", "is-enabled", ENGINE_UNIT])
    runtime: Runtime = NodeReader().runtime()
    container = own_container(runtime, ENGINE_CONTAINER)
    unit = Unit.parse(str(shown), str(enabled), container is not None and container["state"] == "running")
    commands = start_commands(unit, **module.params)
    if not module.check_mode:
        if unit.starts(module.params["start"]):
            forget_launches()
        for argv in commands:
            module.run_command(["systemctl", *argv], check_rc=True)
    acted = [" ".join(["systemctl", *argv]) for argv in commands]
    module.exit_json(changed=bool(acted), acted=acted)


if __name__ == "__main__":
    main()
