"""What apt would do: its words in the shapes that Ubuntu prints, and those of a real apt over a real repository."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_simulation import (
    SIMULATE,
    AptPlan,
    Change,
    parse_simulation,
)

UBUNTU = """\
Reading package lists...
Calculating upgrade...
The following packages will be REMOVED:
  nvidia-driver-580-open
The following packages have been kept back:
  linux-image-nvidia rdma-core
  runc
The following packages will be upgraded:
  libnvidia-compute-580
1 upgraded, 1 newly installed, 1 to remove and 3 not upgraded.
Remv nvidia-driver-580-open [580.95.05-0ubuntu0.24.04.1]
Inst libnvidia-compute-580 [580.95.05-0ubuntu0.24.04.1] (580.126.09-0ubuntu0.24.04.1 Ubuntu:24.04/noble [arm64]) []
Inst linux-image-7.0.0-1019-nvidia (7.0.0-1019.19 Ubuntu:24.04/noble-updates, Ubuntu:24.04/noble-security [arm64])
Conf libnvidia-compute-580 (580.126.09-0ubuntu0.24.04.1 Ubuntu:24.04/noble-updates [arm64])
Conf half-done (1.0  [all])
"""


def test_the_words_of_ubuntu():
    found = parse_simulation(UBUNTU)
    assert found == AptPlan(
        install={
            "libnvidia-compute-580": Change("580.95.05-0ubuntu0.24.04.1", "580.126.09-0ubuntu0.24.04.1"),
            "linux-image-7.0.0-1019-nvidia": Change("", "7.0.0-1019.19"),
        },
        remove={"nvidia-driver-580-open": "580.95.05-0ubuntu0.24.04.1"},
        kept=("linux-image-nvidia", "rdma-core", "runc"),
        configure=("half-done",),
    )
    assert AptPlan.from_data(json.loads(json.dumps(found.as_data()))) == found
    assert found.digest == AptPlan.from_data(found.as_data()).digest
    assert found.digest != parse_simulation("").digest


def test_nothing_to_do():
    found = parse_simulation("Calculating upgrade...\n0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.\n")
    assert found.empty
    assert found.after({"a": "1"}) == {"a": "1"}


def test_what_is_installed_afterwards():
    plan = parse_simulation(UBUNTU)
    assert plan.after({"nvidia-driver-580-open": "x", "libnvidia-compute-580": "y", "rdma-core": "50"}) == {
        "libnvidia-compute-580": "580.126.09-0ubuntu0.24.04.1",
        "linux-image-7.0.0-1019-nvidia": "7.0.0-1019.19",
        "rdma-core": "50",
    }


OFFERED = [
    {"name": "docker-lab", "version": "2.0", "Depends": "newdep"},
    {"name": "newdep", "version": "1.0"},
    {"name": "held-lab", "version": "2:2.0-1"},
    {"name": "breaks-lab", "version": "2.0", "Conflicts": "victim-lab"},
    {"name": "keeps-lab", "version": "2.0", "Depends": "nowhere"},
    {"name": "linux-image-7.0.0-1019-nvidia", "version": "7.0.0-1019.19"},
    {"name": "linux-image-nvidia", "version": "7.0.0.1019", "Depends": "linux-image-7.0.0-1019-nvidia"},
]
INSTALLED = """\
docker-lab 1.0 install ok installed
held-lab 2:1.0-1 hold ok installed
breaks-lab 1.0 install ok installed
victim-lab 1.0 install ok installed
keeps-lab 1.0 install ok installed
linux-image-nvidia 6.17.0.1008 install ok installed
half-lab 1.0 install ok unpacked
"""


@pytest.fixture
def apt(tmp_path):
    """A root of its own for apt, with a repository that offers something."""
    for folder in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/dpkg", "var/lib/apt/lists/partial"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/cache/apt/archives/partial").mkdir(parents=True)
    rows = [line.split(maxsplit=2) for line in INSTALLED.splitlines()]
    status = "".join(
        f"Package: {name}\nStatus: {state}\nMaintainer: x\nArchitecture: all\nVersion: {version}\nDescription: x\n\n"
        for name, version, state in rows
    )
    (tmp_path / "var/lib/dpkg/status").write_text(status)
    make = [sys.executable, REPO / "molecule/updates/repository", tmp_path / "repo"]
    subprocess.run(make, input=json.dumps(OFFERED), text=True, check=True)
    (tmp_path / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{tmp_path}/repo ./\n")
    options = {
        "Dir": tmp_path,
        "Dir::State::status": tmp_path / "var/lib/dpkg/status",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]

    def run(*argv):
        command = [argv[0], *given, *argv[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True, env={"LC_ALL": "C"}).stdout

    run("apt-get", "-o", "Debug::NoLocking=true", "update")
    return run


@pytest.mark.skipif(not (shutil.which("apt-get") and shutil.which("dpkg-deb")), reason="there is no apt here")
def test_the_words_of_the_apt_of_this_machine(apt):
    found = parse_simulation(apt(*SIMULATE))
    assert found == AptPlan(
        install={
            "breaks-lab": Change("1.0", "2.0"),
            "newdep": Change("", "1.0"),
            "docker-lab": Change("1.0", "2.0"),
            "linux-image-7.0.0-1019-nvidia": Change("", "7.0.0-1019.19"),
            "linux-image-nvidia": Change("6.17.0.1008", "7.0.0.1019"),
        },
        remove={"victim-lab": "1.0"},
        kept=("held-lab", "keeps-lab"),
        configure=("half-lab",),
    )
