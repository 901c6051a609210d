"""Reading who holds a node's memory."""

from __future__ import annotations

import os

import pytest
from trees import machine, write

from ansible_collections.sparkwright.cluster.plugins.module_utils.memory_reader import (
    low_watermark,
    nfs_threads,
    parse_gpu_processes,
    read_processes,
)

MIB = 1024**2
ZONEINFO = """\
Node 0, zone      DMA
  pages free     2048
        boost    0
        min      100
        low      125
        high     150
Node 0, zone   Normal
  pages free     9000000
        boost    4096
        min      8000
        low      10000
        high     12000
              high:  186
"""


def process(root, pid, name, kb, cmdline=""):
    resident = f"VmRSS:\t{kb:8} kB\n" if kb else ""
    status = f"Name:\t{name[:15]}\nPid:\t{pid}\n{resident}Threads:\t1\n"
    write(root / f"proc/{pid}", {"status": status, "comm": f"{name[:15]}\n", "cmdline": cmdline})


@pytest.fixture
def node(tmp_path):
    """A node with an orphan engine, some services and a thread of the kernel."""
    process(tmp_path, 2, "kthreadd", 0)
    process(tmp_path, 4711, "VLLM::EngineCore", 109_051_904, "VLLM::EngineCore\0\0\0\0")
    process(tmp_path, 812, "dockerd", 85_000, "/usr/bin/dockerd\0-H\0fd://\0")
    process(tmp_path, 640, "multipathd", 22_000, "/sbin/multipathd\0-d\0")
    process(tmp_path, 700, "sshd", 9_000, "sshd: spark [priv]\0")
    process(tmp_path, 900, "systemd-journal", 22_001, "/usr/lib/systemd/systemd-journald\0")
    process(tmp_path, 901, "agetty", 2_000)
    (tmp_path / "proc/zoneinfo").write_text(ZONEINFO)
    return tmp_path


def test_the_largest_resident_processes_come_first(node):
    found = read_processes(machine(node))["resident"]
    assert found == [
        {"pid": 4711, "name": "VLLM::EngineCore", "bytes": 109_051_904 * 1024},
        {"pid": 812, "name": "dockerd", "bytes": 85_000 * 1024},
        {"pid": 900, "name": "systemd-journald", "bytes": 22_001 * 1024},
        {"pid": 640, "name": "multipathd", "bytes": 22_000 * 1024},
        {"pid": 700, "name": "sshd:", "bytes": 9_000 * 1024},
    ]


def test_a_process_without_a_command_line_has_its_short_name(tmp_path):
    process(tmp_path, 901, "agetty", 2_000)
    assert [one["name"] for one in read_processes(machine(tmp_path))["resident"]] == ["agetty"]


def test_stand_in_figures_come_first_and_processes_from_where_there_are_some(node, tmp_path):
    hardware = write(tmp_path / "hardware", {"proc/zoneinfo": "        low      7\n"})
    found = read_processes(machine(node, hardware=hardware))
    assert found["low_watermark"] == 7 * os.sysconf("SC_PAGE_SIZE")
    assert found["resident"][0]["pid"] == 4711


def test_a_machine_of_which_nothing_can_be_read(tmp_path):
    assert read_processes(machine(tmp_path)) == {
        "gpu": [],
        "resident": [],
        "low_watermark": 0,
        "earlyoom": None,
        "nfs_threads": 0,
    }


def test_a_running_earlyoom_and_nfs_server(node):
    process(node, 950, "earlyoom", 2_000, "/usr/bin/earlyoom\0-r\x003600\0-m\x002,1\0")
    write(node, {"proc/fs/nfsd/threads": "16\n"})
    found = read_processes(machine(node))
    assert found["earlyoom"] == ["/usr/bin/earlyoom", "-r", "3600", "-m", "2,1"]
    assert found["nfs_threads"] == 16


@pytest.mark.parametrize(("text", "threads"), [("", 0), ("0\n", 0), ("8\n", 8), ("?", 0)])
def test_the_threads_of_an_nfs_server(text, threads):
    assert nfs_threads(text) == threads


@pytest.mark.parametrize(("text", "pages"), [(ZONEINFO, 10_125), ("", 0)])
def test_the_low_watermark_is_the_sum_of_all_zones_without_boosts(text, pages):
    assert low_watermark(text) == pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("No running processes found\n", []),
        ("4711, VLLM::EngineCore, 106496\n", [(4711, "VLLM::EngineCore", 106_496 * MIB)]),
        (
            "1200, /usr/lib/xorg/Xorg, 64\n4711, VLLM::EngineCore, 106496\n",
            [(4711, "VLLM::EngineCore", 106_496 * MIB), (1200, "/usr/lib/xorg/Xorg", 64 * MIB)],
        ),
        ("4711, python3 -c a, b, 12\n", [(4711, "python3 -c a, b", 12 * MIB)]),
        ("4711, [Insufficient Permissions], [N/A]\n", [(4711, "[Insufficient Permissions]", 0)]),
    ],
)
def test_what_nvidia_smi_says_of_processes(text, found):
    shown = [(one["pid"], one["name"], one["bytes"]) for one in parse_gpu_processes(text)]
    assert shown == found


@pytest.mark.parametrize(("code", "pids"), [(0, [4711]), (9, [])])
def test_nvidia_smi_is_asked_where_it_is(tmp_path, code, pids):
    tool = write(tmp_path, {"usr/bin/nvidia-smi": ""}) / "usr/bin/nvidia-smi"
    question = f"{tool} --query-compute-apps=pid,process_name,used_memory --format=csv,noheader,nounits"
    found = read_processes(machine(tmp_path, {question: (code, "4711, VLLM::EngineCore, 5\n", "")}))
    assert [one["pid"] for one in found["gpu"]] == pids
