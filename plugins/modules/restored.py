#!/usr/bin/python
"""Puts a node back as it was before our first change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: restored
short_description: Put a node back as it was before our first change
description:
  - Reads C(/var/lib/sparkwright/before.json) on the node, and puts back files (bytes, mode, owner), units, the default
    target, and what each role recorded of its own, such as live kernel settings and the state of links.
  - It needs nothing but that record. It may be stopped at any point and run again.
  - What a file held until now is kept in the record under C(replaced). Folders that were made for our files go when
    they are empty. Packages, images, weights and caches are no part of the record and stay.
  - Docker is restarted only when its configuration was put back. A netplan file is put back but not applied, because
    that can cut the connection; the result asks for it, and the module is then called once more.
  - At the end the record becomes C(before.json.restored), so that the next change is recorded anew.
  - While the engine serves it refuses.
options:
  netplan_applied:
    description: Say that C(netplan apply) ended well after the result asked for it.
    type: bool
    default: false
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Put the node back
  sparkwright.cluster.restored:
  register: restored
"""

RETURN = r"""
table:
  description: What was put back, or would be in check mode, as lines of a table.
  returned: always
  type: list
  elements: str
netplan:
  description: Whether C(netplan apply) must be run now and the module called again.
  returned: always
  type: bool
aside:
  description: Where the record is now; empty while it is in force, or when there was none.
  returned: always
  type: str
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import engine_runs
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import ENGINE_UNIT, LIBRARY, RECORD_FILE
from ansible_collections.sparkwright.cluster.plugins.module_utils.node_reader import NodeReader
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import (
    file_entry,
    forget,
    load,
    remember,
    set_aside,
    write_atomically,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.restore import (
    ENABLE,
    OWN_UNITS,
    UNMASK,
    Now,
    Plan,
    RestoreError,
    Row,
    file_shown,
    folders_made,
    plan,
    steps,
    table,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.systemd import (
    DEFAULT_TARGET,
    GLOBAL,
    SYSTEM,
    Systemctl,
    SystemdError,
    put_links,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.undo import Step

# Characters of a row's cell that a command's answer may fill.
CELL = 60


@dataclass
class Node:
    """The node and its record; `problems` collects what could not be put back, `warnings` what stops nobody."""

    systemctl: Systemctl
    record: dict[str, Any]
    path: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def now(self) -> Now:
        """What the node is like."""
        return Now(
            {path: file_entry(Path(path)) for path in self.record["files"]},
            self.systemctl.units(SYSTEM),
            self.systemctl.units(GLOBAL),
            self.systemctl.sessions(),
            {"name": self.systemctl.default_target(), "linked": DEFAULT_TARGET.is_symlink()},
        )

    def live(self, step: Step) -> str | None:
        """How it is now by the step's own command; None where there is none, or it fails."""
        try:
            return " ".join(self.systemctl.command(step.read).split()) if step.read else None
        except SystemdError:
            return None

    def differing(self, todo: Sequence[Step]) -> list[tuple[Step, str | None]]:
        """The steps that have something to put back, with how it is now."""
        found = [(step, self.live(step)) for step in todo]
        return [(step, live) for step, live in found if live != " ".join(step.before.split())]

    def tried(self, work: Callable[..., object], *arguments: Any, into: list[str] | None = None) -> None:
        """Do something, and go on with the rest when it fails."""
        try:
            work(*arguments)
        except (SystemdError, OSError) as error:
            (self.problems if into is None else into).append(str(error))

    def walk(self, todo: Sequence[Step]) -> None:
        """Take the steps that have something to put back."""
        for step, _ in self.differing(todo):
            self.tried(self.systemctl.command, step.argv)

    def put_back(self, wanted: Plan, netplan_applied: bool) -> bool:
        """Put back what differs; False when netplan must be applied before the rest."""
        todo = steps(self.record)
        # Written first: a run that is stopped between a file and what follows from it must know it the next time.
        remember("pending", {name: {} for name in wanted.pending}, self.path)
        self.walk([step for step in todo if step.early])
        self.files(wanted)
        self.tried(self.systemctl, SYSTEM, "daemon-reload")
        self.units(SYSTEM, wanted)
        self.units(GLOBAL, wanted)
        self.start(wanted)
        if "docker" in wanted.pending:
            self.tried(self.systemctl, SYSTEM, "restart", "docker.service")
            forget("pending", "docker", self.path)
        if "netplan" in wanted.pending and not netplan_applied:
            return False
        self.walk([step for step in todo if not step.early])
        return True

    def files(self, wanted: Plan) -> None:
        """Files, and the folders that were made for them."""
        kept = {path: file_entry(Path(path)) for path in wanted.files if Path(path).exists()}
        remember("replaced", kept, self.path)
        for path in OWN_UNITS:
            if path in kept and not wanted.files[path]["existed"]:
                self.tried(self.systemctl, SYSTEM, "disable", "--now", Path(path).name)
        for path, entry in wanted.files.items():
            self.tried(put_back_file, Path(path), entry)
        for path in self.record["files"]:
            remove_empty(folders_made(self.record["files"], path))

    def units(self, scope: str, wanted: Plan) -> None:
        """Unit files: what is masked shows its state only without the mask, so the rest is looked at again."""
        first = wanted.units if scope == SYSTEM else wanted.user_units
        self.tried(self.systemctl.each, scope, [UNMASK], first[UNMASK])
        again = plan(self.record, self.now())
        for verb, names in (again.units if scope == SYSTEM else again.user_units).items():
            if verb == ENABLE:
                self.enable(scope, names)
            elif verb != UNMASK:
                self.tried(self.systemctl.each, scope, [verb], names)

    def enable(self, scope: str, names: Sequence[str]) -> None:
        """By the links that were there, where they were recorded."""
        entries = self.record["units" if scope == SYSTEM else "user_units"]
        linked = [name for name in names if entries[name].get("links")]
        for name in linked:
            self.tried(put_links, entries[name]["links"])
        if linked:
            self.tried(self.systemctl, scope, "daemon-reload")
        self.tried(self.systemctl.each, scope, [ENABLE], [name for name in names if name not in linked])

    def start(self, wanted: Plan) -> None:
        """The default target, then what ran before; a service that does not start any more stops nobody."""
        if wanted.target:
            self.tried(self.target, wanted.target)
        self.tried(self.systemctl.each, SYSTEM, ["start"], wanted.start, into=self.warnings)
        for user, names in wanted.sessions.items():
            self.tried(self.systemctl, user, "daemon-reload", into=self.warnings)
            self.tried(self.systemctl.each, user, ["start"], names, into=self.warnings)

    def target(self, entry: Mapping[str, Any]) -> None:
        """The target that the node boots into; without a link of its own it is the distribution's."""
        if entry["linked"]:
            self.systemctl(SYSTEM, "set-default", entry["name"])
        else:
            DEFAULT_TARGET.unlink(missing_ok=True)
            self.systemctl(SYSTEM, "daemon-reload")


