"""Versions that are known to be bad: what they mean, and that the shipped table is whole and documented."""

from __future__ import annotations

import re

import pytest
import yaml
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.known_bad import (
    kernel_of,
    packages,
    release,
    running,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.update_wish import known_bad_table

SHIPPED = known_bad_table(yaml.safe_load((REPO / "roles/os_update/files/known_bad.yml").read_text())["known_bad"])
PAGE = (REPO / "docs/updates.md").read_text()


def names(found):
    return [one.bad.name for one in found]


@pytest.mark.parametrize(
    ("kernel", "arguments", "bad"),
    [
        ("7.0.0-1019-nvidia", ["ro"], ["kernel-kho"]),
        ("7.0.0-1019-nvidia", ["ro", "kho=off"], []),
        ("7.0.0-1018-nvidia", ["ro"], []),
        ("7.0.0-1020-nvidia", ["ro"], []),
        ("6.17.0-1008-nvidia", ["ro"], []),
        ("6.12.57+deb13-amd64", [], []),
    ],
)
def test_the_kernel_that_runs(kernel, arguments, bad):
    assert names(running(SHIPPED, kernel, "580.95.05", arguments)) == bad


@pytest.mark.parametrize(
    ("package", "version", "bad"),
    [
        ("linux-image-7.0.0-1019-nvidia", "7.0.0-1019.19", ["kernel-kho"]),
        ("linux-image-unsigned-7.0.0-1019-nvidia", "7.0.0-1019.19", ["kernel-kho"]),
        ("linux-image-nvidia", "7.0.0.1019", []),
        ("nvidia-container-toolkit", "1.17.0-1", ["toolkit-imex"]),
        ("nvidia-container-toolkit-base", "1.17.1-1", ["toolkit-imex"]),
        ("nvidia-container-toolkit", "1.17.2-1", []),
        ("nvidia-container-toolkit", "1.18.0~rc.1-1", ["toolkit-cdi"]),
        ("nvidia-container-toolkit", "1.16.2-1", []),
    ],
)
def test_packages(package, version, bad):
    assert names(packages(SHIPPED, {package: version}, [])) == bad


def test_a_driver_is_compared_too():
    table = known_bad_table([{"name": "d", "subject": "driver", "versions": {"before": "590.50"}, **_words()}])
    assert names(running(table, "6.17", "590.44.01", [])) == ["d"]
    assert names(running(table, "6.17", "590.50", [])) == []
    assert names(running(table, "6.17", None, [])) == []


def _words():
    return {"sign": "s", "remedy": "r", "source": "x"}


@pytest.mark.parametrize(
    ("package", "kernel"),
    [("linux-image-6.17.0-1008-nvidia", "6.17.0-1008-nvidia"), ("linux-image-nvidia-hwe-24.04", None), ("runc", None)],
)
def test_the_kernel_of_a_package(package, kernel):
    assert kernel_of(package) == kernel


@pytest.mark.parametrize(("kernel", "number"), [("7.0.0-1019-nvidia", "7.0.0-1019"), ("6.1", "6.1")])
def test_a_release_without_its_flavour(kernel, number):
    assert release(kernel) == number


def test_every_shipped_entry_is_whole_and_has_a_line_on_the_page():
    assert SHIPPED
    assert all(entry.sign and entry.remedy and entry.source and entry.versions for entry in SHIPPED)
    assert re.findall(r"^\| `([a-z-]+)` \| `", PAGE, re.MULTILINE) == [entry.name for entry in SHIPPED]
