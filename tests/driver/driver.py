"""Runs the verbs on the lab as a user would, through ansible-runner, and answers questions about their events."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner
import yaml

REPO = Path(__file__).resolve().parents[2]
# Which lab: `lab`, the containers, or `lab-vm`, the virtual machines.
NAME = os.environ.get("SPARKWRIGHT_LAB", "lab")
LAB = REPO / "inventory" / NAME
STATE = REPO / "lab" / ".state" / NAME.removeprefix("lab").removeprefix("-")
# Seconds. A first run with the load of the engine takes about four minutes on two cores; emulated machines are slow.
LONGEST_RUN = 900 if NAME == "lab" else 2400


@dataclass(frozen=True)
class Run:
    """One finished ansible-playbook: its exit code, its events, and what it printed."""

    code: int
    events: tuple[Mapping[str, Any], ...]
    output: str

    def _results(self, *kinds: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        for event in self.events:
            data = event.get("event_data", {})
            if event["event"] in kinds:
                yield data.get("host", ""), data.get("task", ""), data.get("res", {})

    @property
    def changed(self) -> list[str]:
        """Every change, as `host: task`."""
        return [f"{host}: {task}" for host, task, res in self._results("runner_on_ok") if res.get("changed")]

    @property
    def failures(self) -> list[str]:
        """The message of every failure, line by line."""
        kinds = ("runner_on_failed", "runner_on_unreachable")
        return [line for _, _, res in self._results(*kinds) for line in str(res.get("msg", "")).splitlines()]

    def seconds(self, name: str) -> float:
        """How long a task took on the node where it took longest."""
        data = (event.get("event_data", {}) for event in self.events if event["event"] == "runner_on_ok")
        return max((float(found.get("duration", 0)) for found in data if found.get("task") == name), default=0.0)

    @property
    def results(self) -> dict[str, Mapping[str, Any]]:
        """What the last task that ended well on a host returned."""
        return {host: res for host, _, res in self._results("runner_on_ok")}

    @property
    def tasks(self) -> set[str]:
        """The names of the tasks that ended well on any host."""
        return {task for _, task, _ in self._results("runner_on_ok")}


def play(playbook: str, inventory: Path = LAB, *options: str, variables: Mapping[str, Any] | None = None) -> Run:
    """Run a playbook of the checkout; `variables` are given as -e."""
    return _run(inventory, variables, playbook=playbook, cmdline=" ".join(options) or None)


def module(node: str, name: str, arguments: str = "", variables: Mapping[str, Any] | None = None) -> Run:
    """Run one module on a node."""
    return _run(LAB, variables, host_pattern=node, module=name, module_args=arguments)


def _run(inventory: Path, variables: Mapping[str, Any] | None, **what: Any) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        runner = ansible_runner.run(
            private_data_dir=folder,
            project_dir=str(REPO),
            inventory=str(inventory),
            extravars={"lab_state": str(STATE), **(variables or {})},
            # ansible-runner turns the verification of host keys off unless it is told otherwise.
            envvars={"ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_HOST_KEY_CHECKING": "True"},
            quiet=True,
            timeout=LONGEST_RUN,
            **what,
        )
        return Run(runner.rc, tuple(runner.events), runner.stdout.read())


def inventory_with(folder: Path, host_variables: Mapping[str, Mapping[str, Any]]) -> Path:
    """A copy of the lab's inventory in which some hosts have further variables."""
    copy = folder / "inventory"
    shutil.copytree(LAB, copy)
    for host, variables in host_variables.items():
        file = copy / "host_vars" / f"{host}.yml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(dict(variables)), encoding="utf-8")
    return copy
