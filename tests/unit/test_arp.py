"""ARP frames byte by byte."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.arp import probe, sender

OWN, OTHER = "4c:bb:47:2c:10:0a", "4c:bb:47:2c:20:0a"


def frame(text):
    return bytes.fromhex(text.replace(" ", ""))


# Someone answers, and someone announces himself to all.
REPLY = frame("4cbb472c100a 4cbb472c200a 0806 0001 0800 06 04 0002 4cbb472c200a c0a8640b 4cbb472c100a 00000000")
ANNOUNCEMENT = frame("ffffffffffff 4cbb472c200a 0806 0001 0800 06 04 0001 4cbb472c200a c0a8640b 000000000000 c0a8640b")


def test_a_probe_asks_everybody_and_names_no_own_address():
    assert probe(OWN, "192.168.100.11") == frame(
        "ffffffffffff 4cbb472c100a 0806 0001 0800 06 04 0001 4cbb472c100a 00000000 000000000000 c0a8640b"
    )


@pytest.mark.parametrize(
    ("received", "who"),
    [
        (REPLY, (OTHER, "192.168.100.11")),
        (ANNOUNCEMENT, (OTHER, "192.168.100.11")),
        (REPLY + bytes(18), (OTHER, "192.168.100.11")),
        (probe(OWN, "192.168.100.11"), (OWN, "0.0.0.0")),
        (REPLY[:41], None),
        (b"", None),
        (REPLY.replace(frame("0806"), frame("0800"), 1), None),
        (REPLY.replace(frame("0001 0800 06"), frame("0020 0800 14"), 1), None),
    ],
    ids=["a reply", "an announcement", "padding", "a probe", "half a frame", "nothing", "IPv4", "ARP of InfiniBand"],
)
def test_the_sender_of_a_frame(received, who):
    assert sender(received) == who
