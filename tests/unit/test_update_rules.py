"""What speaks against an update, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import software

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_simulation import AptPlan, Change
from ansible_collections.sparkwright.cluster.plugins.module_utils.update_rules import (
    Node,
    objections,
    uneven_after,
    update_table,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.update_wish import (
    KnownBad,
    UpdateWish,
    known_bad_table,
)

NEW = "7.0.0-1019-nvidia"
KERNEL = {f"linux-image-{NEW}": Change("", "7.0.0-1019.19")}
MODULES = {f"linux-modules-nvidia-580-open-{NEW}": Change("", "7.0.0-1019.19")}
HEADERS = {f"linux-headers-{NEW}": Change("", "7.0.0-1019.19")}
DRIVER = ("nvidia-driver-580-open", "nvidia-firmware-580", "nvidia-kernel-common-580", "libnvidia-compute-580")
KHO = KnownBad("kho", "kernel", "memory is gone", "boot 6.17", "me", {"from": "7.0.0-1019"}, "kho=off")
BAD_DRIVER = KnownBad("drv", "driver", "it leaks", "stay at 580.95", "me", {"from": "580.100"}, refuse=False)


def newer(*names, version="580.126.09-0ubuntu1"):
    return {name: Change("580.95.05-0ubuntu1", version) for name in names}


def node(install=None, remove=None, kept=(), held=(), installed=None, arguments=(), **wish):
    plan = AptPlan(install or {}, remove or {}, tuple(kept))
    packages = software()["packages"] if installed is None else installed
    return Node("6.17.0-1008-nvidia", packages, held, plan, UpdateWish(**wish), arguments)


def dkms():
    rest = {name: version for name, version in software()["packages"].items() if "modules-nvidia" not in name}
    return rest | {"nvidia-dkms-580": "580.95.05-0ubuntu1"}


@pytest.mark.parametrize(
    "good",
    [
        node(),
        node({**KERNEL, **MODULES}),
        node({**KERNEL, **HEADERS}, installed=dkms()),
        node(newer(*DRIVER)),
        # The firmware of before stays until somebody has apt remove it.
        node(
            {**newer(*DRIVER), "nvidia-firmware-580-580.126.09": Change("", "580.126.09-0ubuntu1")},
            installed=software()["packages"] | {"nvidia-firmware-580-580.95.05": "580.95.05-0ubuntu1"},
        ),
        node(KERNEL, installed={"runc": "1"}),
        node(remove={"snapd": "1"}, removals=("snap*",)),
        node({**KERNEL, **MODULES}, known_bad=(KHO,), arguments=("kho=off",)),
        # The packages of a kernel of before go with it.
        node(remove={"linux-modules-nvidia-580-open-6.11.0-1-nvidia": "1"}, removals=("linux-modules-*",)),
    ],
)
def test_nothing_speaks_against_it(good):
    assert objections(good) == []


@pytest.mark.parametrize(
    ("bad", "fact"),
    [
        (
            replace(node(), served=False),
            "there is no note of when it last served, so nothing to prove the update against",
        ),
        (node(remove={"nvidia-driver-580-open": "580"}), "the update would remove nvidia-driver-580-open 580"),
        (
            node(remove={"linux-image-6.17.0-1008-nvidia": "1"}, removals=("linux-image-*",)),
            "the update would remove the running kernel 6.17.0-1008-nvidia",
        ),
        (
            node({"rdma-core": Change("50.0-2build2", "49.0")}),
            "the update would take rdma-core from 50.0-2build2 back to 49.0",
        ),
        (
            node(KERNEL),
            f"the update brings kernel {NEW} without the driver's modules (linux-modules-nvidia-*-{NEW})",
        ),
        (
            node(KERNEL, installed=dkms()),
            f"the update brings kernel {NEW} without linux-headers-{NEW}, from which DKMS builds the driver",
        ),
        (
            node(newer(*DRIVER[:2])),
            "the update would leave driver 580 in several versions (580.126.09: nvidia-driver-580-open,"
            " nvidia-firmware-580; 580.95.05: libnvidia-compute-580, nvidia-kernel-common-580)",
        ),
        (
            node({"nvidia-kernel-common-590": Change("", "590.1-1")}),
            "the update would leave driver 590 without nvidia-firmware-590",
        ),
        (node({**KERNEL, **MODULES}, known_bad=(KHO,)), f"the update brings kernel {NEW}: memory is gone"),
    ],
)
def test_one_thing_speaks_against_it(bad, fact):
    (found,) = objections(bad)
    assert (found.fact, found.refuse) == (fact, True)
    assert found.limit
    assert found.remedy


@pytest.mark.parametrize(
    ("known", "fact"),
    [
        (
            node(newer(*DRIVER), known_bad=(BAD_DRIVER,)),
            "the update brings nvidia-kernel-common-580 580.126.09: it leaks",
        ),
        (node(kept=["a", "b"], held=["b"]), "on hold although newer ones exist: b"),
        (node(kept=["a"]), "apt keeps back a"),
        (
            node({"runc": Change("1.2", "1.3")}, hold=("runc",)),
            "put on hold first, so left out by the update itself: runc",
        ),
    ],
)
def test_what_is_only_told(known, fact):
    found = [one for one in objections(known) if one.fact == fact]
    assert [one.refuse for one in found] == [False]


def test_nodes_that_would_not_be_alike():
    runc = {"runc": Change("1.2", "1.3")}
    have = software()["packages"] | {"runc": "1.2"}
    nodes = {f"spark{n}": node(runc, installed=have) for n in (1, 2, 3)}
    nodes["spark4"] = node(installed=have)
    found = uneven_after(nodes)
    assert [one.fact for one in found["spark4"]] == ["after the update runc would be 1.2"]
    assert [one.limit for one in found["spark4"]] == ["1.3, as on the others"]
    assert not any(found[host] for host in ("spark1", "spark2", "spark3"))


def test_nodes_that_are_accepted_as_they_are():
    have = software()["packages"]
    nodes = {f"spark{n}": node(installed=have, accept=("package docker-*",)) for n in (1, 2)}
    nodes["spark3"] = node(installed=have | {"docker-extra": "1", "runc": "1"}, accept=("package docker-*",))
    found = {one.fact: one.refuse for one in uneven_after(nodes)["spark3"]}
    assert found == {"after the update docker-extra would be 1": False, "after the update runc would be 1": True}


def test_kernels_of_before_that_only_some_nodes_keep_do_not_matter():
    old = {"linux-image-6.11.0-1-nvidia": "1", "linux-headers-6.11.0-1-nvidia": "1"}
    nodes = {"spark1": node(), "spark2": node(installed=software()["packages"] | old)}
    assert not any(uneven_after(nodes).values())
    nodes["spark3"] = node({**KERNEL, **MODULES})
    assert [one.fact for one in uneven_after(nodes)["spark3"]] == [f"after the update the newest kernel would be {NEW}"]


def test_the_table():
    nodes = {
        "spark1": node({"runc": Change("1.2", "1.3"), "new": Change("", "1")}),
        "spark2": node(remove={"runc": "1.2"}),
    }
    assert update_table(nodes).splitlines() == [
        "package  spark1      spark2",
        "new      new 1       -",
        "runc     1.2 -> 1.3  REMOVED",
        "spark1: 2 to install, 0 to remove",
        "spark2: 0 to install, 1 to remove",
    ]


def test_an_entry_of_the_user_replaces_the_shipped_one_of_its_name():
    shipped = [{"name": "a", "subject": "kernel", "sign": "s", "remedy": "r", "source": "x"}]
    own = [{"name": "a", "subject": "driver", "sign": "s", "remedy": "r", "source": "y", "versions": None}]
    assert [entry.source for entry in known_bad_table(shipped, own)] == ["y"]
    assert [entry.versions for entry in known_bad_table(shipped, own)] == [{}]
