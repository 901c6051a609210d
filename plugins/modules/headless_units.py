#!/usr/bin/python
"""All units that a headless node does without, off in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: headless_units
short_description: Turn off the units that a headless node does without, in one call
description:
  - Compares a policy with the units that the node has, and masks, disables or stops those that are not off yet.
  - A service goes together with the socket and the path of the same name. Units of users' sessions are masked for all
    users, and stopped in the sessions that run.
  - Units that the node lacks are passed over. Units that no node can do without are refused.
  - Before the first change of a unit its state is recorded in C(/var/lib/sparkwright/before.json), once. The module
    M(sparkwright.cluster.restored) puts it back.
  - While the engine runs, systemd is not told to read its configuration again, which can cost a container its GPU. A
    mask then holds from the next start on.
options:
  policy:
    description:
      - What to turn off, in this order. The first entry that names a unit decides about it.
      - Several entries may share a name; they are switched together.
    type: list
    elements: dict
    required: true
    suboptions: &entry
      name:
        description: Name of the class of units.
        type: str
        required: true
      reason:
        description: Why a headless node does without them.
        type: str
        required: true
      cost:
        description: What a person will miss.
        type: str
        default: ""
      "on":
        description: Whether the class is turned off when O(classes) does not say.
        type: bool
        default: true
      action:
        description:
          - C(mask) keeps everything from starting the unit, C(disable) only the boot, C(stop) nothing. All stop it.
          - A unit whose own file lies in C(/etc/systemd/system) cannot be masked and is disabled.
        type: str
        choices: [mask, disable, stop]
        default: mask
      units:
        description: Full names of system units. C(*) stands for any text.
        type: list
        elements: str
        default: []
      user_units:
        description: Full names of units of the users' sessions, always masked.
        type: list
        elements: str
        default: []
      unless:
        description: Names of units; while one of them is active on the node, the entry is left out with a warning.
        type: list
        elements: str
        default: []
  more:
    description: The user's own entries, which come before O(policy). A unit that the node lacks is warned about.
    type: list
    elements: dict
    default: []
    suboptions: *entry
  classes:
    description: Switches by the name of a class, true to turn it off, false to leave it alone.
    type: dict
    default: {}
  keep:
    description: Units that stay as they are although the policy names them, with their sockets and paths.
    type: list
    elements: str
    default: []
  default_target:
    description: The target that the node boots into; empty leaves it alone.
    type: str
    default: ""
  local_names:
    description:
      - Names in .local by which the inventory reaches nodes. As long as there are any, the service that resolves them
        stays, with a warning, unless O(classes) switches its class on by name.
    type: list
    elements: str
    default: []
  end_sessions:
    description: Stop a display manager although somebody is logged in at the desktop, which ends that session.
    type: bool
    default: false
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Turn off printing
  sparkwright.cluster.headless_units:
    policy:
      - name: print
        reason: Nothing prints here.
        units: [cups.service]
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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_UNIT
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import remember
from ansible_collections.sparkwright.cluster.plugins.module_utils.systemd import (
    DEFAULT_TARGET,
    GLOBAL,
    SYSTEM,
    Systemctl,
    SystemdError,
    is_own_file,
    links_of,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.units import (
    ACTIONS,
    WIFI,
    Change,
    PolicyError,
    Unit,
    choose,
    expand,
    held_back,
    plan,
    refuse_to_log_out,
    unknown,
)

ENTRY = {
    "name": {"type": "str", "required": True},
    "reason": {"type": "str", "required": True},
    "cost": {"type": "str", "default": ""},
    "on": {"type": "bool", "default": True},
    "action": {"type": "str", "choices": list(ACTIONS), "default": "mask"},
    "units": {"type": "list", "elements": "str", "default": []},
    "user_units": {"type": "list", "elements": "str", "default": []},
    "unless": {"type": "list", "elements": "str", "default": []},
}

NETDEVS = Path("/sys/class/net")

Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Todo:
    """All that one node needs.

    Attributes:
        system: Changes of the system's units.
        users: Changes of the units of all users' sessions.
        sessions: {user id: units to stop in the session that runs}.
        target: The default target now and as it is to be, or None when it is right.
    """

    system: Sequence[Change]
    users: Sequence[Change]
    sessions: Mapping[int, Sequence[str]]
    target: tuple[str, str] | None

    def actions(self) -> list[str]:
        """What is to be done, a line each."""
        lines = [f"{c.verb} {c.unit}" for c in self.system]
        lines += [f"{c.verb} {c.unit} for all users" for c in self.users]
        lines += [f"stop {unit} of user {user}" for user, units in self.sessions.items() for unit in units]
        return lines + ([f"boot into {self.target[1]}"] if self.target else [])

    def diff(self) -> dict[str, str]:
        """The two sides of a diff."""
        results = {"mask": "masked", "disable": "disabled"}
        rows = [
            (c.unit, f"{c.before.state}{', active' if c.before.active else ''}", results.get(c.verb, c.before.state))
            for c in [*self.system, *self.users]
        ]
        rows += [(f"{unit} of user {u}", "active", "inactive") for u, units in self.sessions.items() for unit in units]
        rows += [("boot", *self.target)] if self.target else []
        before, after = (("".join(f"{row[0]}: {row[side]}\n" for row in rows)) for side in (1, 2))
        return {"before": before, "after": after}

    def record(self) -> dict[str, dict[str, Any]]:
        """The sections of the record that say how it was."""
        entries: dict[str, dict[str, Any]] = {
            "units": _former(self.system),
            "user_units": _former(self.users),
            "sessions": {
                f"{user}/{unit}": {"user": user, "unit": unit}
                for user, units in self.sessions.items()
                for unit in units
            },
        }
        if self.target:
            entries["default_target"] = {"name": self.target[0], "linked": DEFAULT_TARGET.is_symlink()}
        return entries


def _former(changes: Iterable[Change]) -> dict[str, Any]:
    return {
        change.unit: {
            "state": change.before.state,
            "active": change.before.active,
            # A mask leaves them in place.
            "links": links_of(change.unit) if change.verb == "disable" else {},
        }
        for change in changes
    }


def as_units(policy: Entries, key: str) -> list[dict[str, Any]]:
    """The policy for one scope; users' units are always masked, as nobody's session can be asked."""
    return [{"units": entry[key], "action": entry["action"] if key == "units" else "mask"} for entry in policy]


def wifi_up() -> str | None:
    """A wireless interface that is up, if the node has one."""
    wireless = [path.parent for path in NETDEVS.glob("*/phy80211")]
    return next((path.name for path in wireless if (path / "operstate").read_text().strip() == "up"), None)


def names_in(policy: Entries) -> list[str]:
    """Every name of a unit, or pattern, in a policy."""
    return [name for entry in policy for name in [*entry["units"], *entry["user_units"]]]


class Node:
    """What the node has, and what that makes of a policy."""

    def __init__(self, systemctl: Systemctl, asked: Mapping[str, Any]) -> None:
        """Ask systemd, and collect what must be warned about."""
        self.systemctl, self.asked = systemctl, asked
        self.system, self.users = systemctl.units(SYSTEM), systemctl.units(GLOBAL)
        self.policy, self.warnings = self._policy()
        self.keep = [*asked["keep"], *self._wifi()]
        self.warnings += [f"headless_more names {name}, which this node lacks" for name in self.unknown(asked["more"])]

    def unknown(self, policy: Entries) -> list[str]:
        """The names of a policy that mean nothing on this node."""
        return unknown(names_in(policy), {**self.users, **self.system})

    def todo(self) -> Todo:
        """What must be done. Raises PolicyError when it must not."""
        own = [name for entry in self.policy for name in expand(entry["units"], self.system) if is_own_file(name)]
        system = plan(as_units(self.policy, "units"), self.system, self.keep, own)
        if not self.asked["end_sessions"]:
            refuse_to_log_out(system, self.systemctl.at_the_desktop())
        users = plan(as_units(self.policy, "user_units"), self.users, self.keep)
        now, wanted = self.systemctl.default_target(), self.asked["default_target"]
        return Todo(system, users, self._sessions(), (now, wanted) if wanted not in ("", now) else None)

    def _policy(self) -> tuple[list[Mapping[str, Any]], list[str]]:
        entries = [*self.asked["more"], *self.asked["policy"]]
        chosen, warnings = choose(entries, self.asked["classes"], self.asked["local_names"])
        held = held_back(chosen, self.system)
        warnings += [f"the class {name} stays on, because {unit} is active" for name, unit in held.items()]
        return [entry for entry in chosen if entry["name"] not in held], warnings

    def _wifi(self) -> list[str]:
        netdev = wifi_up()
        if netdev and WIFI in names_in(self.policy):
            self.warnings.append(f"{WIFI} stays on, because {netdev} is up and may carry the connection")
        return [WIFI] if netdev else []

    def _sessions(self) -> dict[int, list[str]]:
        """The units of the policy that run in users' sessions; masked ones may still run there."""
        policy = as_units(self.policy, "user_units")
        found = {}
        for user, active in self.systemctl.sessions().items():
            running = {name: Unit("static", name in active) for name in [*self.users, *active]}
            found[user] = [change.unit for change in plan(policy, running, self.keep) if change.before.active]
        return {user: units for user, units in found.items() if units}


