"""The fabric as a table for a terminal."""

from __future__ import annotations

import pytest
from picture_example import RAILS, RING_RAILS, example, netdev_of, refuse

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Status
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_picture import (
    COLUMNS,
    RailStatus,
    gigabits,
    text,
)

TABLE = """\
node    rank  cage  interface      RDMA device   rail   address             MTU   Gb/s  link  status
----------------------------------------------------------------------------------------------------
spark1  0     p0    enp1s0f0np0    rocep1s0f0    rail0  192.168.100.100/24  9000  200   up    ok
              p0    enP2p1s0f0np0  roceP2p1s0f0  rail1  192.168.101.100/24  9000  200   up    ok
              p1    enp1s0f1np1    rocep1s0f1    -      -                   1500  -     down  -
              p1    enP2p1s0f1np1  roceP2p1s0f1  -      -                   1500  -     down  -
----------------------------------------------------------------------------------------------------
spark2  1     p0    enp1s0f0np0    rocep1s0f0    rail0  192.168.100.101/24  9000  200   up    ok
              p0    enP2p1s0f0np0  roceP2p1s0f0  rail1  192.168.101.101/24  1500  200   up    REFUSE
              p1    enp1s0f1np1    rocep1s0f1    -      -                   1500  -     down  -
              p1    enP2p1s0f1np1  roceP2p1s0f1  -      -                   1500  -     down  -
----------------------------------------------------------------------------------------------------
2 nodes, 2 rails: 3 of 4 ends of rails are ok
refuse: spark2 rail1 (enP2p1s0f0np0): the MTU is 1500, not 9000"""


def rows_of(table, host):
    """The rows of a node, split at their blanks."""
    lines = table.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(host))
    end = next(number for number in range(start, len(lines)) if lines[number].startswith("---"))
    return [line.removeprefix(host).split() for line in lines[start:end]]


def test_two_nodes_one_of_them_with_a_small_mtu():
    nodes, statuses = example(2)
    netdev_of(nodes, "spark2", "enP2p1s0f0np0")["mtu"] = 1500
    statuses["spark2", "rail1"] = refuse("the MTU is 1500, not 9000")
    assert text(nodes, RAILS, statuses) == TABLE


@pytest.mark.parametrize("rails", [RAILS, RING_RAILS], ids=["two rails", "four rails"])
@pytest.mark.parametrize("count", range(2, 9))
def test_every_number_of_nodes_fits_into_a_terminal(count, rails):
    nodes, statuses = example(count, rails)
    shown = text(nodes, rails, statuses)
    assert max(map(len, shown.splitlines())) <= COLUMNS
    assert shown.isascii()
    assert f"{count} nodes, {len(rails)} rails: {count * len(rails)} of {count * len(rails)} ends" in shown
    assert [host for host in nodes if len(rows_of(shown, host)) == 4] == list(nodes)


def test_nodes_are_in_the_order_of_their_ranks():
    nodes, statuses = example(3)
    nodes["spark1"]["rank"], nodes["spark3"]["rank"] = 2, 0
    first = [line.split()[0] for line in text(nodes, RAILS, statuses).splitlines() if line.startswith("spark")]
    assert first == ["spark3", "spark2", "spark1"]


def test_both_twins_are_down():
    nodes, statuses = example(2)
    for rail, name in zip(RAILS, ("enp1s0f0np0", "enP2p1s0f0np0"), strict=True):
        netdev_of(nodes, "spark2", name).update(state="DOWN", speed=None, address=None)
        statuses["spark2", rail] = refuse("the link is down")
    shown = text(nodes, RAILS, statuses)
    assert rows_of(shown, "spark2")[:2] == [
        ["1", "p0", "enp1s0f0np0", "rocep1s0f0", "rail0", "-", "9000", "-", "down", "REFUSE"],
        ["p0", "enP2p1s0f0np0", "roceP2p1s0f0", "rail1", "-", "9000", "-", "down", "REFUSE"],
    ]
    assert shown.splitlines()[-2:] == [
        "refuse: spark2 rail0 (enp1s0f0np0): the link is down",
        "refuse: spark2 rail1 (enP2p1s0f0np0): the link is down",
    ]


def test_a_node_without_cages_has_a_row_for_each_rail():
    nodes, statuses = example(2)
    nodes["spark2"]["cages"] = []
    statuses |= {("spark2", rail): refuse("there is no interface") for rail in RAILS}
    shown = text(nodes, RAILS, statuses)
    assert [" ".join(row) for row in rows_of(shown, "spark2")] == [
        "1 - no interface - rail0 - - - - REFUSE",
        "- no interface - rail1 - - - - REFUSE",
    ]
    assert shown.endswith("refuse: spark2 rail1 (no interface): there is no interface")


def test_a_node_without_cages_and_rails_has_a_row():
    nodes, _ = example(2, rails=[])
    nodes["spark2"]["cages"] = []
    assert [" ".join(row) for row in rows_of(text(nodes, [], {}), "spark2")] == ["1 - no interface - - - - - - -"]


@pytest.mark.parametrize(
    ("status", "cell", "note"),
    [
        (RailStatus(Status.WARN, "slow"), "WARN", "warn: spark2 rail0 (enp1s0f0np0): slow"),
        (RailStatus(Status.REFUSE), "REFUSE", "refuse: spark2 rail0 (enp1s0f0np0): no reason was given"),
        (None, "UNKNOWN", "unknown: spark2 rail0 (enp1s0f0np0): it was not checked"),
    ],
    ids=["warned", "without a reason", "not checked"],
)
def test_what_is_not_ok_is_in_capitals_and_named_below(status, cell, note):
    nodes, statuses = example(2)
    statuses["spark2", "rail0"] = status
    if status is None:
        del statuses["spark2", "rail0"]
    shown = text(nodes, RAILS, statuses)
    assert rows_of(shown, "spark2")[0][-1] == cell
    assert shown.splitlines()[-1] == note


def test_long_reasons_are_wrapped_and_long_names_cut_but_named_below():
    nodes, statuses = example(2)
    long = "spark-with-a-very-long-name.cluster.example"
    nodes[long] = nodes.pop("spark2")
    statuses = {(host, rail): refuse("no " * 60) for host, rail in statuses} | {(long, "rail1"): refuse("it is cut")}
    shown = text(nodes, RAILS, statuses)
    assert max(map(len, shown.splitlines())) <= COLUMNS
    assert "\nspark-with-a-very-long..  1     p0" in shown
    assert shown.splitlines()[-1] == f"refuse: {long} rail1 (enP2p1s0f0np0): it is cut"


def test_what_a_node_says_cannot_steer_the_terminal():
    nodes, statuses = example(2)
    statuses["spark2", "rail1"] = refuse("\x1b[31mred\x07 größer")
    assert text(nodes, RAILS, statuses).endswith("(enP2p1s0f0np0): ?[31mred? gr??er")


@pytest.mark.parametrize(("speed", "shown"), [(200_000, "200"), (2500, "2.5"), (-1, "-"), (None, "-")])
def test_speeds(speed, shown):
    assert gigabits(speed) == shown
