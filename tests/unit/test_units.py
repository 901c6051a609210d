"""What must be done to the units of a headless node."""

from __future__ import annotations

import pytest
import yaml
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.units import (
    ACTIONS,
    Change,
    PolicyError,
    Session,
    Unit,
    choose,
    expand,
    held_back,
    parse_sessions,
    parse_units,
    plan,
    refuse_to_log_out,
    unknown,
    user_managers,
)

ROLE = REPO / "roles/headless"
SHIPPED = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__headless_policy"]
CLASSES = list(dict.fromkeys(entry["name"] for entry in SHIPPED))
ON = Unit("enabled", True)


def policy(*units, action="mask"):
    return [{"units": list(units), "action": action}]


@pytest.mark.parametrize(
    ("action", "state", "active", "verb"),
    [
        ("mask", "enabled", True, "mask"),
        ("mask", "enabled", False, "mask"),
        ("mask", "disabled", False, "mask"),
        ("mask", "static", True, "mask"),
        ("mask", "static", False, "mask"),
        ("mask", "masked", False, None),
        ("mask", "masked-runtime", False, None),
        ("mask", "masked", True, "stop"),
        ("mask", "alias", False, None),
        ("disable", "enabled", True, "disable"),
        ("disable", "enabled", False, "disable"),
        ("disable", "enabled-runtime", False, "disable"),
        ("disable", "disabled", False, None),
        ("disable", "disabled", True, "stop"),
        ("disable", "static", False, None),
        ("disable", "static", True, "stop"),
        ("disable", "masked", False, None),
        ("disable", "indirect", False, None),
        ("stop", "enabled", True, "stop"),
        ("stop", "enabled", False, None),
        ("stop", "static", True, "stop"),
    ],
)
def test_one_unit(action, state, active, verb):
    unit = Unit(state, active)
    expected = [Change("cups.service", verb, unit)] if verb else []
    assert plan(policy("cups.service", action=action), {"cups.service": unit}) == expected


def test_units_that_the_node_lacks_need_nothing():
    assert plan(policy("cups.service"), {}) == []


def test_a_node_may_have_the_socket_only():
    found = plan(policy("cups.socket", "cups.service"), {"cups.socket": Unit("enabled", True)})
    assert [change.unit for change in found] == ["cups.socket"]


def test_changes_keep_the_order_of_the_policy():
    units = {name: Unit("enabled", True) for name in ("b.service", "b.socket", "a.timer")}
    entries = [*policy("b.socket", "b.service"), *policy("a.timer", action="disable")]
    assert [(c.verb, c.unit) for c in plan(entries, units)] == [
        ("mask", "b.socket"),
        ("mask", "b.service"),
        ("disable", "a.timer"),
    ]


@pytest.mark.parametrize(
    ("named", "there", "expected"),
    [
        (["cups.service"], ["cups.path", "cups.service", "cups.socket"], ["cups.socket", "cups.path", "cups.service"]),
        (["cups.service"], ["cups.service"], ["cups.service"]),
        (["cups.service"], ["cups.socket"], []),
        (["cups.socket"], ["cups.service", "cups.socket"], ["cups.socket"]),
        (["apt-daily.timer"], ["apt-daily.service", "apt-daily.timer"], ["apt-daily.timer"]),
        (["snap.*.service"], ["snap.a.b.service", "snapd.service", "snap.c.socket"], ["snap.a.b.service"]),
        (["snap.*.service"], ["snap.a.service", "snap.a.socket"], ["snap.a.socket", "snap.a.service"]),
        (["cups.socket", "cups.service"], ["cups.service", "cups.socket"], ["cups.socket"] * 2 + ["cups.service"]),
    ],
)
def test_what_a_name_means_on_a_node(named, there, expected):
    assert list(expand(named, dict.fromkeys(there, ON))) == expected


def test_a_unit_that_is_named_twice_is_changed_once_by_the_first_entry():
    entries = [*policy("cups.service", action="stop"), *policy("cups.*")]
    found = plan(entries, dict.fromkeys(("cups.service", "cups.socket"), ON))
    assert [(change.verb, change.unit) for change in found] == [("stop", "cups.socket"), ("stop", "cups.service")]


