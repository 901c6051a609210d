"""Locks of apt: a real one held by another process, named and waited for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_lock import (
    Holder,
    LockedError,
    holder,
    wait_until_free,
)

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "lock"


@pytest.fixture
def held(lock):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_a_lock_that_nobody_holds(lock):
    assert holder((str(lock),)) is None
    lock.touch()
    assert holder((str(lock),)) is None


def test_who_holds_it(lock, held):
    found = holder((str(lock),))
    assert (found.lock, found.pid) == (str(lock), held.pid)
    assert found.name.startswith("python")
    with pytest.raises(LockedError, match=rf"^python\S* \(pid {held.pid}\) holds {lock}; limit: 0.0\d* minutes"):
        wait_until_free(0.6, lambda: holder((str(lock),)), pause=0.1)


def test_waiting_ends_when_it_is_let_go_and_says_for_whom_it_waited():
    one, other = Holder("/lock", 1, "apt"), Holder("/lock", 2, "dpkg")
    looks = iter([one, one, other, None])
    told = wait_until_free(5, lambda: next(looks), pause=0.01)
    assert told == ["waited 0 s: apt (pid 1) holds /lock", "waited 0 s: dpkg (pid 2) holds /lock"]
    assert str(Holder("/lock", 0, "a process")) == "a process outside holds /lock"
