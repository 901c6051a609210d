"""The cluster's fabric as a drawing: the nodes with their cages and twins, and the links between them.

The drawing stands alone: no scripts, no fonts of its own, and attributes in place of a style sheet, so that it can also
be put into a page. Whatever differs in colour differs in form as well. Lengths are in pixels.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from .checks import Status
from .fabric_layout import (
    CARD_WIDTH,
    LETTER_HEIGHT,
    LETTER_WIDTH,
    PAD,
    SEVERITY,
    Line,
    Link,
    Placed,
    Point,
    Scene,
    make_scene,
)
from .fabric_picture import Nodes, Statuses, summary, troubles

FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
MARGIN = 24
# The head's letters are larger than those of the cards by this factor.
HEAD, HEAD_LINE = 1.25, 22
# The head needs this width even where the drawing is narrower.
LEAST_WIDTH = 480
LEGEND_LINE, SAMPLE = 24, 40
SOCKET = 7

INK, FAINT, EDGE = "#1b1f24", "#5f6b77", "#8c959f"
PAPER, CARD, CAGE, BAR = "#ffffff", "#f3f5f7", "#ffffff", "#e4e8ec"
# Colour and dashes of the two rails of a cage, in their order.
RAILS = (("#0b5cad", "none"), ("#7b3fa0", "8 4"))
# Colour of an end that is not ok, and the sign in its socket.
SIGNS = {Status.REFUSE: ("#c62828", "x"), Status.WARN: ("#9a5200", "!"), Status.UNKNOWN: ("#57606a", "?")}


def svg(nodes: Nodes, rails: Sequence[str], statuses: Statuses, topology: str) -> str:
    """The drawing as a document of its own.

    `topology` is `switch` (all nodes at one), `direct` (two nodes cabled to each other) or `ring`, in which the first
    cage of each rank is cabled to the last one of the next rank. More than two nodes without a switch are a ring.
    """
    scene = make_scene(nodes, rails, statuses, topology)
    title = f"Fabric, {topology}: {summary(nodes, rails, statuses)}"
    wrong = "; ".join(troubles(nodes, rails, statuses))
    width = max(scene.width, LEAST_WIDTH)
    head = textwrap.wrap(_printable(title), int(width / (LETTER_WIDTH * HEAD)))
    legend = _Legend(rails, {socket.port.status for link in scene.links for socket in link.sockets}, width)
    top = MARGIN + HEAD_LINE * len(head)
    bottom = top + scene.height + PAD
    paper = _blank(width + 2 * MARGIN, bottom + legend.height + MARGIN, title, wrong or "Every end of a rail is ok.")
    for number, words in enumerate(head):
        paper.text((MARGIN, MARGIN + HEAD_LINE * number), words, INK, size=HEAD, weight="bold")
    _draw(paper.moved(MARGIN + (width - scene.width) // 2, top), scene)
    legend.draw(paper.moved(MARGIN, bottom))
    return paper.document()


class _Paper:
    """What can be drawn; a part that was moved has its own origin."""

    def __init__(self, element: ElementTree.Element) -> None:
        """Draw into an element of SVG."""
        self._element = element

    def moved(self, x: float, y: float) -> _Paper:
        """A part whose origin is there."""
        return _Paper(self._add("g", {"transform": f"translate({x:g} {y:g})"}))

    def text(
        self, at: Point, words: str, colour: str, *, size: float = 1, weight: str = "normal", anchor: str = "start"
    ) -> None:
        """Words on a base line; `size` is a factor of that of the cards."""
        look = {"fill": colour, "font-size": LETTER_HEIGHT * size, "font-weight": weight, "text-anchor": anchor}
        self._add("text", {"x": at[0], "y": at[1], **look}, words)

    def box(self, corner: Point, size: Point, fill: str, edge: str, *, corner_radius: int = 0) -> None:
        """A rectangle from its left upper corner."""
        place = {"x": corner[0], "y": corner[1], "width": size[0], "height": size[1], "rx": corner_radius}
        self._add("rect", {**place, "fill": fill, "stroke": edge})

    def line(self, points: Sequence[Point], colour: str, dashes: str) -> None:
        """A line through points."""
        through = " ".join(f"{x:g},{y:g}" for x, y in points)
        look = {"fill": "none", "stroke": colour, "stroke-width": 2.5, "stroke-dasharray": dashes}
        self._add("polyline", {"points": through, **look, "stroke-linejoin": "round"})

    def dot(self, at: Point, fill: str) -> None:
        """A small disc."""
        self._add("circle", {"cx": at[0], "cy": at[1], "r": SOCKET - 2, "fill": fill})

    def document(self) -> str:
        """The whole as text."""
        ElementTree.indent(self._element)
        return ElementTree.tostring(self._element, encoding="unicode") + "\n"

    def _add(self, name: str, attributes: dict[str, object], words: str | None = None) -> ElementTree.Element:
        element = ElementTree.SubElement(self._element, name, _attributes(attributes))
        element.text = None if words is None else _printable(words)
        return element


def _blank(width: int, height: int, title: str, description: str) -> _Paper:
    """Empty paper with what a screen reader says of it."""
    size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}", "font-family": FONTS}
    says = {"role": "img", "aria-labelledby": "fabric-title fabric-description"}
    root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **_attributes(size), **says})
    ElementTree.SubElement(root, "title", {"id": "fabric-title"}).text = _printable(title)
    ElementTree.SubElement(root, "desc", {"id": "fabric-description"}).text = _printable(description)
    paper = _Paper(root)
    paper.box((0, 0), (width, height), PAPER, "none")
    return paper


class _Legend:
    """What the lines and signs mean: those that the drawing has, in as many rows as they need."""

    def __init__(self, rails: Sequence[str], found: set[Status], width: int) -> None:
        samples = [(twin, Status.OK, ", ".join(rails[twin::2])) for twin in range(2) if rails[twin::2]]
        samples += [(0, status, str(status)) for status in SEVERITY if status in found and status is not Status.OK]
        self._samples = list(_flowing(samples, width))

    @property
    def height(self) -> int:
        """Of all rows."""
        return LEGEND_LINE * (1 + max((row for _, row, _ in self._samples), default=0))

    def draw(self, paper: _Paper) -> None:
        for x, row, (twin, status, words) in self._samples:
            part = paper.moved(x, LEGEND_LINE * row + LEGEND_LINE // 2)
            if status is Status.OK:
                part.line([(0, 0), (SAMPLE - PAD, 0)], *RAILS[twin])
            _socket(part, ((SAMPLE - PAD) / 2, 0), twin, status)
            part.text((SAMPLE, LETTER_HEIGHT / 3), words, INK)


def _flowing(
    samples: Sequence[tuple[int, Status, str]], width: int
) -> Iterator[tuple[float, int, tuple[int, Status, str]]]:
    """Each sample with its place: x, and the row; a row ends where the next sample would not fit."""
    x, row = 0.0, 0
    for sample in samples:
        needed = SAMPLE + LETTER_WIDTH * len(sample[2]) + 2 * PAD
        if x and x + needed > width:
            x, row = 0.0, row + 1
        yield x, row, sample
        x += needed


def _draw(paper: _Paper, scene: Scene) -> None:
    if scene.bar is not None:
        x, y, width, height = scene.bar
        paper.box((x, y), (width, height), BAR, EDGE, corner_radius=6)
        paper.text((x + width / 2, y + height / 2 + LETTER_HEIGHT / 3), "switch", INK, weight="bold", anchor="middle")
    for placed in scene.cards:
        _card(paper.moved(placed.x, placed.y), placed)
    # Those that are not ok lie on top.
    for link in sorted(scene.links, key=lambda link: -SEVERITY.index(link.status)):
        _link(paper, link)


def _card(paper: _Paper, placed: Placed) -> None:
    card = placed.card
    paper.box((0, 0), (CARD_WIDTH, card.height), CARD, EDGE, corner_radius=8)
    paper.text((PAD, 2 * PAD), card.title, INK, weight="bold")
    for top, height in card.boxes:
        paper.box((PAD / 2, top), (CARD_WIDTH - PAD, height), CAGE, EDGE, corner_radius=4)
    for line in card.lines:
        paper.text((PAD * 1.5, line.y), line.words, _colour(line))


def _link(paper: _Paper, link: Link) -> None:
    colour, dashes = RAILS[link.twin]
    paper.line(link.points, SIGNS[link.status][0] if link.status in SIGNS else colour, dashes)
    for socket in link.sockets:
        _socket(paper, socket.point(), link.twin, socket.port.status)


def _socket(paper: _Paper, at: Point, twin: int, status: Status) -> None:
    """A disc where all is well, a square with a sign where it is not."""
    if status not in SIGNS:
        paper.dot(at, RAILS[twin][0])
        return
    colour, sign = SIGNS[status]
    paper.box((at[0] - SOCKET, at[1] - SOCKET), (2 * SOCKET, 2 * SOCKET), colour, colour, corner_radius=2)
    paper.text((at[0], at[1] + LETTER_HEIGHT / 3), sign, PAPER, weight="bold", anchor="middle")


def _colour(line: Line) -> str:
    if line.tone is not None and line.tone in SIGNS:
        return SIGNS[line.tone][0]
    return FAINT if line.faint else INK


def _attributes(values: dict[str, object]) -> dict[str, str]:
    """Numbers without needless zeros."""
    return {name: f"{value:g}" if isinstance(value, int | float) else str(value) for name, value in values.items()}


def _printable(words: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)