def put_back_file(path: Path, entry: Mapping[str, Any]) -> None:
    """One file as its entry says; where a link leads to it, the link stays."""
    if entry["existed"]:
        content = base64.b64decode(entry["content"])
        write_atomically(path, content, int(entry["mode"], 8), (entry["uid"], entry["gid"]))
    else:
        path.resolve().unlink(missing_ok=True)


def remove_empty(folders: Sequence[str]) -> None:
    """Remove folders, the innermost first, up to one that is not empty."""
    for folder in folders:
        try:
            Path(folder).rmdir()
        except OSError:
            return


def refuse_while_serving() -> None:
    """Raise RestoreError when the engine runs, or is about to."""
    facts = NodeReader().read(["runtime", "serving"])
    unit = facts["serving"]["unit"]
    if engine_runs(facts) or unit in ("active", "activating", "reloading"):
        raise RestoreError(
            f"the engine serves, {ENGINE_UNIT} is {unit}; limit: nothing is put back under it; "
            "remedy: run playbooks/stop.yml first"
        )


def step_rows(found: Sequence[tuple[Step, str | None]]) -> list[Row]:
    """What the steps put back, for a person."""
    return [Row(step.what, "unknown" if live is None else live[:CELL], step.before) for step, live in found]


def diff(wanted: Plan, now: Mapping[str, Mapping[str, Any]], rows: Sequence[Row]) -> list[dict[str, str]]:
    """The texts of files, and the rest in lines."""
    found = [
        {"before_header": path, "after_header": path, "before": text(path, now[path]), "after": text(path, entry)}
        for path, entry in wanted.files.items()
    ]
    others = [row for row in rows if row.what not in wanted.files]
    before = "".join(f"{row.what}: {row.now}\n" for row in others)
    return [*found, {"before": before, "after": "".join(f"{row.what}: {row.before}\n" for row in others)}]


def text(path: str, entry: Mapping[str, Any]) -> str:
    """A file as the diff shows it; nobody reviews our own library there."""
    shown = f"# {file_shown(entry)}\n"
    if not entry["existed"] or path.startswith(LIBRARY):
        return shown
    return shown + base64.b64decode(entry["content"]).decode("utf-8", errors="replace")


def main() -> None:
    """Look, show, put back."""
    module = AnsibleModule(
        argument_spec={"netplan_applied": {"type": "bool", "default": False}}, supports_check_mode=True
    )
    if not Path(RECORD_FILE).exists():
        module.exit_json(
            changed=False, table=["nothing is recorded, so there is nothing to put back"], netplan=False, aside=""
        )
    systemctl = Systemctl(lambda argv, environment: module.run_command(list(argv), environ_update=dict(environment)))
    try:
        node = Node(systemctl, load(RECORD_FILE), RECORD_FILE)
        refuse_while_serving()
        now = node.now()
        wanted, found = plan(node.record, now), node.differing(steps(node.record))
        rows = [*wanted.rows, *step_rows(found)]
        result = {"changed": True, "table": table(rows), "diff": diff(wanted, now.files, rows)}
        if module.check_mode:
            module.exit_json(**result, netplan="netplan" in wanted.pending, aside="")
        whole = node.put_back(wanted, module.params["netplan_applied"])
    except (RestoreError, SystemdError, ValueError) as error:
        module.fail_json(msg=str(error))
    for warning in node.warnings:
        module.warn(warning)
    if node.problems:
        module.fail_json(msg="\n".join([*node.problems, "the record is kept: run it again"]), **result)
    module.exit_json(**result, netplan=not whole, aside=set_aside(RECORD_FILE) if whole else "")


if __name__ == "__main__":
    main()
