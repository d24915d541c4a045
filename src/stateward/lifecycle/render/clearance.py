"""Moving labels out of the way of arrows.

Graphviz reserves space for every label but bends the curves afterwards, so that a curve may cross a label. Such a label
is moved to the nearest free place.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, hypot

from msgspec import Struct
from msgspec.structs import replace

from stateward.lifecycle.render.layout import Arrow, Box, Curve, Layout, Point

REACH = 48
STEP = 6
PADDING = 10.0
"""The part of a label's size that only keeps its text apart from its own arrow."""


class Rectangle(Struct, frozen=True):
    """A rectangle with its centre."""

    at: Point
    width: float
    height: float

    def moved(self, x: float, y: float) -> Rectangle:
        """Return a rectangle of the same size at another place."""
        return Rectangle(Point(self.at.x + x, self.at.y + y), self.width, self.height)

    def grown(self, by: float) -> Rectangle:
        """Return the rectangle with a margin around it."""
        return Rectangle(self.at, self.width + 2 * by, self.height + 2 * by)

    def holds(self, point: Point) -> bool:
        """Return whether a point is inside."""
        return abs(point.x - self.at.x) * 2 < self.width and abs(point.y - self.at.y) * 2 < self.height

    def meets(self, other: Rectangle) -> bool:
        """Return whether two rectangles overlap."""
        wide, high = self.width + other.width, self.height + other.height
        return abs(self.at.x - other.at.x) * 2 < wide and abs(self.at.y - other.at.y) * 2 < high


class OccupiedArea(Struct, frozen=True):
    """The points and rectangles that a label must not cover, and the page that it must stay on."""

    page: Rectangle
    points: list[Point]
    rooms: list[Rectangle]

    def is_free(self, room: Rectangle) -> bool:
        """Return whether a rectangle is free."""
        return (
            self.page.holds(room.at) and not any(map(room.holds, self.points)) and not any(map(room.meets, self.rooms))
        )


_OFFSETS = [
    (float(x), float(y)) for x in range(-REACH, REACH + 1, STEP) for y in range(-REACH, REACH + 1, STEP) if x or y
]


def move_labels_clear(layout: Layout, boxes: tuple[Box, ...], arrows: tuple[Arrow, ...]) -> Layout:
    """Return the layout with each label that a curve crosses moved to a free place, if there is one."""
    ways = [tuple(along(curve)) for curve in layout.curves]
    shapes = [Rectangle(at, box.width, box.height) for box, at in zip(boxes, layout.boxes, strict=True)]
    page = Rectangle(Point(layout.width / 2, layout.height / 2), layout.width, layout.height)
    labels = {n: _room(curve.label, arrows[n]) for n, curve in enumerate(layout.curves) if curve.label}
    for n, label in labels.items():
        near = label.grown(REACH)
        points = [point for way in ways for point in way if near.holds(point)]
        rooms = [*shapes, *(room for m, room in labels.items() if m != n)]
        taken = OccupiedArea(page, points, [room for room in rooms if near.meets(room)])
        labels[n] = label if taken.is_free(label) else _moved(label, taken, ways[n])
    placed = (replace(curve, label=labels[n].at) if n in labels else curve for n, curve in enumerate(layout.curves))
    return replace(layout, curves=tuple(placed))


def _room(at: Point, arrow: Arrow) -> Rectangle:
    return Rectangle(at, arrow.width - PADDING, arrow.height - PADDING / 2)


def _moved(label: Rectangle, taken: OccupiedArea, own: tuple[Point, ...]) -> Rectangle:
    """Return the nearest free place, or the old one; near its own arrow, so that it is not taken for another's."""
    moved = (label.moved(*offset) for offset in _OFFSETS)
    return min(
        (room for room in moved if taken.is_free(room)),
        key=lambda room: (
            _apart(room.at, label.at) + min(_apart(room.at, point) for point in own),
            room.at.x,
            room.at.y,
        ),
        default=label,
    )


def _apart(one: Point, other: Point) -> float:
    return hypot(one.x - other.x, one.y - other.y)


def along(curve: Curve, apart: float = 6.0) -> Iterator[Point]:
    """Yield points along a curve in small steps."""
    for n in range(0, len(curve.points) - 1, 3):
        piece = curve.points[n : n + 4]
        steps = ceil(_apart(piece[0], piece[3]) / apart) + 2
        yield from (_at(piece, step / steps) for step in range(steps + 1))


def _at(piece: tuple[Point, ...], t: float) -> Point:
    """Return the point of a cubic Bézier piece at t, from 0 to 1."""
    shares = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3)
    return Point(
        sum(share * point.x for share, point in zip(shares, piece, strict=True)),
        sum(share * point.y for share, point in zip(shares, piece, strict=True)),
    )
