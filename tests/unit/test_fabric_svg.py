"""The fabric as a drawing: well-formed, complete, and nothing on top of anything else."""

from __future__ import annotations

from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from picture_example import RAILS, RING_RAILS, example, netdev_of, refuse

from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import Status
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_layout import (
    CARD_LETTERS,
    CARD_WIDTH,
    DIRECT,
    LETTER_WIDTH,
    PAD,
    RING,
    SWITCH,
    make_scene,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_picture import RailStatus
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_svg import svg

NS = {"": "http://www.w3.org/2000/svg"}
BROKEN, BLUE, PURPLE = "#c62828", "#0b5cad", "#7b3fa0"

# (topology, rails, nodes, links): how many links there must be.
DRAWINGS = [
    *((SWITCH, RAILS, count, 2 * count) for count in range(2, 9)),
    *((SWITCH, RING_RAILS, count, 4 * count) for count in range(2, 9)),
    (DIRECT, RAILS, 2, 2),
    (DIRECT, RING_RAILS, 2, 4),
    *((RING, RING_RAILS, count, 2 * count) for count in range(2, 9)),
    (DIRECT, RING_RAILS, 3, 6),
]
ANY = pytest.mark.parametrize(
    ("topology", "rails", "count", "links"), DRAWINGS, ids=[f"{t}-{len(r)}rails-{n}" for t, r, n, _ in DRAWINGS]
)


def broken_example(count, rails):
    """Every kind of trouble that makes a card taller, or a link end elsewhere."""
    nodes, statuses = example(count, rails)
    statuses["spark2", "rail1"] = refuse("the MTU of enP2p1s0f0np0 is 1500, all others have 9000 " * 2)
    del statuses["spark1", "rail0"]
    nodes["spark2"]["cages"][0]["netdevs"] = nodes["spark2"]["cages"][0]["netdevs"][1:]
    statuses["spark2", "rail0"] = refuse("there is no interface")
    return nodes, statuses


def drawn(nodes, rails, statuses, topology=SWITCH):
    return ElementTree.fromstring(svg(nodes, rails, statuses, topology))


def words(root):
    return [element.text for element in root.iter() if element.text and element.text.strip()]


def links(root):
    """The look of each line, without those of the legend, which are two points long."""
    lines = [line for line in root.iterfind(".//polyline", NS) if len(line.get("points").split()) > 2]
    return [(line.get("stroke"), line.get("stroke-dasharray")) for line in lines]


@ANY
@pytest.mark.parametrize("make", [example, broken_example], ids=["healthy", "broken"])
def test_the_document_is_well_formed_and_says_what_it_shows(topology, rails, count, links, make):
    nodes, statuses = make(count, rails)
    root = drawn(nodes, rails, statuses, topology)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]
    assert root.find("title", NS).text.startswith(f"Fabric, {topology}: {count} nodes, {len(rails)} rails: ")
    assert len(root.findall(".//polyline", NS)) == links + 2, "two more in the legend"
    shown = words(root)
    for host, node in nodes.items():
        assert f"{host} · rank {node['rank']}" in shown
        for netdev in (netdev for cage in node["cages"] for netdev in cage["netdevs"]):
            assert f"{netdev['device']} · {netdev['address'] or 'no address'}" in shown


def test_it_needs_nothing_from_elsewhere():
    document = svg(*arguments(example(4)), SWITCH)
    assert "href" not in document
    assert {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(document).iter()} == {
        *("svg", "title", "desc", "g", "rect", "text", "polyline", "circle")
    }


def arguments(found, rails=RAILS):
    nodes, statuses = found
    return nodes, rails, statuses


def test_rails_differ_in_colour_and_in_form():
    assert set(links(drawn(*arguments(example(4))))) == {(BLUE, "none"), (PURPLE, "8 4")}


