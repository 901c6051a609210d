"""Freeing memory on request and waiting for what comes back late."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from builders import intent, memory, processes
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import KIB
from ansible_collections.sparkwright.cluster.plugins.modules import memory_settle
from ansible_collections.sparkwright.cluster.plugins.modules.memory_settle import swap_devices

NEED = intent().memory
ENOUGH = NEED.asked(memory()["MemTotal"] * KIB) // KIB + 1
SWAPS = """\
Filename                                Type            Size            Used            Priority
/swap.img                               file            16777212        1572864         -2
/dev/zram0                              partition       4194300         0               100
"""


class Machine:
    """A node whose memory changes by what is done and by the time that passes."""

    def __init__(self, available, **changes):
        self.memory = {**memory(), "MemAvailable": available, **changes}
        self.unit, self.clock, self.done, self.warned = "inactive", 0.0, [], []
        self.on_drop, self.after = available, {}

    def read(self, subsets):
        if subsets == ["serving"]:
            return {"serving": {"unit": self.unit}}
        return {"memory": dict(self.memory), "processes": processes()}

    def drop(self):
        self.done.append("drop")
        self.memory["MemAvailable"] = self.on_drop

    def run(self, argv):
        self.done.append(" ".join(argv))
        if argv[0] == "swapoff":
            self.memory["SwapFree"] = self.memory["SwapTotal"]
        return 0, "", ""

    def sleep(self, seconds):
        self.clock += seconds
        self.memory["MemAvailable"] = self.after.get(self.clock, self.memory["MemAvailable"])


@pytest.fixture
def settle(monkeypatch, tmp_path):
    """Run the module on a machine."""
    (tmp_path / "swaps").write_text(SWAPS)

    def run(machine, check_mode=False, **arguments):
        monkeypatch.setattr(memory_settle, "NodeReader", lambda root: machine)
        monkeypatch.setattr(memory_settle, "drop_caches", machine.drop)
        monkeypatch.setattr(memory_settle, "SWAPS", tmp_path / "swaps")
        monkeypatch.setattr(memory_settle.time, "sleep", machine.sleep)
        monkeypatch.setattr(memory_settle.time, "monotonic", lambda: machine.clock)
        monkeypatch.setattr(memory_settle.AnsibleModule, "run_command", lambda self, argv: machine.run(argv))
        monkeypatch.setattr(memory_settle.AnsibleModule, "warn", lambda self, text: machine.warned.append(text))
        return run_module(memory_settle.main, check_mode, need=asdict(NEED), **arguments)

    return run


def test_enough_memory_is_left_alone(settle):
    machine = Machine(ENOUGH)
    found = settle(machine, act=True)
    assert (found["changed"], found["acted"], found["short"], found["waited"]) == (False, [], 0, 0.0)
    assert machine.done == []


def test_memory_that_comes_back_late_is_waited_for(settle):
    machine = Machine(60_000_000)
    machine.after = {40: ENOUGH}
    found = settle(machine)
    assert (found["changed"], found["short"], found["waited"]) == (False, 0, 40.0)


def test_memory_that_stays_away_ends_the_wait_and_is_told(settle):
    machine = Machine(60_000_000)
    found = settle(machine, seconds=30)
    assert found["waited"] <= 30
    assert found["short"] == NEED.asked(memory()["MemTotal"] * KIB) - 60_000_000 * KIB
    assert "failed" not in found


def test_the_page_cache_is_dropped_once_and_only_on_request(settle):
    machine = Machine(ENOUGH - 100)
    machine.on_drop = ENOUGH
    assert settle(machine, act=False, seconds=0)["acted"] == []
    found = settle(machine, act=True)
    assert (found["changed"], found["acted"], found["short"]) == (True, ["dropped the page cache"], 0)
    assert machine.done == ["drop"]


def test_a_swap_that_fits_into_memory_is_drained_and_switched_on_again(settle):
    machine = Machine(ENOUGH, SwapFree=memory()["SwapTotal"] - 1_572_864)
    found = settle(machine, act=True)
    assert found["acted"] == ["drained 1.50 GiB of swap"]
    assert machine.done == [
        "swapoff /swap.img",
        "swapon /swap.img",
        "swapoff /dev/zram0",
        "swapon --priority 100 /dev/zram0",
    ]


def test_a_swap_that_does_not_fit_is_left_alone(settle):
    machine = Machine(2_000_000, SwapFree=memory()["SwapTotal"] - 1_572_864)
    assert settle(machine, act=True, seconds=0)["acted"] == ["dropped the page cache"]
    assert machine.done == ["drop"]


def test_check_mode_says_what_it_would_do_and_neither_does_nor_waits(settle):
    machine = Machine(60_000_000, SwapFree=memory()["SwapTotal"] - 1_572_864)
    found = settle(machine, check_mode=True, act=True)
    assert found["acted"] == ["dropped the page cache", "drained 1.50 GiB of swap"]
    assert (machine.done, machine.clock) == ([], 0.0)


@pytest.mark.parametrize("unit", ["active", "activating"])
def test_a_node_whose_engine_runs_or_starts_is_left_alone(settle, unit):
    machine = Machine(1_000_000)
    machine.unit = unit
    found = settle(machine, act=True)
    assert (found["changed"], found["short"], machine.done, machine.clock) == (False, 0, [], 0.0)


def test_what_cannot_be_done_is_a_warning_and_no_end(settle):
    machine = Machine(ENOUGH - 100)

    def read_only():
        raise OSError(30, "Read-only file system")

    machine.drop = read_only
    found = settle(machine, act=True, seconds=0)
    assert found["acted"] == []
    assert machine.warned == ["not dropped the page cache: [Errno 30] Read-only file system"]


def test_a_swap_device_that_cannot_be_switched_off_is_a_warning(settle):
    machine = Machine(ENOUGH, SwapFree=memory()["SwapTotal"] - 1_572_864)
    machine.run = lambda argv: (1, "", "swapoff failed: Cannot allocate memory\n")
    found = settle(machine, act=True)
    assert found["changed"] is False
    line = "not drained 1.50 GiB of swap: swapoff /swap.img: swapoff failed: Cannot allocate memory"
    assert machine.warned == [line]


@pytest.mark.parametrize(
    ("text", "devices"), [(SWAPS, [("/swap.img", "-2"), ("/dev/zram0", "100")]), (SWAPS.splitlines()[0], []), ("", [])]
)
def test_the_swap_devices(text, devices):
    assert swap_devices(text) == devices
