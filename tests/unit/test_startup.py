"""The node's own start-up check: the files that it is made of, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders import HARDWARE, REPO, intent, node_facts

from ansible_collections.sparkwright.cluster.plugins.module_utils import startup
from ansible_collections.sparkwright.cluster.plugins.module_utils.names import NODE_LIBRARY
from ansible_collections.sparkwright.cluster.plugins.module_utils.own_ports import (
    filter_rules,
    filter_rules_v6,
    restore_text,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.share import ShareWish

SOURCES = REPO / "plugins" / "module_utils"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A directory with the package `sparkwright`, as a node has it and nothing else."""
    package = tmp_path_factory.mktemp("library") / "sparkwright"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in NODE_LIBRARY:
        (package / f"{name}.py").write_text((SOURCES / f"{name}.py").read_text())
    return package.parent


def isolated(library, code):
    """Run code with the library and the standard library alone."""
    whole = f"import sys; sys.path.insert(0, {str(library)!r})\n{code}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", whole], capture_output=True, text=True, check=False)


def test_the_library_needs_nothing_but_the_standard_library(library):
    code = "import json, sparkwright.startup; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = isolated(library, code)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) - set(sys.stdlib_module_names) == {"__main__", "sparkwright"}


def test_every_file_of_the_library_is_used(library):
    done = isolated(library, "import sparkwright.startup; print(*sorted(sys.modules))")
    used = {name.removeprefix("sparkwright.") for name in done.stdout.split() if name.startswith("sparkwright.")}
    assert used == set(NODE_LIBRARY)


def test_the_whole_check_runs_on_a_machine_that_is_no_node(library, tmp_path):
    """This machine has neither the rails nor the weights, so there are refusals, each in one line."""
    launch = {"intent": intent().as_data(), "hardware_root": str(HARDWARE), "argv": ["true"], "waits": []}
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    file = str(tmp_path / "launch.json")
    done = isolated(library, f"import sparkwright.startup as s; s.LAUNCH_FILE = {file!r}; sys.exit(s.main(['check']))")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert all(line.startswith("refused: spark1: ") for line in lines)
    weights = "/models/big: model.safetensors.index.json is not there; limit: a readable index"
    assert f"refused: spark1: {weights}; remedy: copy the checkpoint to /models/big again" in lines


@pytest.fixture
def node(tmp_path, monkeypatch):
    """The facts that the check will read; a test may change them."""
    facts = node_facts(1)
    launch = {
        "intent": intent(1).as_data(),
        "hardware_root": "/hardware",
        "argv": ["docker", "run", '{"a": "b c"}'],
        "waits": [],
    }
    (tmp_path / "launch.json").write_text(json.dumps(launch))

    class Reader:
        def __init__(self, hardware_root):
            assert hardware_root == "/hardware"

        def read(self, subsets, **asked):
            if "weights" in subsets:
                assert asked.pop("share").path == "/models"
                assert asked == {"weights_path": "/models/big", "images": ["registry.example/vllm:1"]}
            return {name: value for name, value in facts.items() if name != "platform"}

    monkeypatch.setattr(startup, "LAUNCH_FILE", str(tmp_path / "launch.json"))
    monkeypatch.setattr(startup, "NodeReader", Reader)
    return facts


def test_a_healthy_node_may_start(node, capsys):
    assert startup.main(["check"]) == 0
    assert capsys.readouterr().out == ""