@pytest.mark.parametrize(
    ("keep", "changed"),
    [
        ([], ["cups.socket", "cups.service", "avahi-daemon.service"]),
        (["avahi-daemon.service"], ["cups.socket", "cups.service"]),
        # A socket whose service is masked would fail at the first connection, so they stay or go together.
        (["cups.service"], ["avahi-daemon.service"]),
        (["cups.socket"], ["avahi-daemon.service"]),
        (["cups*", "avahi*"], []),
        (["cups-browsed.service"], ["cups.socket", "cups.service", "avahi-daemon.service"]),
    ],
)
def test_the_users_list_wins(keep, changed):
    units = dict.fromkeys(("cups.socket", "cups.service", "avahi-daemon.service"), ON)
    assert [change.unit for change in plan(policy("cups.service", "avahi-daemon.service"), units, keep)] == changed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ssh.service", "it is the way in"),
        ("sshd.service", "it is the way in"),
        ("ssh.socket", "it is the way in"),
        ("docker.service", "the engine runs in it"),
        ("docker.socket", "the engine runs in it"),
        ("snap.docker.dockerd.service", "the engine runs in it"),
        ("containerd.service", "the engine runs in it"),
        ("dbus.service", "everything else speaks through it"),
        ("dbus-broker.service", "everything else speaks through it"),
        ("lldpd.service", "it tells the switch who is here"),
        ("NetworkManager.service", "it may carry the management address"),
        ("systemd-networkd.service", "it is the log, the network, the names or the logins"),
        ("systemd-resolved.service", "it is the log, the network, the names or the logins"),
        ("systemd-journald.service", "it is the log, the network, the names or the logins"),
        ("nvidia-persistenced.service", "the GPU needs it"),
        ("nvidia-cdi-refresh.service", "the GPU needs it"),
        ("rdma-load-modules@rdma.service", "the rails need it"),
        ("polkit.service", "it decides who may do what"),
        ("sparkwright-engine.service", "it is the engine"),
    ],
)
def test_a_unit_that_must_stay_is_refused(name, reason):
    with pytest.raises(PolicyError) as error:
        plan(policy("cups.service", name), {})
    assert str(error.value) == (
        f"{name} is to be turned off; limit: it must stay, as {reason}; remedy: take it out of the policy"
    )


def test_what_must_stay_stays_although_a_pattern_means_it():
    units = dict.fromkeys(("docker.service", "dbus.service", "dgx-dashboard.service"), ON)
    assert [change.unit for change in plan(policy("d*.service"), units)] == ["dgx-dashboard.service"]


def test_a_unit_whose_file_lies_where_its_mask_would_is_disabled():
    found = plan(
        policy("own.service", "cups.service"), dict.fromkeys(("own.service", "cups.service"), ON), (), ["own.service"]
    )
    assert [(change.verb, change.unit) for change in found] == [("disable", "own.service"), ("mask", "cups.service")]


def test_firmware_updates_are_never_masked():
    with pytest.raises(PolicyError) as error:
        plan(policy("fwupd.service"), {})
    assert str(error.value) == (
        "fwupd.service is to be masked; limit: disable, or its updates break; remedy: set action: disable"
    )
    running = {"fwupd.service": Unit("static", True), "fwupd-refresh.timer": ON}
    found = plan([entry for entry in SHIPPED if entry["name"] == "firmware"], running)
    assert [(change.verb, change.unit) for change in found] == [
        ("stop", "fwupd.service"),
        ("disable", "fwupd-refresh.timer"),
    ]


def entry(name, *units, **more):
    return {"name": name, "units": list(units), **more}


@pytest.mark.parametrize(
    ("switches", "chosen"),
    [
        ({}, ["print", "print"]),
        ({"dashboard": True}, ["print", "print", "dashboard"]),
        ({"dashboard": True, "print": False}, ["dashboard"]),
        ({"print": None, "dashboard": None}, ["print", "print"]),
    ],
)
def test_the_switches_of_classes(switches, chosen):
    entries = [entry("print", "cups.service"), entry("print", on=True), entry("dashboard", on=False)]
    found, warnings = choose(entries, switches)
    assert ([one["name"] for one in found], warnings) == (chosen, [])


@pytest.mark.parametrize(
    ("names", "switches", "chosen", "warnings"),
    [
        ([], {}, ["discovery"], []),
        (
            ["spark1.local", "spark2.local"],
            {},
            [],
            [
                "avahi-daemon.service stays on, because the inventory uses spark1.local, spark2.local; remedy: "
                "set ansible_host to addresses, or set headless_classes.discovery to true"
            ],
        ),
        (
            ["spark1.local"],
            {"discovery": True},
            ["discovery"],
            [
                "the inventory uses spark1.local, which resolves no longer once avahi-daemon.service is off; remedy: "
                "set ansible_host to addresses"
            ],
        ),
        (["spark1.local"], {"discovery": False}, [], []),
    ],
)
def test_names_in_local(names, switches, chosen, warnings):
    found = choose([entry("discovery", "avahi-daemon.service")], switches, names)
    assert ([one["name"] for one in found[0]], found[1]) == (chosen, warnings)


