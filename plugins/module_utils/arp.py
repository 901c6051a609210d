"""ARP frames: the probe that asks who has an address, and what the frames that come back say.

A probe has the sender address 0.0.0.0, so that no neighbour table learns from it (RFC 5227, section 2.1.1).
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

ETHERTYPE = 0x0806
BROADCAST = b"\xff" * 6

# Target, source, type; then hardware type, protocol, their address lengths, operation, and both pairs of addresses.
_FRAME = struct.Struct("!6s6sH HHBBH 6s4s6s4s")
_ETHERNET_IPV4 = (1, 0x0800, 6, 4)
_REQUEST = 1


def probe(mac: str, address: str) -> bytes:
    """The frame that asks for an address, sent from the interface with that MAC address."""
    source = bytes.fromhex(mac.replace(":", ""))
    wanted = IPv4Address(address).packed
    return _FRAME.pack(BROADCAST, source, ETHERTYPE, *_ETHERNET_IPV4, _REQUEST, source, bytes(4), bytes(6), wanted)


def sender(frame: bytes) -> tuple[str, str] | None:
    """MAC and IPv4 address of whoever sent a frame; None for one that is no ARP of IPv4 over Ethernet.

    Requests count like replies: both say that the sender holds its address.
    """
    if len(frame) < _FRAME.size:
        return None
    _, _, ethertype, *kinds, _, mac, address, _, _ = _FRAME.unpack_from(frame)
    if ethertype != ETHERTYPE or tuple(kinds) != _ETHERNET_IPV4:
        return None
    return mac.hex(":"), str(IPv4Address(address))