def test_each_reason_is_a_line(node, capsys):
    node["fabric"]["netdevs"]["enp1s0f0np0"]["mtu"] = 1500
    node["memory"]["CmaFree"] = 9_740_000
    assert startup.main(["check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "refused: spark2: CmaFree is 9740000 kB with CmaTotal 65536 kB; limit: CmaFree at most CmaTotal; remedy: boot"
        " kernel 6.17, or add kho=off by a drop-in under /etc/default/grub.d and reboot",
        "refused: spark2: the MTU of enp1s0f0np0 is 1500; limit: 9000; remedy: run playbooks/stop.yml if it serves,"
        " then site.yml, which applies netplan",
    ]


DAY = 86_400.0


@pytest.fixture
def pauses(monkeypatch):
    """What the check does while it pauses, on a machine that is up for a day; time stands still otherwise."""
    clock, during = [DAY], []

    def sleep(seconds):
        clock[0] += seconds
        for act in during:
            act(clock[0] - DAY)

    monkeypatch.setattr(startup.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(startup.time, "sleep", sleep)
    return during


def test_memory_that_comes_back_late_is_waited_for(node, pauses):
    short, enough = 60_000_000, node["memory"]["MemAvailable"]
    node["memory"]["MemAvailable"] = short
    pauses.append(lambda now: node["memory"].update(MemAvailable=enough if now >= 40 else short))
    assert startup.main(["check"]) == 0


def test_memory_that_stays_away_is_a_reason_in_the_end(node, pauses, capsys):
    node["memory"]["MemAvailable"] = 60_000_000
    seen = []
    pauses.append(seen.append)
    assert startup.main(["check"]) == 1
    assert seen[-1] == startup.LATE_SECONDS
    assert "refused: spark2: MemAvailable is 57.22 GiB; " in capsys.readouterr().out


def test_nothing_else_is_waited_for(node, pauses):
    node["memory"]["MemAvailable"] = 60_000_000
    node["fabric"]["netdevs"]["enp1s0f0np0"]["mtu"] = 1500
    pauses.append(lambda now: pytest.fail("it paused"))
    assert startup.main(["check"]) == 1


def test_rails_that_come_late_after_a_boot_are_waited_for(node, pauses, monkeypatch):
    monkeypatch.setattr(startup, "BOOT_SECONDS", DAY + 1)
    link = node["fabric"]["netdevs"]["enp1s0f0np0"]
    late, link["addresses"] = link["addresses"], []
    pauses.append(lambda now: link.update(addresses=late if now >= 5 else []))
    assert startup.main(["check"]) == 0


def test_a_missing_mount_is_refused_and_waited_for_after_a_boot_alone(node, pauses, monkeypatch, capsys):
    wish = ShareWish(mode="nfs", path="/models", server="192.168.100.10", remote="/models", address="192.168.100.11")
    launch = json.loads((Path(startup.LAUNCH_FILE)).read_text())
    launch["intent"] = intent(1, share=wish).as_data()
    Path(startup.LAUNCH_FILE).write_text(json.dumps(launch))
    node["share"] |= {"reached": True}
    pauses.append(lambda now: pytest.fail("it paused"))
    assert startup.main(["check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "refused: spark2: nothing is mounted on /models; limit: 192.168.100.10:/models, over NFS; remedy: run site.yml,"
        " or `systemctl start models.mount`"
    ]
    monkeypatch.setattr(startup, "BOOT_SECONDS", DAY + 1)
    options = {"ro": "", "hard": "", "vers": "4.2", "proto": "tcp", "addr": "192.168.100.10"}
    late = {"source": "192.168.100.10:/models", "fstype": "nfs4", "options": options, "read_ahead_kb": 128}
    pauses[:] = [lambda now: node["share"].update(mount=late)]
    assert startup.main(["check"]) == 0


def test_a_warning_stops_nothing(node):
    node["memory"]["MemTotal"] = 125_508_000
    assert startup.main(["check"]) == 0


@pytest.fixture
def kept(monkeypatch):
    """What the unit keeps of its rank."""
    saved = []
    monkeypatch.setattr(startup, "save_rank", saved.append)
    return saved


def test_what_the_unit_refuses_is_kept_for_doctor(node, kept):
    assert startup.main(["admit"]) == 0
    assert [rank["end"] for rank in kept] == [None, None]

    node["fabric"]["netdevs"]["enp1s0f0np0"]["mtu"] = 1500
    assert startup.main(["admit"]) == 1
    end = kept[-1]["end"]
    assert end["refused"]
    assert end["why"].startswith("spark2: the MTU of enp1s0f0np0 is 1500; limit: 9000; ")


def test_a_person_who_checks_leaves_no_trace(node, kept):
    node["fabric"]["netdevs"]["enp1s0f0np0"]["mtu"] = 1500
    assert startup.main(["check"]) == 1
    assert kept == []


def test_run_gives_the_launch_to_the_supervisor(node, monkeypatch):
    ran = []

    class Supervisor:
        def __init__(self, launch, available):
            ran.append((launch["argv"], available))

        def run(self):
            return 75

    monkeypatch.setattr(startup, "Supervisor", Supervisor)
    assert startup.main(["run"]) == 75
    assert ran == [(["docker", "run", '{"a": "b c"}'], 120_000_000 * 1024)]


def test_a_roll_call_that_cannot_be_heard_is_refused_in_words(node, monkeypatch, kept, capsys):
    def refuse(launch, available):
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(startup, "Supervisor", refuse)
    assert startup.main(["run"]) == 1
    line = (
        "spark2: 192.168.100.10 port 29400 cannot be had (Address already in use); limit: free for the roll call of the"
        " ranks; remedy: end what holds it"
    )
    assert capsys.readouterr().out == f"refused: {line}\n"
    assert kept[-1]["end"]["why"] == line


# --- the packet filter ----------------------------------------------------------------------------------------------


@pytest.fixture
def filters(monkeypatch):
    """Stands in for the packet filter: the commands with their input, and how they end by their beginning."""
    ran, ends = [], {}

    def run(argv, input, **_):
        ran.append((" ".join(argv), input))
        code, said = next((end for start, end in ends.items() if ran[-1][0].startswith(start)), (0, ""))
        return subprocess.CompletedProcess(argv, code, "", said)

    monkeypatch.setattr(startup.subprocess, "run", run)
    monkeypatch.setattr(startup, "families", lambda: ["iptables", "ip6tables"])
    return ran, ends


def for_ray(tmp_path):
    launch = json.loads((tmp_path / "launch.json").read_text())
    launch["intent"] |= {"executor": "ray"}
    (tmp_path / "launch.json").write_text(json.dumps(launch))


def test_the_ports_are_closed_in_one_step_and_the_jump_is_made_once(node, tmp_path, filters):
    for_ray(tmp_path)
    ran, ends = filters
    ends["ip6tables --wait 20 --check"] = (1, "no such rule")
    assert startup.main(["close"]) == 0
    assert [command for command, _ in ran] == [
        "iptables-restore --noflush --wait 20",
        "ip6tables-restore --noflush --wait 20",
        "iptables --wait 20 --check INPUT -j SPARKWRIGHT",
        "ip6tables --wait 20 --check INPUT -j SPARKWRIGHT",
        "ip6tables --wait 20 --insert INPUT -j SPARKWRIGHT",
    ]
    assert ran[0][1] == restore_text(filter_rules(intent(1, executor="ray")))
    assert ran[1][1] == restore_text(filter_rules_v6(intent(1, executor="ray")))


def test_a_worker_of_the_native_executor_has_nothing_to_close(node, filters):
    assert startup.main(["close"]) == 0
    assert filters[0] == []


@pytest.mark.parametrize("command", ["iptables-restore", "ip6tables-restore"])
def test_ports_that_cannot_be_closed_are_a_reason(node, tmp_path, filters, capsys, command):
    for_ray(tmp_path)
    filters[1][command] = (2, "line 3 failed\n")
    assert startup.main(["close"]) == 1
    assert capsys.readouterr().out == (
        f"refused: spark2: {command}: line 3 failed; limit: a packet filter that keeps strangers from the ranks' ports;"
        " remedy: install iptables\n"
    )


def test_a_node_without_iptables_says_so(node, tmp_path, monkeypatch, capsys):
    for_ray(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert startup.main(["close"]) == 1
    assert "refused: spark2: iptables-restore: No such file or directory; " in capsys.readouterr().out


def test_the_ports_are_opened_whatever_is_left(node, filters):
    ran, ends = filters
    ends["iptables"] = (1, "no such chain")
    assert startup.main(["open"]) == 0
    assert [command for command, _ in ran if command.startswith("iptables")] == [
        "iptables --wait 20 --delete INPUT -j SPARKWRIGHT",
        "iptables --wait 20 --flush SPARKWRIGHT",
        "iptables --wait 20 --delete-chain SPARKWRIGHT",
    ]