def test_a_broken_link_is_red_keeps_its_form_and_gives_its_reason():
    nodes, statuses = example(4)
    statuses["spark2", "rail1"] = refuse("no carrier")
    root = drawn(nodes, RAILS, statuses)
    assert [link for link in links(root) if link[0] == BROKEN] == [(BROKEN, "8 4")]
    (reason,) = [text for text in root.iterfind(".//text", NS) if text.text == "refuse: no carrier"]
    assert reason.get("fill") == BROKEN
    assert root.find("desc", NS).text == "refuse: spark2 rail1 (enP2p1s0f0np0): no carrier"
    assert words(root).count("x") == 2, "the sign in the socket, and in the legend"


def test_a_cable_is_as_bad_as_the_worse_of_its_ends_and_each_end_has_its_own_sign():
    nodes, statuses = example(2)
    statuses["spark1", "rail0"] = RailStatus(Status.WARN, "slow")
    statuses["spark2", "rail0"] = refuse("no carrier")
    root = drawn(nodes, RAILS, statuses, DIRECT)
    assert sorted(links(root)) == [(PURPLE, "8 4"), (BROKEN, "none")]
    assert (words(root).count("x"), words(root).count("!")) == (2, 2)


def test_the_legend_shows_what_the_drawing_has():
    nodes, statuses = example(2, RING_RAILS)
    statuses["spark1", "rail0"] = RailStatus(Status.WARN, "slow")
    del statuses["spark2", "rail0"]
    shown = words(drawn(nodes, RING_RAILS, statuses))
    assert shown[-6:] == ["rail0, rail2", "rail1, rail3", "?", "unknown", "!", "warn"]


def test_both_twins_are_down():
    nodes, statuses = example(4)
    for rail, name in zip(RAILS, ("enp1s0f0np0", "enP2p1s0f0np0"), strict=True):
        netdev_of(nodes, "spark2", name).update(state="DOWN", speed=None, address=None)
        statuses["spark2", rail] = refuse("the link is down")
    root = drawn(nodes, RAILS, statuses)
    assert sorted(link for link in links(root) if link[0] == BROKEN) == [(BROKEN, "8 4"), (BROKEN, "none")]
    assert words(root).count("refuse: the link is down") == 2
    assert words(root).count("MTU 9000 · - Gb/s · down") == 2


def test_a_node_without_cages_still_has_its_links():
    nodes, statuses = example(4)
    nodes["spark2"]["cages"] = []
    statuses |= {("spark2", rail): refuse("there is no interface") for rail in RAILS}
    root = drawn(nodes, RAILS, statuses)
    assert [link[0] for link in links(root)].count(BROKEN) == 2
    assert "no interface for" in words(root)


def test_a_node_without_cages_and_rails_is_a_card():
    nodes, _ = example(2, rails=[])
    nodes["spark2"]["cages"] = []
    root = drawn(nodes, [], {})
    assert "no cages were found" in words(root)
    assert links(root) == []


def test_what_a_node_says_is_text_and_nothing_else():
    nodes, statuses = example(2)
    evil = "</text><script>alert(1)</script> & \"'\x00\x1b"
    nodes["<b>spark2</b>"] = nodes.pop("spark2")
    netdev_of(nodes, "<b>spark2</b>", "enp1s0f0np0")["device"] = "<&\"'>"
    statuses = {(host.replace("spark2", "<b>spark2</b>"), rail): status for (host, rail), status in statuses.items()}
    statuses["<b>spark2</b>", "rail1"] = refuse(evil)
    root = drawn(nodes, RAILS, statuses)
    assert root.find(".//script", NS) is None
    assert "<b>spark2</b> · rank 1" in words(root)
    assert "<&\"'> · 192.168.100.101/24" in words(root)
    assert "</text><script>alert(1)</script> & \"'??" in root.find("desc", NS).text


def test_names_that_are_too_long_are_cut():
    nodes, statuses = example(2)
    long = "spark-with-a-very-long-name.cluster.example"
    nodes[long] = nodes.pop("spark2")
    statuses |= {(long, rail): RailStatus(Status.OK) for rail in RAILS}
    assert "spark-with-a-very-long-name.clust…" in words(drawn(nodes, RAILS, statuses))


# --- places ---------------------------------------------------------------------------------------------------------


def boxes(scene):
    return [(card.x, card.y, card.x + CARD_WIDTH, card.y + card.card.height) for card in scene.cards]


