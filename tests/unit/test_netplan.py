"""Our netplan file, as text and as YAML, and our drop-in for sysctl."""

from __future__ import annotations

import pytest
import yaml
from builders import GONE, NETDEV0, NETDEV1, cluster, rails

from ansible_collections.sparkwright.cluster.plugins.module_utils.netplan import (
    rails_as_planned,
    render_netplan,
    render_sysctl,
    strict_rails,
)

# netplan's reference: what these keys of an ethernet device take.
SHAPES = {"dhcp4": bool, "dhcp6": bool, "accept-ra": bool, "link-local": list, "optional": bool, "mtu": int}


def devices(rank=0):
    network = yaml.safe_load(render_netplan(rails(rank)))["network"]
    assert (network.pop("version"), list(network)) == (2, ["ethernets"])
    return network["ethernets"]


def test_every_rail_has_its_address_and_mtu():
    found = devices(2)
    assert {name: (device["addresses"], device["mtu"]) for name, device in found.items()} == {
        NETDEV0: (["192.168.100.12/24"], 9000),
        NETDEV1: (["192.168.101.12/24"], 9000),
    }


def test_every_key_has_the_shape_that_netplan_takes():
    for device in devices().values():
        assert {key: type(value) for key, value in device.items()} == {**SHAPES, "addresses": list}
        assert device["link-local"] == ["ipv6"]


def test_a_rail_brings_no_route_no_lease_and_no_delay_of_the_boot():
    for device in devices().values():
        assert [device[key] for key in ("dhcp4", "dhcp6", "accept-ra")] == [False] * 3
        assert device["optional"]
        assert "routes" not in device


def test_the_text_depends_on_the_rails_alone():
    assert render_netplan(rails(0)) == render_netplan(iter(rails(0))) != render_netplan(rails(1))


@pytest.mark.parametrize(
    ("change", "planned"),
    [
        ({}, True),
        ({(NETDEV0, "mtu"): 1500}, False),
        ({(NETDEV1, "addresses"): []}, False),
        ({(NETDEV1, "addresses"): ["192.168.101.10/24", "192.168.101.99/24"]}, False),
        ({(NETDEV1, "addresses"): ["192.168.101.10/16"]}, False),
        ({(NETDEV0,): GONE}, False),
    ],
)
def test_rails_are_compared_with_the_plan(change, planned):
    facts = {("spark1", "fabric", "netdevs", *path): value for path, value in change.items()}
    assert rails_as_planned(cluster(facts=facts).facts["spark1"]["fabric"], rails(0)) is planned


def test_every_rail_has_a_loose_filter_and_nothing_else_is_set():
    lines = [line for line in render_sysctl(rails(0)).splitlines() if not line.startswith("#")]
    assert lines == [f"net/ipv4/conf/{name}/rp_filter = 2" for name in (NETDEV0, NETDEV1)]


@pytest.mark.parametrize(
    ("values", "strict"),
    [((0, 2), []), ((1, 2), [NETDEV0]), ((1, 1), [NETDEV0, NETDEV1]), ((None, 1), [NETDEV1]), ((GONE, 1), [NETDEV1])],
    ids=str,
)
def test_a_filter_is_changed_only_where_it_is_strict(values, strict):
    fabric = cluster().facts["spark1"]["fabric"]
    for name, value in zip((NETDEV0, NETDEV1), values, strict=True):
        fabric["netdevs"][name]["rp_filter"] = value
        if value is GONE:
            del fabric["netdevs"][name]
    assert strict_rails(fabric, rails(0)) == strict
