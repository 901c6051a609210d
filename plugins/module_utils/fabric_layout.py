"""Where everything stands in the drawing of the fabric: cards of the nodes, their ports, and the links between them.

Lengths are in pixels; y grows downwards.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from .checks import Status
from .fabric_picture import End, Nodes, PictureNetdev, Statuses, by_rank, ends_of, gigabits

# All nodes at one switch; two nodes cabled to each other; a ring of cables from each rank to the next.
SWITCH, DIRECT, RING = "switch", "direct", "ring"

# A monospaced letter is about 0.6 times as wide as it is high.
LETTER_HEIGHT, LETTER_WIDTH = 12, 7.25
LINE = 16
PAD = 12
# Letters in one line of a card: a device of 12, a dot, and an IPv4 address with its mask.
CARD_LETTERS = 34
CARD_WIDTH = int(CARD_LETTERS * LETTER_WIDTH) + 3 * PAD

# Between a card and its first lane, and between two lanes. A lane is where links run beside a card.
LANE = 14
# Between the two cards of a direct connection, two cards of a ring, the rows of a ring, and a card and the switch.
DIRECT_GAP, RING_GAP, ROW_GAP, BAR_GAP = 200, 110, 40, 36
BAR_HEIGHT = 44

LEFT, RIGHT = -1, 1

# The worst first: a fact that could not be read is no pass.
SEVERITY = (Status.REFUSE, Status.UNKNOWN, Status.WARN, Status.OK)

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a card: its base line below the card's top, the words, and how they are meant.

    `tone` is None for plain words, or the status of the end that they are about; `faint` words matter less.
    """

    y: int
    words: str
    tone: Status | None = None
    faint: bool = False


@dataclass(frozen=True)
class Port:
    """Where a link meets a card: `y` below the card's top, and the cage that it belongs to (None: no interface).

    `place` is that of the rail among all rails.
    """

    y: int
    rail: str
    place: int
    cage: str | None
    status: Status

    @property
    def twin(self) -> int:
        """0 or 1: which of the two rails of a cage it is."""
        return self.place % 2


@dataclass(frozen=True)
class Card:
    """A node without its place; `boxes` are the top and the height of each cage."""

    title: str
    lines: tuple[Line, ...]
    boxes: tuple[tuple[int, int], ...]
    ports: tuple[Port, ...]
    height: int

    def beside(self, side: int) -> list[Port]:
        """The ports of one side, where both are used: of the twins of a cage the first is on the left."""
        return [port for port in self.ports if port.twin == (side == RIGHT)]


@dataclass(frozen=True)
class Placed:
    """A card with its left upper corner."""

    card: Card
    x: int
    y: int


@dataclass(frozen=True)
class Socket:
    """A port of a placed card, on its left (-1) or right (1) edge."""

    node: Placed
    port: Port
    side: int

    def point(self, distance: int = 0) -> Point:
        """Its place, or that far beside the card."""
        edge = self.node.x if self.side == LEFT else self.node.x + CARD_WIDTH
        return edge + self.side * distance, self.node.y + self.port.y


@dataclass(frozen=True)
class Link:
    """A line through points, and the one or two sockets in which it ends."""

    points: tuple[Point, ...]
    sockets: tuple[Socket, ...]

    @property
    def twin(self) -> int:
        """Which of the two rails of a cage it is."""
        return self.sockets[0].port.twin

    @property
    def status(self) -> Status:
        """The worse one of its ends."""
        return min((socket.port.status for socket in self.sockets), key=SEVERITY.index)


@dataclass(frozen=True)
class Scene:
    """All that is drawn; `bar` is the switch, as its left, top, width and height."""

    cards: tuple[Placed, ...]
    links: tuple[Link, ...]
    width: int
    height: int
    bar: tuple[int, int, int, int] | None = None


def make_scene(nodes: Nodes, rails: Sequence[str], statuses: Statuses, topology: str) -> Scene:
    """Place everything. More than two nodes without a switch are a ring, whatever `topology` calls them."""
    cards = [_card(host, nodes, rails, statuses) for host in by_rank(nodes)]
    if topology == SWITCH:
        return _switched(cards)
    return _direct(cards) if topology == DIRECT and len(cards) <= 2 else _ring(cards)