def apply(systemctl: Systemctl, todo: Todo, engine_runs: bool) -> list[str]:
    """Record, then act; returns warnings. Raises ValueError like `remember`, and SystemdError."""
    for section, former in todo.record().items():
        remember(section, former)
    options = ["--no-reload"] if engine_runs else []
    systemctl.turn_off(SYSTEM, todo.system, options)
    systemctl.turn_off(GLOBAL, todo.users)
    if todo.target:
        systemctl(SYSTEM, "set-default", *options, todo.target[1])
    return [warning for user, units in todo.sessions.items() for warning in end(systemctl, user, units)]


def end(systemctl: Systemctl, user: int, units: Sequence[str]) -> list[str]:
    """Stop units in one user's session, which may end at any moment."""
    try:
        # Only then the session knows the masks, and nothing starts the units again.
        systemctl(user, "daemon-reload")
        systemctl(user, "stop", *units)
    except SystemdError as error:
        return [str(error)]
    return []


def main() -> None:
    """Decide, show, record, act."""
    entries = {"type": "list", "elements": "dict", "options": ENTRY}
    module = AnsibleModule(
        argument_spec={
            "policy": {**entries, "required": True},
            "more": {**entries, "default": []},
            "classes": {"type": "dict", "default": {}},
            "keep": {"type": "list", "elements": "str", "default": []},
            "default_target": {"type": "str", "default": ""},
            "local_names": {"type": "list", "elements": "str", "default": []},
            "end_sessions": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    systemctl = Systemctl(lambda argv, environment: module.run_command(list(argv), environ_update=dict(environment)))
    try:
        node = Node(systemctl, module.params)
        todo = node.todo()
        warnings = list(node.warnings)
        if todo.actions() and not module.check_mode:
            engine = node.system.get(ENGINE_UNIT)
            warnings += apply(systemctl, todo, engine is not None and engine.active)
    except (PolicyError, SystemdError, ValueError) as error:
        module.fail_json(msg=str(error))
    for warning in warnings:
        module.warn(warning)
    actions = todo.actions()
    module.exit_json(changed=bool(actions), actions=actions, unknown=node.unknown(node.policy), diff=todo.diff())


if __name__ == "__main__":
    main()
