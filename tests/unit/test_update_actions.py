"""The actions of updates in a real ansible-playbook over the example inventory, with facts from variables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
import yaml
from builders import REPO, node_facts, software
from tuned import tuned

from ansible_collections.sparkwright.cluster.plugins.action.drift import disturbs
from ansible_collections.sparkwright.cluster.plugins.action.node_plan import guard_files
from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_simulation import AptPlan, Change
from ansible_collections.sparkwright.cluster.plugins.module_utils.drift import Drift, Severity
from ansible_collections.sparkwright.cluster.plugins.module_utils.firmware import parse_updates
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import APT_GUARD, LIBRARY
from ansible_collections.sparkwright.cluster.plugins.module_utils.reboots import reboot_reasons
from ansible_collections.sparkwright.cluster.plugins.module_utils.restore import steps

HOSTS = [f"spark{n}" for n in range(1, 5)]
RUNC = AptPlan(install={"runc": Change("1.2", "1.3")}, kept=("held",))
DECIDE = {
    "sparkwright.cluster.update_plan": {"plans": "plans", "facts": "facts"},
    "run_once": True,
    "register": "found",
}
COMPARE = {"sparkwright.cluster.drift": {"facts": "facts"}, "run_once": True, "register": "found"}
NOTE = {"sparkwright.cluster.baseline": {"facts": "facts"}, "register": "found"}
SHOW = {"ansible.builtin.debug": {"var": "found"}, "run_once": True}


@pytest.fixture
def run(tmp_path):
    """Runs one task in check mode; the result is the exit code, what it returned, and the output."""

    def start(task, facts=None, plans=None, served=False, **variables):
        inventory = tmp_path / "inventory"
        shutil.copytree(REPO / "inventory/spark4", inventory)
        for rank, host in enumerate(HOSTS):
            node = node_facts(rank) | (facts or {}).get(host, {})
            if served:
                node["software"] |= {"baseline": {"schema": 1, "items": {}}}
            planned = (plans or {}).get(host, RUNC)
            own = {
                "facts": {"node": node},
                "plans": {"plan": planned.as_data(), "digest": planned.digest, "waited": ["waited 3 s: apt"]},
                "ansible_connection": "local",
                "ansible_become": False,
                "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            }
            write(inventory / "host_vars" / f"{host}.yml", own | variables)
        write(tmp_path / "play.yml", [{"hosts": "sparks", "gather_facts": False, "tasks": [task, SHOW]}])
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        environment["ANSIBLE_CONFIG"] = str(REPO / "ansible.cfg")
        argv = ["ansible-playbook", "--check", "-i", str(inventory), str(tmp_path / "play.yml")]
        done = subprocess.run(
            argv, cwd=REPO, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        # The checkout's own settings show results as YAML.
        shown = re.search(r"^    found:.*?\n\n", done.stdout, re.DOTALL | re.MULTILINE)
        return done.returncode, yaml.safe_load(shown[0])["found"] if shown else {}, done.stdout

    return start


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data))


def test_an_update_that_may_be_made_has_its_order(run):
    code, found, output = run(DECIDE, served=True, os_update_canary="spark2", os_update_batch=2)
    assert code == 0, output
    assert (found["canary"], found["batches"]) == ("spark2", [["spark1", "spark3"], ["spark4"]])
    assert found["due"] == HOSTS
    assert "runc     1.2 -> 1.3  1.2 -> 1.3  1.2 -> 1.3  1.2 -> 1.3" in output
    assert "spark1: apt keeps back held; remedy: look with" in output
    assert "spark1: waited 3 s: apt" in output


def test_a_node_that_only_has_to_be_booted_is_due(run):
    waits = {"software": software(next_kernel="7.0.0-1-nvidia")}
    nothing = dict.fromkeys(HOSTS, AptPlan())
    assert run(DECIDE, {"spark3": waits}, nothing, served=True)[1]["due"] == ["spark3"]


def test_no_reboot_where_none_is_allowed(run):
    waits = {"software": software(next_kernel="7.0.0-1-nvidia")}
    nothing = dict.fromkeys(HOSTS, AptPlan())
    code, found, _ = run(DECIDE, {"spark3": waits}, nothing, served=True, os_update_reboot="never")
    assert (code, found["due"], found["canary"]) == (0, [], "spark4")


@pytest.mark.parametrize(
    ("plans", "variables", "line"),
    [
        (
            {"spark2": AptPlan(remove={"nvidia-driver-580-open": "580"})},
            {},
            "spark2: the update would remove nvidia-driver-580-open 580; limit: what os_update_removals allows",
        ),
        ({}, {"os_update_batch": -1}, "all nodes: os_update_batch is -1; limit: 0 or more"),
        ({}, {"os_update_canary": "spark9"}, "all nodes: os_update_canary is spark9; limit: one of spark1, spark2"),
        (
            dict.fromkeys(HOSTS, AptPlan(install={"linux-image-7.0.0-1019-nvidia": Change("", "7.0.0-1019.19")})),
            {},
            "spark1: the update brings kernel 7.0.0-1019-nvidia: it starts with KHO",
        ),
    ],
)
def test_an_update_that_is_refused(run, plans, variables, line):
    code, _, output = run(DECIDE, plans=plans, served=True, **variables)
    assert code != 0
    assert line in " ".join(output.replace("\\n", " ").split())


def test_nodes_that_never_served_are_not_updated(run):
    code, _, output = run(DECIDE)
    assert code != 0
    assert "spark4: there is no note of when it last served" in output


def test_an_argument_that_is_wanted_counts_as_it_is_written_before_the_boot(run):
    comes = dict.fromkeys(HOSTS, AptPlan(install={"linux-image-7.0.0-1019-nvidia": Change("", "7.0.0-1019.19")}))
    _, _, output = run(DECIDE, plans=comes, host_tuning_kernel_arguments=["kho=off"])
    assert "it starts with KHO" not in output


def test_drift_says_whether_to_stop_and_whom_to_boot(run):
    serving = {host: node_facts(rank, serving=True) for rank, host in enumerate(HOSTS)}
    note = {"schema": 1, "items": {"kernel": "6.17.0-1008-nvidia", "unit cups.service": "masked"}}
    serving["spark2"]["software"] = software(baseline=note, next_kernel="7.0.0-1-nvidia")
    code, found, output = run(COMPARE, serving, os_update_reboot="always")
    assert code == 0, output
    assert (found["stop"], list(found["reboots"]), list(found["drifts"])) == (True, ["spark2"], ["spark2"])
    assert "spark2: " in output
    assert "changed since it last served" in output


def test_without_leave_nobody_is_booted_and_the_engine_goes_on(run):
    serving = {host: node_facts(rank, serving=True) for rank, host in enumerate(HOSTS)}
    serving["spark2"]["software"] = software(next_kernel="7.0.0-1-nvidia")
    _, found, output = run(COMPARE, serving)
    assert (found["stop"], found["reboots"]) == (False, {}), output


@pytest.mark.parametrize(
    ("drift", "allowed", "disturbed"),
    [
        (Drift("kernel arguments", "kho=off", "none", Severity.OURS, stops=True, reboots=True), [], False),
        (Drift("kernel arguments", "kho=off", "none", Severity.OURS, stops=True, reboots=True), ["kho=off"], True),
        (Drift("link rail0", "MTU 9000", "MTU 1500", Severity.OURS, stops=True), [], True),
        (Drift("unit cups.service", "masked", "none", Severity.OURS), [], False),
    ],
)
def test_what_waits_for_a_boot_disturbs_nobody_who_may_not_be_booted(drift, allowed, disturbed):
    assert disturbs({"spark1": [drift]}, {"spark1": allowed}) is disturbed


def test_the_note_is_made_of_the_facts(run):
    code, found, output = run(NOTE)
    assert code == 0, output
    assert found["changed"]
    assert "kernel" in found["differs"]


# --- what they are made of ------------------------------------------------------------------------------------------


def reasons(arguments=(), **changes):
    facts = node_facts() | {"software": software(**{k: v for k, v in changes.items() if k != "tuning"})}
    return reboot_reasons(facts | {"tuning": changes.get("tuning", tuned())}, arguments)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (reasons(), []),
        (reasons(next_kernel=None), []),
        (reasons(next_kernel="7.0"), ["the next boot starts kernel 7.0, now it runs 6.17.0-1008-nvidia"]),
        (reasons(reboot_required=["libc6", "systemd"]), ["the system asks for it because of libc6, systemd"]),
        (reasons(["kho=off"]), ["this boot has not kho=off"]),
        (reasons(["kho=off"], tuning=tuned(kernel_arguments=["kho=off"])), []),
        (reasons(["kho=off"], tuning=tuned(grub=False)), []),
        (reasons(next_kernel="7.0", tuning=tuned(container=True)), []),
    ],
)
def test_why_a_node_should_be_booted(found, words):
    assert found == words


def test_the_guard_is_told_to_apt_or_not():
    on, off = ({file["path"]: file["content"] for file in guard_files(flag)} for flag in (True, False))
    conf = "/etc/apt/apt.conf.d/60-sparkwright"
    assert set(on) == set(off)
    assert 'DPkg::Pre-Install-Pkgs {"/usr/local/lib/sparkwright/apt-guard";};' in on[conf]
    assert off[conf] == "// Written by Sparkwright (role os_update).\n"


@pytest.mark.parametrize(("package", "code"), [("runc", 1), ("htop", 0)])
def test_the_guard_says_no_and_runs_nothing_of_the_folder_in_which_apt_was_called(tmp_path, package, code):
    for file in guard_files(True):
        place = tmp_path / file["path"].lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file["content"].replace(LIBRARY, f"{tmp_path}{LIBRARY}"))
        place.chmod(0o755)
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho active\n")
    (tmp_path / "systemctl").chmod(0o755)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "subprocess.py").write_text("raise SystemExit('somebody else')\n")
    done = subprocess.run(
        [f"{tmp_path}{APT_GUARD}"],
        input=f"VERSION 2\nAPT=\n\n{package} 1.2 < 1.3 /a.deb\n",
        cwd=folder,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(f"sparkwright: {package} would change") if code else done.stderr == ""


def test_a_restore_lets_holds_go():
    (step,) = steps({"schema": 1, "files": {}, "holds": {"runc": {"since": 1}}})
    assert (step.argv, step.before) == (("apt-mark", "unhold", "runc"), "")


@pytest.mark.parametrize("data", [[], {}, {"Devices": [{"Name": "x"}]}])
def test_no_firmware(data):
    assert parse_updates(data) == []
