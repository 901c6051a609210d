"""Our one netplan file, rendered so that it can be compared with the one on the node before anything is changed."""

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


def rails_as_planned(fabric: Fabric, rails: Iterable[RailEnd]) -> bool:
    """True when every rail has its address, as its only one, and its MTU."""
    found = ((rail, fabric["netdevs"].get(rail.netdev)) for rail in rails)
    return all(dev is not None and dev["addresses"] == [rail.cidr] and dev["mtu"] == rail.mtu for rail, dev in found)


def render_netplan(rails: Iterable[RailEnd]) -> str:
    """The file's text: each rail with its address and MTU, without DHCP and without a route of its own."""
    return _HEAD + "".join(_RAIL.format(netdev=rail.netdev, mtu=rail.mtu, cidr=rail.cidr) for rail in rails)