# --- cards ----------------------------------------------------------------------------------------------------------


def _card(host: str, nodes: Nodes, rails: Sequence[str], statuses: Statuses) -> Card:
    node = nodes[host]
    ends = ends_of(host, node, rails, statuses)
    boxes: list[_Box] = []
    bottom = 3 * PAD
    for cage, inside in _grouped(ends, [cage["name"] for cage in node["cages"]]):
        boxes.append(_box(cage, inside, bottom, rails))
        bottom += boxes[-1].height + PAD
    if not boxes:
        boxes.append(_Box(bottom, LINE, (Line(bottom + LETTER_HEIGHT, "no cages were found", faint=True),), ()))
        bottom += LINE + PAD
    return Card(
        _fit(f"{host} · rank {node['rank']}"),
        tuple(line for box in boxes for line in box.lines),
        tuple((box.top, box.height) for box in boxes),
        tuple(port for box in boxes for port in box.ports),
        bottom,
    )


@dataclass(frozen=True)
class _Box:
    """One cage in its card."""

    top: int
    height: int
    lines: tuple[Line, ...]
    ports: tuple[Port, ...]


def _box(cage: str | None, ends: Sequence[End], top: int, rails: Sequence[str]) -> _Box:
    """A cage with its twins, or the rails that have no interface when there is no cage."""
    y = top + LINE
    lines = [Line(y, _fit("no interface for" if cage is None else f"cage {cage}"), faint=True)]
    ports: list[Port] = []
    for end in ends:
        ports += _ports(end, y + LINE - LETTER_HEIGHT // 3, rails)
        block = [replace(line, y=y + LINE * number) for number, line in enumerate(_block(end), 1)]
        lines += block
        y += LINE * len(block) + PAD // 2
    return _Box(top, y + PAD // 2 - top, tuple(lines), tuple(ports))


def _grouped(ends: Sequence[End], cages: Iterable[str]) -> Iterator[tuple[str | None, list[End]]]:
    """The ends by cage, and last the rails that have no interface, where there are any."""
    for cage in dict.fromkeys(cages):
        yield cage, [end for end in ends if end.cage == cage]
    lacking = [end for end in ends if end.cage is None]
    if lacking:
        yield None, lacking


def _ports(end: End, y: int, rails: Sequence[str]) -> Iterator[Port]:
    if end.rail is not None and end.status is not None:
        place = rails.index(end.rail) if end.rail in rails else 0
        yield Port(y, end.rail, place, end.cage, end.status.status)


def _block(end: End) -> Iterator[Line]:
    """The lines of one twin, still without a place: names, address, link, and what is wrong."""
    if end.netdev is None:
        yield Line(0, _fit(str(end.rail)))
    else:
        for words in _about(end.netdev):
            yield Line(0, _fit(words), faint=end.rail is None)
    if end.status is not None and end.status.status is not Status.OK:
        reason = f"{end.status.status}: {end.status.reason or 'no reason was given'}"
        for words in textwrap.wrap(reason, CARD_LETTERS):
            yield Line(0, words, end.status.status)


def _about(netdev: PictureNetdev) -> tuple[str, str, str]:
    return (
        f"{netdev['rail'] or 'no rail'} · {netdev['netdev']}",
        f"{netdev['device'] or 'no RDMA device'} · {netdev['address'] or 'no address'}",
        f"MTU {netdev['mtu'] or '-'} · {gigabits(netdev['speed'])} Gb/s · {netdev['state'].lower()}",
    )


def _fit(words: str) -> str:
    return words if len(words) <= CARD_LETTERS else f"{words[: CARD_LETTERS - 1]}…"


# --- places ---------------------------------------------------------------------------------------------------------


def _switched(cards: Sequence[Card]) -> Scene:
    """Half of the nodes above the switch and half below it, each link in a lane of its own beside its card."""
    half = (len(cards) + 1) // 2
    lanes = LANE * (1 + max((len(card.beside(side)) for card in cards for side in (LEFT, RIGHT)), default=0))
    step = CARD_WIDTH + 2 * lanes
    ceiling = _tallest(cards[:half]) + BAR_GAP
    floor = ceiling + BAR_HEIGHT + BAR_GAP
    upper = [
        Placed(card, lanes + step * place, ceiling - BAR_GAP - card.height) for place, card in enumerate(cards[:half])
    ]
    lower = [Placed(card, lanes + step * place, floor) for place, card in enumerate(cards[half:])]
    links = [link for node in upper for link in _to_switch(node, ceiling)]
    links += [link for node in lower for link in _to_switch(node, ceiling + BAR_HEIGHT)]
    width, height = step * half, floor + _tallest(cards[half:])
    return Scene((*upper, *lower), tuple(links), width, height, (0, ceiling, width, BAR_HEIGHT))


def _to_switch(node: Placed, y: int) -> Iterator[Link]:
    """Out of both sides of a card into a lane, and straight to that edge of the switch.

    The port next to the switch has the lane next to the card, so that no link crosses another one.
    """
    for side in (LEFT, RIGHT):
        ports = sorted(node.card.beside(side), key=lambda port: abs(node.y + port.y - y))
        for lane, port in enumerate(ports, 1):
            socket = Socket(node, port, side)
            turn = socket.point(LANE * lane)
            yield Link((socket.point(), turn, (turn[0], y)), (socket,))


def _direct(cards: Sequence[Card]) -> Scene:
    """Two nodes side by side, rail by rail."""
    step = CARD_WIDTH + DIRECT_GAP
    placed = [Placed(card, step * place, 0) for place, card in enumerate(cards)]
    links = [
        _cable(Socket(placed[0], one, RIGHT), Socket(placed[-1], other, LEFT))
        for one, other in product(placed[0].card.ports, placed[-1].card.ports)
        if len(placed) == 2 and one.rail == other.rail
    ]
    return Scene(tuple(placed), tuple(links), step * len(cards) - DIRECT_GAP, _tallest(cards))


def _ring(cards: Sequence[Card]) -> Scene:
    """Two rows, the second one backwards, so that neighbours of the ring are neighbours on the paper."""
    half, lanes, step = (len(cards) + 1) // 2, 3 * LANE, CARD_WIDTH + RING_GAP
    floor = _tallest(cards[:half]) + ROW_GAP
    upper = [Placed(card, lanes + step * place, 0) for place, card in enumerate(cards[:half])]
    lower = [Placed(card, lanes + step * (half - 1 - place), floor) for place, card in enumerate(cards[half:])]
    width = step * half - RING_GAP + 2 * lanes
    placed = [*upper, *lower]
    homes = {port.rail: port.cage for card in cards for port in card.ports if port.cage is not None}
    links = [link for place in range(len(placed)) for link in _to_next(placed, place, homes, width)]
    return Scene(tuple(placed), tuple(links), width, floor + _tallest(cards[half:]))


def _to_next(placed: Sequence[Placed], place: int, homes: Mapping[str, str], width: int) -> Iterator[Link]:
    """From the first cage of a node to the last one of the next, twin by twin.

    The upper row goes to the right and the lower one back to the left; the links between the rows run in lanes outside.
    `homes` tells the cage of a rail whose interface is missing on one of the two.
    """
    here, there = placed[place], placed[(place + 1) % len(placed)]
    out, into = (RIGHT if here.y == 0 else LEFT), (LEFT if there.y == 0 else RIGHT)
    cages = sorted(set(homes.values()))
    for one, other in product(here.card.ports, there.card.ports):
        joined = [port.cage or homes.get(port.rail) for port in (one, other)] == [*cages[:1], *cages[-1:]]
        if joined and here is not there and one.twin == other.twin:
            lane = LANE * (2 - one.twin)
            outside = width - lane if out == RIGHT else lane
            yield _cable(Socket(here, one, out), Socket(there, other, into), outside if out == into else None)


def _cable(one: Socket, other: Socket, lane: int | None = None) -> Link:
    """Straight from card to card, or around through a lane at that x."""
    start, end = one.point(), other.point()
    straight = (one.point(LANE), other.point(LANE))
    turns = straight if lane is None else ((lane, start[1]), (lane, end[1]))
    return Link((start, *turns, end), (one, other))


def _tallest(cards: Iterable[Card]) -> int:
    return max((card.height for card in cards), default=0)