def crosses(segment, box):
    """Whether a line enters a box; one that touches its edge does not. Slanted lines are looked at in steps."""
    (x1, y1), (x2, y2) = segment
    points = [(x1 + (x2 - x1) * step / 200, y1 + (y2 - y1) * step / 200) for step in range(201)]
    left, top, right, bottom = box
    return any(left < x < right and top < y < bottom for x, y in points)


@ANY
@pytest.mark.parametrize("make", [example, broken_example], ids=["healthy", "broken"])
def test_nothing_lies_on_top_of_anything_else(topology, rails, count, links, make):
    nodes, statuses = make(count, rails)
    scene = make_scene(nodes, rails, statuses, topology)
    found = [*boxes(scene), *([(0, scene.bar[1], scene.width, scene.bar[1] + scene.bar[3])] if scene.bar else [])]
    for one, other in combinations(found, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1], "boxes overlap"
    for link in scene.links:
        assert not any(crosses(segment, box) for segment in pairwise(link.points) for box in found)
        assert all(0 <= x <= scene.width and 0 <= y <= scene.height for x, y in link.points)
    assert all(x >= 0 and right <= scene.width and y >= 0 and bottom <= scene.height for x, y, right, bottom in found)
    # Two links may cross, but never run along each other.
    segments = [segment for link in scene.links for segment in pairwise(link.points)]
    assert not any(share_a_way(one, other) for one, other in combinations(segments, 2))


def share_a_way(one, other):
    """Whether two upright or level lines cover a stretch of the same line."""
    for axis in (0, 1):
        if one[0][axis] == one[1][axis] == other[0][axis] == other[1][axis]:
            (a, b), (c, d) = (sorted(point[1 - axis] for point in segment) for segment in (one, other))
            return max(a, c) < min(b, d)
    return False


@ANY
@pytest.mark.parametrize("make", [example, broken_example], ids=["healthy", "broken"])
def test_the_lines_of_a_card_stand_in_their_boxes_one_below_the_other(topology, rails, count, links, make):
    nodes, statuses = make(count, rails)
    for card in (placed.card for placed in make_scene(nodes, rails, statuses, topology).cards):
        heights = [line.y for line in card.lines]
        assert all(later - earlier >= 16 for earlier, later in pairwise(heights))
        assert all(any(top < y < top + height for top, height in card.boxes) for y in heights)
        assert max(len(line.words) for line in card.lines) <= CARD_LETTERS
        assert all(earlier[0] + sum(earlier[1:]) <= later[0] for earlier, later in pairwise(card.boxes))
        assert card.boxes[-1][0] + card.boxes[-1][1] <= card.height
    assert CARD_LETTERS * LETTER_WIDTH + 2 * PAD < CARD_WIDTH


@pytest.mark.parametrize("count", range(2, 9))
def test_a_ring_goes_through_the_ranks_from_the_first_cage_to_the_last(count):
    nodes, statuses = example(count, RING_RAILS)
    scene = make_scene(nodes, RING_RAILS, statuses, RING)
    ends = [[(socket.node.card.title, socket.port.rail) for socket in link.sockets] for link in scene.links]
    title = [f"spark{rank + 1} · rank {rank}" for rank in range(count)]
    assert ends == [
        [(title[rank], f"rail{twin}"), (title[(rank + 1) % count], f"rail{2 + twin}")]
        for rank in range(count)
        for twin in range(2)
    ]


def test_behind_a_switch_no_link_crosses_another_one():
    nodes, statuses = example(8, RING_RAILS)
    segments = [pairwise(link.points) for link in make_scene(nodes, RING_RAILS, statuses, SWITCH).links]
    for one, other in combinations([list(segment) for segment in segments], 2):
        assert not any(meet(a, b) for a in one for b in other)


def meet(one, other):
    """Whether two upright or level lines have a point in common."""
    (left, right), (top, bottom) = (sorted(point[axis] for point in one) for axis in (0, 1))
    (left2, right2), (top2, bottom2) = (sorted(point[axis] for point in other) for axis in (0, 1))
    return left <= right2 and left2 <= right and top <= bottom2 and top2 <= bottom
