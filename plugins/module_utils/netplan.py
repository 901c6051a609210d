"""The files that configure the rails, rendered to be compared with those on the node before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable

from .facts import Fabric
from .intent import RailEnd

_HEAD = """\
# Written by Sparkwright (role fabric). A change here is undone by the next run: edit fabric_rails in the inventory.
network:
  version: 2
  ethernets:
"""

# `optional` keeps an unplugged rail from delaying the boot.
_RAIL = """\
    {netdev}:
      dhcp4: false
      dhcp6: false
      accept-ra: false
      link-local: [ipv6]
      optional: true
      mtu: {mtu}
      addresses: [{cidr}]
"""


# Loose: an answer may come in on another rail than the one by which the kernel would send. The kernel takes the larger
# of this and the value of `all`, so 2 holds whatever that is (Documentation/networking/ip-sysctl.rst).
_SYSCTL_HEAD = """\
# Written by Sparkwright (role fabric): with two rails, a strict reverse path filter drops frames of the second one.
"""


def rails_as_planned(fabric: Fabric, rails: Iterable[RailEnd]) -> bool:
    """True when every rail has its address, as its only one, and its MTU."""
    found = ((rail, fabric["netdevs"].get(rail.netdev)) for rail in rails)
    return all(dev is not None and dev["addresses"] == [rail.cidr] and dev["mtu"] == rail.mtu for rail, dev in found)


def render_netplan(rails: Iterable[RailEnd]) -> str:
    """The file's text: each rail with its address and MTU, without DHCP and without a route of its own."""
    return _HEAD + "".join(_RAIL.format(netdev=rail.netdev, mtu=rail.mtu, cidr=rail.cidr) for rail in rails)


def render_sysctl(rails: Iterable[RailEnd]) -> str:
    """The text of our drop-in for sysctl: a loose reverse path filter on every rail."""
    # With slashes a name that has a dot, such as eth0.7, stays one name (sysctl.d(5)).
    return _SYSCTL_HEAD + "".join(f"net/ipv4/conf/{rail.netdev}/rp_filter = 2\n" for rail in rails)


def strict_rails(fabric: Fabric, rails: Iterable[RailEnd]) -> list[str]:
    """The interfaces of rails on which the filter is strict now."""
    there = [rail.netdev for rail in rails if rail.netdev in fabric["netdevs"]]
    return [netdev for netdev in there if fabric["netdevs"][netdev]["rp_filter"] == 1]
