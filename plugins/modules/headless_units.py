#!/usr/bin/python
"""All units that a headless node does without, off in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: headless_units
short_description: Turn off the units that a headless node does without, in one call
description:
  - Compares a policy with the units that the node has, and masks, disables or stops those that are not off yet.
  - Units that the node lacks are passed over. Units that no node can do without are refused.
  - Before the first change of a unit its state is recorded in C(/var/lib/sparkwright/before.json), once.
options:
  policy:
    description: What to turn off, in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the class of units.
        type: str
        required: true
      reason:
        description: Why a headless node does without them.
        type: str
        required: true
      action:
        description: C(mask) keeps everything from starting the unit, C(disable) only the boot. Both stop it.
        type: str
        choices: [mask, disable, stop]
        default: mask
      units:
        description: Full names of system units; a service together with its sockets and paths.
        type: list
        elements: str
        default: []
      user_units:
        description: Full names of units of the users' sessions, masked for all users.
        type: list
        elements: str
        default: []
  keep:
    description: Units that stay as they are although the policy names them.
    type: list
    elements: str
    default: []
  default_target:
    description: The target that the node boots into; empty leaves it alone.
    type: str
    default: ""
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Turn off printing
  sparkwright.cluster.headless_units:
    policy:
      - name: print
        reason: Nothing prints here.
        units: [cups.socket, cups.path, cups.service]
    default_target: multi-user.target
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode, such as C(mask cups.service).
  returned: always
  type: list
  elements: str
unknown:
  description: Units of the policy that this node does not have.
  returned: always
  type: list
  elements: str
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import remember
from ansible_collections.sparkwright.cluster.plugins.module_utils.units import (
    ACTIONS,
    Change,
    PolicyError,
    Unit,
    parse_units,
    plan,
)

# systemd reads every unit of the disk for one of these answers; a busy node needs longer than the 25 s of sd-bus.
PATIENCE = {"SYSTEMD_BUS_TIMEOUT": "120s"}

CLASS = {
    "name": {"type": "str", "required": True},
    "reason": {"type": "str", "required": True},
    "action": {"type": "str", "choices": list(ACTIONS), "default": "mask"},
    "units": {"type": "list", "elements": "str", "default": []},
    "user_units": {"type": "list", "elements": "str", "default": []},
}


class Systemctl:
    """The few calls of systemctl that are needed, each over all units at once."""

    def __init__(self, module: AnsibleModule) -> None:
        """Remember the module that runs the commands."""
        self.module = module

    def __call__(self, *arguments: str, names: Sequence[str] = ()) -> str:
        """Run systemctl; without any names after a verb that needs some, do nothing."""
        argv = ["systemctl", *arguments, *names]
        _, out, _ = self.module.run_command(argv, check_rc=True, environ_update=PATIENCE)
        return str(out)

    def units(self, scope: str) -> dict[str, Unit]:
        """All units of the system (`--system`), or those for all users (`--global`), which are never active here."""
        files = json.loads(self(scope, "list-unit-files", "--output=json"))
        loaded = json.loads(self("list-units", "--all", "--output=json")) if scope == "--system" else []
        return parse_units(files, loaded)

    def apply(self, scope: str, changes: Iterable[Change]) -> None:
        """Stop first, in one call, so that no socket starts its service again; then mask and disable."""
        todo = list(changes)
        active = [change.unit for change in todo if change.before.active]
        if active:
            self(scope, "stop", names=active)
        for verb in ("mask", "disable"):
            names = [change.unit for change in todo if change.verb == verb]
            if names:
                self(scope, verb, names=names)


def entries(changes: Iterable[Change]) -> dict[str, dict[str, Any]]:
    """The changes' former states as the record keeps them."""
    return {change.unit: {"state": change.before.state, "active": change.before.active} for change in changes}


def record(module: AnsibleModule, section: str, former: dict[str, Any]) -> None:
    """Keep what is about to change, or fail before it does."""
    try:
        remember(section, former)
    except ValueError as error:
        module.fail_json(msg=str(error))


def as_units(policy: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The policy for one scope; users' units are always masked, as nobody's session can be asked."""
    return [
        {"units": entry[key], "action": entry["action"] if key == "units" else "mask"} for entry in policy if entry[key]
    ]


def shown(changes: Sequence[Change]) -> tuple[str, str]:
    """The changes as the two sides of a diff."""
    results = {"mask": "masked", "disable": "disabled"}
    before = [f"{c.unit}: {c.before.state}{', active' if c.before.active else ''}\n" for c in changes]
    after = [f"{c.unit}: {results.get(c.verb, c.before.state)}\n" for c in changes]
    return "".join(before), "".join(after)


def main() -> None:
    """Decide, show, record, act."""
    module = AnsibleModule(
        argument_spec={
            "policy": {"type": "list", "elements": "dict", "options": CLASS, "required": True},
            "keep": {"type": "list", "elements": "str", "default": []},
            "default_target": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    asked, systemctl = module.params, Systemctl(module)
    system, user = systemctl.units("--system"), systemctl.units("--global")
    try:
        changes = plan(as_units(asked["policy"], "units"), system, asked["keep"])
        user_changes = plan(as_units(asked["policy"], "user_units"), user, asked["keep"])
    except PolicyError as error:
        module.fail_json(msg=str(error))
    target = systemctl("get-default").strip()
    new_target = asked["default_target"] if asked["default_target"] not in ("", target) else ""

    actions = [f"{c.verb} {c.unit}" for c in changes] + [f"{c.verb} {c.unit} for all users" for c in user_changes]
    if new_target:
        actions.append(f"boot into {new_target}")
    if actions and not module.check_mode:
        record(module, "units", entries(changes))
        record(module, "user_units", entries(user_changes))
        systemctl.apply("--system", changes)
        systemctl.apply("--global", user_changes)
        if new_target:
            record(module, "default_target", {"name": target})
            systemctl("set-default", names=[new_target])
    named = [name for entry in asked["policy"] for name in entry["units"] + entry["user_units"]]
    unknown = sorted(name for name in named if name not in system and name not in user)
    before, after = shown([*changes, *user_changes])
    if new_target:
        before, after = f"{before}boot: {target}\n", f"{after}boot: {new_target}\n"
    diff = {"before": before, "after": after}
    module.exit_json(changed=bool(actions), actions=actions, unknown=unknown, diff=diff)


if __name__ == "__main__":
    main()
