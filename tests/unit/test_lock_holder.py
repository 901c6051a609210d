"""The process that holds the lock: with stand-ins for the connection and for the run that owns it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from ansible_collections.sparkwright.cluster.plugins.plugin_utils import lock_holder

# Beats fast, so that a test need not wait for the next line.
PROGRAM = f"""
import sys
sys.path[:0] = {sys.path!r}
from {lock_holder.__name__} import __name__ as name
holder = sys.modules[name]
holder.BEAT_SECONDS = 0.1
sys.exit(holder.main(sys.argv[1:]))
"""


@pytest.fixture
def processes():
    """Processes of this test, ended with it."""
    started = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def owner(processes):
    processes.append(subprocess.Popen(["sleep", "60"]))
    return processes[0]


@pytest.fixture
def hold(processes, owner):
    """Start a holder over a shell script that stands for the connection to the head."""

    def start(script):
        argv = [sys.executable, "-c", PROGRAM, str(owner.pid), "bash", "-c", script]
        processes.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return processes[-1]

    return start


def reported(holder):
    return json.loads(holder.stdout.readline())


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_the_lock_is_held_until_the_owner_ends(hold, owner, tmp_path):
    freed = tmp_path / "freed"
    holder = hold(f"echo held; while read -t 5 line; do :; done; touch {freed}")
    assert reported(holder) == {"held": True}
    time.sleep(0.3)
    assert holder.poll() is None
    assert not freed.exists()
    owner.kill()
    owner.wait()
    assert holder.wait(10) == 0
    assert freed.exists()


def test_lines_keep_arriving(hold, tmp_path):
    beats = tmp_path / "beats"
    hold(f"echo held; while read -t 5 line; do echo >> {beats}; done")
    assert wait_until(lambda: beats.exists() and len(beats.read_text()) >= 3)


def test_nobody_waits_for_the_end_of_the_holder(hold):
    """What started it reads to the end of its output and goes on."""
    holder = hold("echo held; cat > /dev/null")
    assert json.loads(holder.stdout.read()) == {"held": True}
    assert holder.poll() is None


@pytest.mark.parametrize(
    ("script", "report"),
    [
        (
            "echo alice@desk pid 4312 since 10:31 UTC; exit 75",
            {"code": 75, "holder": "alice@desk pid 4312 since 10:31 UTC", "error": ""},
        ),
        ("echo no route to host >&2; exit 255", {"code": 255, "holder": "", "error": "no route to host"}),
        ("exit 1", {"code": 1, "holder": "", "error": ""}),
    ],
    ids=["busy", "no connection", "nothing said"],
)
def test_a_lock_that_is_not_ours(hold, script, report):
    holder = hold(script)
    assert reported(holder) == {"held": False, **report}
    assert holder.wait(10) == 1


def test_a_connection_that_ends_ends_the_holder(hold):
    holder = hold("echo held; exit 3")
    assert reported(holder) == {"held": True}
    assert holder.wait(10) == 3


def test_a_connection_that_takes_no_lines_is_ended(hold, tmp_path):
    """The shell closes its input and lives on: a broken pipe, and no end of its process."""
    pid = tmp_path / "pid"
    holder = hold(f"echo $$ > {pid}; echo held; exec sleep 60 <&-")
    assert reported(holder) == {"held": True}
    assert holder.wait(10) == 256 - 15
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
