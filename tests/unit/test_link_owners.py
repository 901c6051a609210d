"""Who configures an interface: netplan files, profiles of NetworkManager, and the daemons' own state files."""

from __future__ import annotations

import pytest
from builders import NETDEV0, NETDEV1, netdev

from ansible_collections.sparkwright.cluster.plugins.module_utils.link_owners import (
    is_generated,
    manager_of,
    netplan_interfaces,
    profile_interfaces,
)

LAN = "enP7s7"
LINKS = {
    NETDEV0: netdev(driver="mlx5_core", mac="4c:bb:47:2c:10:0a"),
    NETDEV1: netdev(driver="mlx5_core", mac="4c:bb:47:2c:10:0e"),
    LAN: netdev(driver="r8127", mac="4c:bb:47:00:00:01"),
    "docker0": netdev(mac="02:42:00:00:00:01"),
}
RAILS = [NETDEV1, NETDEV0]
ALL = sorted(LINKS)


def block(*lines, key="cx7"):
    return "\n".join(["network:", "  ethernets:", f"    {key}:", *(f"      {line}" for line in lines), ""])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"    {NETDEV0}:\n", [NETDEV0]),
        (f"    '{NETDEV0}': {{}}\n", [NETDEV0]),
        (f"bonds: {{bond0: {{interfaces: [{NETDEV1}, {NETDEV0}]}}}}", RAILS),
        (f"    set-name: {NETDEV1}\n", [NETDEV1]),
        (f"# {NETDEV0} is left alone\n", []),
        (f"    {NETDEV0}x:\n    x{NETDEV0}:\n    {NETDEV0}.100:\n", []),
        ("", []),
    ],
)
def test_names_in_a_netplan_file(text, names):
    assert netplan_interfaces(text, LINKS) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (block("match:", "  name: enp1s0f*np*"), [NETDEV0]),
        (block("match:", '  name: "en[pP]*np?"', "mtu: 9000"), RAILS),
        (block("match: {name: 'enP2*'}", "mtu: 9000"), [NETDEV1]),
        (block("match:", "  macaddress: 4C:BB:47:2C:10:0E", "set-name: rail1"), [NETDEV1]),
        (block("match:", "  macaddress: '4c:bb:47:2c:10:0e'"), [NETDEV1]),
        (block("match:", "  driver: mlx5_core"), RAILS),
        (block("match:", '  driver: ["ixgbe", "mlx5*"]'), RAILS),
        (block("match:", "  driver:", "  - ixgbe", "  - mlx5*", "optional: true"), RAILS),
        (block("match:", "  driver:", "    - r81*"), [LAN]),
        (block("match: {driver: mlx5_core, name: enP2*}"), [NETDEV1]),
        (block("match:", "  driver: mlx5_core", "  name: enP7*"), []),
        (block("match:", "", "  driver: mlx5_core", "", "dhcp4: true"), RAILS),
        (block("match:", "  # the cage on the left", "  name: enp1*  # first twin"), [NETDEV0]),
        (block('"match":', '  "name": "enp1*"'), [NETDEV0]),
        ('{"network": {"ethernets": {"x": {"match": {"name": "enp1*"}, "mtu": 9000}}}}', [NETDEV0]),
        (block("match: {}"), ALL),
        (block("match:", "  name: '*'"), ALL),
        (block("match:", "  name: eth*"), []),
        (block("match:", "  macaddress: 00:00:5e:00:53:01", "set-name: enP7s7"), [LAN]),
        (block("match:", "  name: en*s7", key="a") + block("match:", "  name: enp1*", key="b"), [LAN, NETDEV0]),
        # A name outside of a match is no pattern.
        (block("networkmanager:", "  name: '*'", key=LAN), [LAN]),
    ],
)
def test_interfaces_that_a_netplan_file_chooses_by_their_properties(text, names):
    assert netplan_interfaces(text, LINKS) == sorted(names)


def profile(connection="", ethernet="", match=""):
    sections = {"connection": connection, "ethernet": ethernet, "match": match}
    head = "[connection]\nid=Fast link 100%\ntype=ethernet\nuuid=7d0c7ae5\n"
    return head + "".join(f"[{name}]\n{text}\n" for name, text in sections.items() if text) + "\n[ipv4]\nmethod=auto\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (profile(f"interface-name={NETDEV0}"), [NETDEV0]),
        (profile(ethernet="mac-address=4C:BB:47:2C:10:0E"), [NETDEV1]),
        ("[connection]\nid=a\n[802-3-ethernet]\nmac-address=4c:bb:47:2c:10:0e\n", [NETDEV1]),
        (profile(match="interface-name=enp1*;"), [NETDEV0]),
        (profile(match="interface-name=en[pP]*np0;enP7s7;"), [*RAILS, LAN]),
        (profile(match="interface-name=|enp1*;|enP2*;"), RAILS),
        (profile(match="interface-name=!docker*;!enP7*"), RAILS),
        (profile(match="interface-name=en*;&!enP7s7"), RAILS),
        (profile(f"interface-name={NETDEV0}", match="interface-name=enP2*"), []),
        (profile(f"interface-name={NETDEV0}", "mac-address=4c:bb:47:2c:10:0a"), [NETDEV0]),
        (profile("interface-name=wlP9s9"), []),
        (profile(), []),
        ("no profile at all", []),
        ("", []),
    ],
)
def test_interfaces_that_a_profile_is_bound_to(text, names):
    assert profile_interfaces(text, LINKS) == sorted(names)


@pytest.mark.parametrize(
    ("tail", "generated"),
    [
        ("\n[.nmmeta]\nnm-generated=true\n", True),
        ("\n[.nmmeta]\nvolatile=true\nexternal=true\n", True),
        ("\n[.nmmeta]\nnm-generated=false\n", False),
        ("", False),
    ],
)
def test_a_profile_that_network_manager_made_up(tail, generated):
    assert is_generated(profile(f"interface-name={NETDEV0}") + tail) is generated


UNMANAGED = "# This is private data. Do not parse.\nADMIN_STATE=unmanaged\nOPER_STATE=off\n"
CONFIGURED = "ADMIN_STATE=configured\nNETWORK_FILE=/run/systemd/network/10-netplan-enp1s0f0np0.network\n"


@pytest.mark.parametrize(
    ("networkd", "network_manager", "manager"),
    [
        (CONFIGURED, "", "networkd"),
        ("ADMIN_STATE=configuring\n", "[device]\nmanaged=false\n", "networkd"),
        ("ADMIN_STATE=failed\n", "", "networkd"),
        (UNMANAGED, "[device]\nmanaged=true\nconnection-uuid=7d0c7ae5\n", "NetworkManager"),
        (UNMANAGED, "[device]\nmanaged=false\n", None),
        ("", "[device]\nmanaged=true\n", "NetworkManager"),
        ("ADMIN_STATE=pending\n", "", None),
        ("", "", None),
    ],
)
def test_the_manager_of_a_link(networkd, network_manager, manager):
    assert manager_of(networkd, network_manager) == manager