@pytest.mark.parametrize(
    ("units", "held"),
    [
        ({}, {}),
        ({"snap.docker.dockerd.service": Unit("enabled", False)}, {}),
        ({"snap.docker.dockerd.service": ON}, {"snaps": "snap.docker.dockerd.service"}),
        ({"snap.firefox.update.service": ON}, {}),
    ],
)
def test_snaps_stay_where_docker_is_one(units, held):
    assert held_back(SHIPPED, units) == held


GDM = Change("gdm.service", "stop", Unit("static", True))


@pytest.mark.parametrize(
    ("changes", "sessions"),
    [
        ([GDM], []),
        ([], [Session("ann", "2", "wayland")]),
        ([Change("cups.service", "mask", ON)], [Session("ann", "2", "wayland")]),
        ([Change("gdm.service", "mask", Unit("static", False))], [Session("ann", "2", "x11")]),
    ],
)
def test_nobody_is_logged_out(changes, sessions):
    refuse_to_log_out(changes, sessions)


def test_somebody_at_the_desktop_is_not_logged_out_unasked():
    with pytest.raises(PolicyError) as error:
        refuse_to_log_out([GDM], [Session("ann", "2", "wayland"), Session("bob", "c3", "x11")])
    assert str(error.value) == (
        "stopping gdm.service ends the desktop of ann (session 2, wayland) and bob (session c3, x11); limit: nobody "
        "logged in there; remedy: log out, set headless_end_sessions: true, or keep it by "
        "headless_classes.desktop: false"
    )


def test_the_list_of_sessions():
    text = """Id=2
Name=ann
Type=wayland
Class=user

Id=c1
Name=gdm
Type=wayland
Class=greeter

Id=7
Name=bob
Type=tty
Class=user
"""
    assert parse_sessions(text) == [Session("ann", "2", "wayland")]
    assert parse_sessions("") == []


def test_the_users_with_a_session():
    assert user_managers(["user@1000.service", "user@0.service", "user.slice", "ssh.service"]) == [0, 1000]


def test_names_that_mean_nothing_on_a_node():
    units = dict.fromkeys(("cups.socket", "snap.a.service"), ON)
    assert unknown(["cups.service", "cups.socket", "snap.*", "b.*", "b.*"], units) == ["b.*", "cups.service"]


def test_the_shipped_policy_breaks_no_rule_even_where_every_unit_exists():
    named = {name for one in SHIPPED for name in one["units"]}
    found = plan(SHIPPED, dict.fromkeys(named, ON))
    assert {change.unit for change in found} == named
    assert not [change.unit for change in found if change.verb == "mask" and change.unit.startswith(("fwupd", "gdm"))]


@pytest.mark.parametrize("one", SHIPPED, ids=lambda one: one["name"])
def test_an_entry_of_the_shipped_policy_is_complete(one):
    assert one["action"] in ACTIONS
    assert one["units"] or one["user_units"]
    for text in (one["reason"], one["cost"]):
        assert text.endswith(".")


def test_only_the_dashboard_waits_to_be_asked_for():
    assert [one["name"] for one in SHIPPED if not one.get("on", True)] == ["dashboard"]


def test_each_class_has_a_switch_that_tells_what_it_costs():
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    switches = options["headless_classes"]["options"]
    assert list(switches) == CLASSES
    for name, switch in switches.items():
        for one in SHIPPED:
            assert one["name"] != name or one["cost"] in switch["description"]


def test_the_lists_of_systemctl():
    files = [
        {"unit_file": "cups.service", "state": "enabled", "preset": "enabled"},
        {"unit_file": "cups.socket", "state": "enabled"},
        {"unit_file": "bluetooth.service", "state": "masked"},
        {"unit_file": "fwupd.service", "state": "static"},
        {"unit_file": "colord.service", "state": "static"},
    ]
    loaded = [
        {"unit": "cups.service", "load": "loaded", "active": "active", "sub": "running"},
        {"unit": "cups.socket", "active": "inactive"},
        {"unit": "fwupd.service", "active": "activating"},
        {"unit": "colord.service", "active": "failed"},
        {"unit": "session-1.scope", "active": "active"},
    ]
    assert parse_units(files, loaded) == {
        "cups.service": Unit("enabled", True),
        "cups.socket": Unit("enabled", False),
        "bluetooth.service": Unit("masked", False),
        "fwupd.service": Unit("static", True),
        "colord.service": Unit("static", False),
    }
