"""The layout of a drawing: Graphviz computes the places of boxes and the curves of arrows.

Graphviz could also measure fonts and draw, but the results differ between machines. So it gets boxes of fixed size
without text, also for the labels, and returns places only.
"""

from contextlib import closing
from threading import Lock
from typing import Any

from msgspec import Struct

from stateward.errors import NotOffered

INCH = 72.0
_ONE_AT_A_TIME = Lock()  # Graphviz keeps global variables


class Point(Struct, frozen=True):
    """A point of the drawing, from its upper left corner."""

    x: float
    y: float


class Box(Struct, frozen=True):
    """A box to be placed."""

    key: str
    width: float
    height: float
    round: bool = False


class Arrow(Struct, frozen=True):
    """An arrow between two boxes, with the size of its label."""

    tail: str
    head: str
    width: float
    height: float
    weight: int = 1
    both: bool = False


class Curve(Struct, frozen=True):
    """The curve of an arrow: a start, then three points per cubic Bézier piece; its tips; the centre of its label."""

    points: tuple[Point, ...]
    tip: Point
    back_tip: Point | None = None
    label: Point | None = None


class Layout(Struct, frozen=True):
    """The centres of boxes and the curves of arrows, in the given order."""

    width: float
    height: float
    boxes: tuple[Point, ...]
    curves: tuple[Curve, ...]


class Flow(Struct, frozen=True):
    """The direction of the layers, and the distances between boxes and between layers."""

    rankdir: str
    nodesep: float
    ranksep: float


ACROSS = Flow("LR", 0.28, 0.32)
DOWN = Flow("TB", 0.32, 0.34)
FRAME = (1280.0, 800.0)
"""The size of a page: of two layouts, the one that is larger on such a page is better."""


def arrange(boxes: tuple[Box, ...], arrows: tuple[Arrow, ...]) -> Layout:
    """Place boxes and arrows in layers, across or down, whichever can be shown larger."""
    return max((_arranged(boxes, arrows, flow) for flow in (ACROSS, DOWN)), key=_scale)


def _scale(layout: Layout) -> float:
    return min(FRAME[0] / layout.width, FRAME[1] / layout.height)


def _arranged(boxes: tuple[Box, ...], arrows: tuple[Arrow, ...], flow: Flow) -> Layout:
    with _ONE_AT_A_TIME, closing(_graph(boxes, arrows, flow)) as graph:
        graph.layout(prog="dot")
        _, _, width, height = map(float, graph.graph_attr["bb"].split(","))
        places = tuple(_point(graph.get_node(box.key).attr["pos"], height) for box in boxes)
        edges = (graph.get_edge(arrow.tail, arrow.head, str(n)) for n, arrow in enumerate(arrows))
        curves = tuple(_curve(edge.attr["pos"], edge.attr["lp"], height) for edge in edges)
    return Layout(width, height, places, curves)


def _graph(boxes: tuple[Box, ...], arrows: tuple[Arrow, ...], flow: Flow) -> Any:  # noqa: ANN401 - it has no types
    try:
        from pygraphviz import AGraph
    except ImportError:
        why = "Graphviz is not installed (pip install 'stateward[drawings]'); Mermaid and tables do without it"
        raise NotOffered("A picture of this lifecycle", why) from None
    graph = AGraph(directed=True, strict=False)
    graph.graph_attr.update(rankdir=flow.rankdir, nodesep=flow.nodesep, ranksep=flow.ranksep, splines="spline")
    graph.node_attr.update(label="", fixedsize="true")
    for box in boxes:
        shape = "circle" if box.round else "box"
        graph.add_node(box.key, shape=shape, width=box.width / INCH, height=box.height / INCH)
    for n, arrow in enumerate(arrows):
        label = _room(arrow.width, arrow.height) if arrow.width else ""
        graph.add_edge(
            arrow.tail,
            arrow.head,
            key=str(n),
            label=label,
            weight=arrow.weight,
            dir="both" if arrow.both else "forward",
            arrowsize=0.75,
        )
    return graph


def _room(width: float, height: float) -> str:
    """Return an empty label of a fixed size: in HTML form, so that Graphviz measures no font."""
    cell = f'<TD FIXEDSIZE="TRUE" WIDTH="{width:.0f}" HEIGHT="{height:.0f}"></TD>'
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR>{cell}</TR></TABLE>>'


def _point(text: str, height: float) -> Point:
    x, y = map(float, text.split(","))
    return Point(x, height - y)


def _curve(spline: str, label: str | None, height: float) -> Curve:
    """Read a spline as Graphviz writes it: `s,x,y e,x,y x,y x,y ...`, with the tips first where there are any."""
    tips = {part[0]: _point(part[2:], height) for part in spline.split(" ") if part[0] in "se"}
    points = tuple(_point(part, height) for part in spline.split(" ") if part[0] not in "se")
    return Curve(points, tips["e"], tips.get("s"), _point(label, height) if label else None)
