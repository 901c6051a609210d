"""The order of an update: the role's own tasks in a real run, with modules and roles that only say their names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from builders import REPO

TASKS = REPO / "roles/os_update/tasks"
HOSTS = ("spark1", "spark2", "spark3")

# An action that notes its host and name, and answers from the environment.
ACTION = """
import json, os
from ansible.plugins.action import ActionBase

NAME = os.path.basename(__file__).partition(".")[0]

class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        host = task_vars["inventory_hostname"]
        args = self._task.args
        step = args.get("step") or args.get("stage") or ("take back" if args.get("take_back") else "")
        with open(os.environ["FLOW_LOG"], "a") as log:
            log.write(f"{host} {NAME} {step}".strip() + "\\n")
        answers = json.loads(os.environ["FLOW_ANSWERS"])
        return super().run(tmp, task_vars) | {"changed": False} | answers.get(f"{host} {NAME}", answers.get(NAME, {}))
"""
NAMES = ("apt_upgrade", "node_facts", "node_plan", "admission", "verdict", "memory_settle", "boot_once")
# Roles that others own; each says its name by a module of that name.
ROLES = ("host_tuning", "headless", "fabric", "container_runtime")
ORDER = {"canary": "spark3", "batches": [["spark1", "spark2"]], "due": list(HOSTS)}
PLAY = {
    "hosts": "all",
    "gather_facts": False,
    "any_errors_fatal": True,
    "vars": {
        "__os_update_what": "packages",
        "__os_update_plan": {"digest": "x"},
        "os_update_lock_minutes": 1,
    },
    "tasks": [{"ansible.builtin.include_role": {"name": "sparkwright.cluster.os_update", "tasks_from": "nodes"}}],
}
# What playbooks/update.yml goes on with.
SERVE = {"hosts": "all", "gather_facts": False, "tasks": [{"sparkwright.cluster.serve": {}}]}
VARIABLES = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
ANSWERS = {
    "node_facts": {"node": {"reachable": True}},
    "node_plan": {"updates": {"reboot": [], "smoke": ["true"]}},
    "boot_once": {"reason": "the next boot starts kernel 6.17, once"},
}


@pytest.fixture
def flow(tmp_path):
    """Runs the tasks; the result is the exit code, what was called, and what was printed."""
    collection = tmp_path / "collections/ansible_collections/sparkwright/cluster"
    for name in (*NAMES, *ROLES, "stop", "serve"):
        write(collection / f"plugins/action/{name}.py", ACTION)
        write(collection / f"plugins/modules/{name}.py", "")
    for role in ROLES:
        write(collection / f"roles/{role}/tasks/main.yml", yaml.safe_dump([{f"sparkwright.cluster.{role}": {}}]))
    shutil.copytree(TASKS, collection / "roles/os_update/tasks")
    # systemd is not asked here.
    write(collection / "roles/os_update/tasks/stop.yml", yaml.safe_dump([{"sparkwright.cluster.stop": {}}]))

    def run(order=ORDER, reboot="update", **answers):
        variables = {"__os_update_order": order, "os_update_reboot": reboot}
        play = PLAY | {"vars": PLAY["vars"] | variables}
        write(tmp_path / "play.yml", yaml.safe_dump([play, SERVE]))
        inventory = {"all": {"hosts": dict.fromkeys(HOSTS), "vars": VARIABLES}}
        write(tmp_path / "inventory.yml", yaml.safe_dump(inventory))
        write(tmp_path / "ansible.cfg", "[defaults]\ncollections_path = collections\n")
        log = tmp_path / "log"
        log.write_text("")
        given = {name.replace("__", " "): answer for name, answer in answers.items()}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")} | {
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
            "FLOW_LOG": str(log),
            "FLOW_ANSWERS": json.dumps(ANSWERS | given),
        }
        argv = ["ansible-playbook", "-i", "inventory.yml", "play.yml"]
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        return done.returncode, log.read_text().splitlines(), done.stdout

    return run


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def upgraded(log):
    return [line.split()[0] for line in log if line.endswith("apt_upgrade install")]


def test_the_canary_is_first_and_gated_before_the_others(flow):
    code, log, output = flow()
    assert code == 0, output
    assert upgraded(log)[0] == "spark3"
    assert sorted(upgraded(log)[1:]) == ["spark1", "spark2"]
    assert sorted(log[-3:]) == ["spark1 serve", "spark2 serve", "spark3 serve"]
    stopped = max(log.index(f"{host} stop") for host in HOSTS)
    gate, first = log.index("spark1 verdict launch"), log.index("spark3 apt_upgrade install")
    others = min(log.index(f"{host} apt_upgrade install") for host in ("spark1", "spark2"))
    assert stopped < log.index("spark3 boot_once take back") < first < gate < others
    assert not any(line.endswith(" boot_once") for line in log)
    for role in ("headless", "fabric", "container_runtime"):
        assert {f"{host} {role}" for host in HOSTS} <= set(log[first:others])


def test_the_others_one_by_one(flow):
    code, log, output = flow({**ORDER, "batches": [["spark2"], ["spark1"]]})
    assert code == 0, output
    assert upgraded(log) == ["spark3", "spark2", "spark1"]


@pytest.mark.parametrize(
    "answers",
    [
        {"spark3__apt_upgrade": {"failed": True, "msg": "dpkg failed"}},
        {"spark1__verdict": {"failed": True, "msg": "spark3: the MTU is 1500"}},
        {"spark3__node_plan": {"updates": {"reboot": [], "smoke": ["false"]}}},
    ],
    ids=["apt", "a verdict", "the container"],
)
def test_a_failed_canary_keeps_the_others_as_they_are_and_selects_its_kernel(flow, answers):
    code, log, output = flow(**answers)
    assert code != 0
    assert upgraded(log) == ["spark3"]
    assert "spark3 boot_once" in log
    assert "spark1 boot_once" not in log
    assert not any(line.endswith(" serve") for line in log)
    line = "spark3: the canary failed its update, for the reason above; the other nodes were not changed; the next boot"
    assert line in " ".join(output.split())


def test_a_canary_that_does_not_answer_is_left_to_its_boot_menu(flow):
    silent = {"node": {"reachable": False}}
    code, log, output = flow(spark3__apt_upgrade={"failed": True, "msg": "gone"}, spark3__node_facts=silent)
    assert code != 0
    assert "spark3 boot_once" not in log
    assert "it does not answer, so choose the previous kernel in its boot menu" in " ".join(output.split())


def test_a_boot_that_is_due_and_not_allowed_ends_it_before_the_others(flow):
    waits = {"updates": {"reboot": ["the next boot starts kernel 7.0"], "smoke": ["true"]}}
    code, log, output = flow(reboot="never", spark3__node_plan=waits)
    assert code != 0
    assert upgraded(log) == ["spark3"]
    line = "spark3: the next boot starts kernel 7.0; limit: it is rebooted before the next node"
    assert line in " ".join(output.split())
