"""What must be put back on a node: the record against what the node is like now."""

from __future__ import annotations

import base64

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.restore import (
    Now,
    RestoreError,
    Row,
    file_shown,
    folders_made,
    plan,
    steps,
    table,
    undo_links,
    undo_sysctl,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.undo import Step
from ansible_collections.sparkwright.cluster.plugins.module_utils.units import Unit

NO_FILE = {"existed": False, "folder": None}
TARGET = {"name": "graphical.target", "linked": False}


def file(content=b"x\n", mode="0644", uid=0, gid=0):
    return {"existed": True, "mode": mode, "uid": uid, "gid": gid, "content": base64.b64encode(content).decode()}


def record(**sections):
    return {"schema": 1, "files": {}, "units": {}, "user_units": {}, **sections}


def now(files=None, units=None, user_units=None, sessions=None, target=TARGET):
    return Now(files or {}, units or {}, user_units or {}, sessions or {}, target)


@pytest.mark.parametrize(
    ("before", "found", "differs"),
    [
        (NO_FILE, NO_FILE, False),
        (NO_FILE, file(), True),
        (file(), NO_FILE, True),
        (file(), file(), False),
        (file(), file(b"y\n"), True),
        (file(), file(mode="0600"), True),
        (file(), file(uid=1000), True),
        (file(), file(gid=1000), True),
        # Where the folder is there now, nothing differs but what is done when the file goes.
        ({"existed": False, "folder": "/etc/x"}, NO_FILE, False),
    ],
)
def test_files(before, found, differs):
    wanted = plan(record(files={"/etc/x/a": before}), now(files={"/etc/x/a": found}))
    assert wanted.files == ({"/etc/x/a": before} if differs else {})
    assert [(row.now, row.before) for row in wanted.rows] == (
        [(file_shown(found), file_shown(before))] if differs else []
    )


@pytest.mark.parametrize(
    ("before", "found", "verb", "start"),
    [
        (("enabled", True), ("masked", False), "unmask", True),
        (("disabled", False), ("masked", False), "unmask", False),
        (("static", True), ("masked-runtime", False), "unmask", True),
        (("enabled", True), ("disabled", False), "enable", True),
        (("enabled", True), ("disabled", True), "enable", False),
        (("enabled-runtime", False), ("disabled", False), "enable", False),
        (("disabled", True), ("enabled", True), "disable", False),
        (("masked", True), ("masked", False), None, False),
        (("masked", False), ("static", False), "mask", False),
        (("static", True), ("static", False), None, True),
        # Somebody started it since; that is not for us to end.
        (("enabled", False), ("enabled", True), None, False),
        (("enabled", True), ("enabled", True), None, False),
        (("enabled", True), None, None, False),
    ],
)
def test_units(before, found, verb, start):
    entry = {"state": before[0], "active": before[1]}
    units = {"a.service": Unit(*found)} if found else {}
    wanted = plan(record(units={"a.service": entry}), now(units=units))
    assert [name for name, units in wanted.units.items() if units] == ([verb] if verb else [])
    assert wanted.start == (["a.service"] if start else [])
    assert len(wanted.rows) == (1 if verb or start else 0)


def test_units_for_all_users_are_a_list_of_their_own():
    entry = {"state": "enabled", "active": False}
    wanted = plan(record(user_units={"a.socket": entry}), now(user_units={"a.socket": Unit("masked", False)}))
    assert (wanted.user_units["unmask"], wanted.units["unmask"]) == (["a.socket"], [])
    assert wanted.rows == [Row("a.socket for all users", "masked", "enabled")]


@pytest.mark.parametrize(
    ("sessions", "started"),
    [
        ({}, {}),
        ({1000: []}, {1000: ["pipewire.socket"]}),
        ({1000: ["pipewire.socket"]}, {}),
        ({1001: []}, {}),
    ],
)
def test_sessions_that_run(sessions, started):
    entry = {"user": 1000, "unit": "pipewire.socket"}
    wanted = plan(record(sessions={"1000/pipewire.socket": entry}), now(sessions=sessions))
    assert wanted.sessions == started
    assert len(wanted.rows) == len(started)


@pytest.mark.parametrize(
    ("target", "wanted", "rows"),
    [
        (TARGET, None, []),
        ({"name": "multi-user.target", "linked": True}, TARGET, [Row("boot", "multi-user.target", "graphical.target")]),
        # The same target by a link that was not there is not how it was.
        ({"name": "graphical.target", "linked": True}, TARGET, [Row("boot", "graphical.target", "graphical.target")]),
    ],
)
def test_the_default_target(target, wanted, rows):
    found = plan(record(default_target=TARGET), now(target=target))
    assert (found.target, found.rows) == (wanted, rows)


@pytest.mark.parametrize(
    ("path", "earlier", "pending"),
    [
        ("/etc/netplan/60-sparkwright.yaml", {}, {"netplan"}),
        ("/etc/docker/daemon.json", {}, {"docker"}),
        ("/etc/docker/certs.d", {}, set()),
        ("/etc/nccl.conf", {}, set()),
        ("/etc/nccl.conf", {"netplan": {}}, {"netplan"}),
    ],
)
def test_what_must_follow(path, earlier, pending):
    found = plan(record(files={path: NO_FILE}, pending=earlier), now(files={path: file()}))
    assert found.pending == pending


def test_nothing_follows_from_a_file_that_is_as_before():
    path = "/etc/docker/daemon.json"
    assert plan(record(files={path: file()}), now(files={path: file()})).pending == set()


@pytest.mark.parametrize(
    ("folder", "path", "folders"),
    [
        (None, "/etc/nccl.conf", []),
        ("/etc/sparkwright", "/etc/sparkwright/nccl.env", ["/etc/sparkwright"]),
        ("/usr/local/lib/a", "/usr/local/lib/a/b/c.py", ["/usr/local/lib/a/b", "/usr/local/lib/a"]),
        # The file is reached through a link, so its folders have other names.
        ("/srv/a", "/etc/a/b", []),
    ],
)
def test_the_folders_that_were_made(folder, path, folders):
    assert folders_made({path: {"existed": False, "folder": folder}}, path) == folders


@pytest.mark.parametrize("content", [b"", b"1", b"12", b"123", b"1234"])
def test_a_file_in_some_words(content):
    assert file_shown(file(content, "0600", 5, 6)) == f"0600 5:6 {len(content)} bytes"


def test_the_table():
    rows = [Row("cups.service", "masked", "enabled, active"), Row("rail0 addresses", "10.0.0.1/24", "")]
    assert table(rows) == [
        "what             now          before",
        "------------------------------------",
        "cups.service     masked       enabled, active",
        "rail0 addresses  10.0.0.1/24  none",
    ]


def test_kernel_settings():
    assert undo_sysctl({"vm/swappiness": {"value": "60"}}) == [
        Step("vm/swappiness", "60", ("sysctl", "-w", "vm/swappiness=60"), ("sysctl", "-n", "vm/swappiness"))
    ]


@pytest.mark.parametrize(
    ("entry", "whats"),
    [
        ({"mtu": 1500, "up": False, "addresses": []}, ["rail0 addresses", "rail0 MTU", "rail0 up"]),
        ({"mtu": 1500, "up": True, "addresses": []}, ["rail0 addresses", "rail0 MTU"]),
        ({"mtu": 9000, "up": True, "addresses": ["10.0.0.1/24"]}, ["rail0 MTU"]),
    ],
)
def test_links(entry, whats):
    found = undo_links({"rail0": entry})
    assert [step.what for step in found] == whats
    mtu = next(step for step in found if step.what == "rail0 MTU")
    assert (mtu.before, mtu.argv[-5:]) == (str(entry["mtu"]), ("link", "set", "rail0", "mtu", str(entry["mtu"])))


def test_steps_come_in_the_order_of_the_sections():
    undo = {name: lambda entries: [Step(what, "", ()) for what in entries] for name in ("b", "a")}
    assert [step.what for step in steps(record(a={"1": {}}, b={"2": {}}, pending={}), undo)] == ["2", "1"]
    assert steps(record(), undo) == []


def test_a_section_that_nobody_can_undo_is_refused():
    with pytest.raises(RestoreError) as error:
        steps(record(magic={}), {"sysctl": undo_sysctl})
    assert str(error.value) == (
        "the record has the section magic; limit: default_target, files, pending, replaced, schema, sessions, sysctl, "
        "units, user_units; remedy: restore with the release that wrote it"
    )
