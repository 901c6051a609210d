"""What must be done to the units of a headless node."""

from __future__ import annotations

import pytest
import yaml
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.units import (
    KEEP,
    Change,
    PolicyError,
    Unit,
    parse_units,
    plan,
)


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
        ("mask", "masked", True, "mask"),
        ("disable", "enabled", True, "disable"),
        ("disable", "enabled", False, "disable"),
        ("disable", "enabled-runtime", False, "disable"),
        ("disable", "disabled", False, None),
        ("disable", "disabled", True, "disable"),
        ("disable", "static", False, None),
        ("disable", "static", True, "disable"),
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


def test_the_users_list_wins():
    units = {name: Unit("enabled", True) for name in ("cups.service", "avahi-daemon.service")}
    found = plan(policy(*units), units, keep=["avahi-daemon.service"])
    assert [change.unit for change in found] == ["cups.service"]


@pytest.mark.parametrize("name", sorted(KEEP))
def test_a_unit_that_must_stay_is_refused(name):
    with pytest.raises(PolicyError) as error:
        plan(policy("cups.service", name), {})
    assert str(error.value) == f"{name} is to be turned off; limit: it must stay; remedy: take it out of the policy"


def test_firmware_updates_are_never_masked():
    with pytest.raises(PolicyError) as error:
        plan(policy("fwupd.service"), {})
    assert str(error.value) == (
        "fwupd.service is to be masked; limit: disable, or its updates break; remedy: set action: disable"
    )
    assert plan(policy("fwupd.service", action="disable"), {}) == []


def test_the_shipped_policy_touches_nothing_that_must_stay():
    shipped = yaml.safe_load((REPO / "roles/headless/defaults/main.yml").read_text())["headless_policy"]
    named = {name for entry in shipped for name in entry.get("units", [])}
    assert len(named) > 10
    assert not named & KEEP
    masked = {name for entry in shipped if entry.get("action", "mask") == "mask" for name in entry.get("units", [])}
    assert not any(name.startswith("fwupd") for name in masked)


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
