"""How what host_tuning recorded is undone."""

from __future__ import annotations

import subprocess

import pytest
from tuned import SWAP, SWAP_UNIT, fresh, swap, tuned, wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.restore import UNDO
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning import SWAP_FILE, THP
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning_plan import make_tuning_plan
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning_undo import TUNING


def rows(section, entries):
    return [(step.what, step.before, step.early) for step in TUNING[section](entries)]


@pytest.mark.parametrize(
    ("section", "entries", "row"),
    [
        ("sysfs", {THP: {"value": "always"}}, (THP, "always", False)),
        ("swap_units", {SWAP_UNIT: {"state": "generated"}}, (SWAP_UNIT, "generated", False)),
        ("swap", {SWAP: {"priority": -2}}, (SWAP, "on", False)),
        ("swap_file", {SWAP_FILE: {"existed": False}}, (SWAP_FILE, "absent", True)),
        (
            "journal",
            {"systemd-journald.service": {}},
            ("systemd-journald.service", "with the cap of before", False),
        ),
        ("earlyoom", {"earlyoom.service": {}}, ("earlyoom.service", "with the arguments of before", False)),
        ("grub", {"update-grub": {}}, ("boot menu", "without our kernel arguments", False)),
    ],
)
def test_a_section(section, entries, row):
    assert rows(section, entries) == [row]


def test_figures_need_no_undoing():
    assert TUNING["footprint"]({"first": {}}) == []


def test_every_section_that_a_plan_records_can_be_undone():
    memory, runtime = {"MemAvailable": 100 * GIB}, {"containers": []}
    host = fresh() | {"earlyoom": {"installed": True, "argv": ["earlyoom"]}, "swaps": [swap()]}
    for wanted in (wish(kernel_arguments=("kho=off",), swap="off"), wish(swap="size", swap_gib=1)):
        recorded = make_tuning_plan(wanted, {"tuning": host, "memory": memory, "runtime": runtime}).record
        assert recorded
        assert set(recorded) <= set(UNDO)
    assert make_tuning_plan(wish(), {"tuning": tuned(), "memory": memory, "runtime": runtime}).record == {}


@pytest.mark.parametrize("text", ["always [madvise] never\n", "madvise\n"])
def test_a_file_of_sys_is_read_and_written_by_the_steps(tmp_path, text):
    path = tmp_path / "enabled"
    path.write_text(text)
    (step,) = TUNING["sysfs"]({str(path): {"value": "always"}})
    assert subprocess.check_output(step.read, text=True).strip() == "madvise"
    subprocess.run(step.argv, check=True)
    assert path.read_text() == "always"
    assert subprocess.check_output(step.read, text=True).strip() == "always"
