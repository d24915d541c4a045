"""The places of boxes, arrows and labels."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from stateward.lifecycle.render.drawing import text_width
from stateward.lifecycle.render.layout import Arrow, Box, Point, arrange


class Rectangle(Struct, frozen=True):
    """A rectangle with its centre."""

    at: Point
    width: float
    height: float

    def holds(self, point: Point) -> bool:
        return abs(point.x - self.at.x) * 2 < self.width and abs(point.y - self.at.y) * 2 < self.height


def chain(length: int) -> tuple[tuple[Box, ...], tuple[Arrow, ...]]:
    boxes = tuple(Box(f"n{n}", 80, 30) for n in range(length))
    return boxes, tuple(Arrow(one.key, other.key, 40, 14) for one, other in pairwise(boxes))


def fan(width: int) -> tuple[tuple[Box, ...], tuple[Arrow, ...]]:
    boxes = tuple(Box(f"n{n}", 80, 30) for n in range(width + 1))
    return boxes, tuple(Arrow("n0", box.key, 40, 14) for box in boxes[1:])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12, unique=True))
def test_no_two_boxes_overlap(pairs: list[tuple[int, int]]) -> None:
    boxes = tuple(Box(f"n{n}", 40 + 20 * n, 30) for n in range(6))
    layout = arrange(boxes, tuple(Arrow(f"n{tail}", f"n{head}", 30, 14) for tail, head in pairs))
    rooms = [Rectangle(at, box.width, box.height) for box, at in zip(boxes, layout.boxes, strict=True)]
    for one, other in combinations(rooms, 2):
        assert not Rectangle(one.at, one.width + other.width, one.height + other.height).holds(other.at)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=8))
def test_an_arrow_leads_from_box_to_box(ends: list[tuple[int, int, bool]]) -> None:
    boxes = tuple(Box(f"n{n}", 60, 30) for n in range(4))
    arrows = tuple(Arrow(f"n{tail}", f"n{head}", 30, 14, both=both) for tail, head, both in ends)
    layout = arrange(boxes, arrows)
    rooms = {box.key: Rectangle(at, 64, 34) for box, at in zip(boxes, layout.boxes, strict=True)}
    for arrow, curve in zip(arrows, layout.curves, strict=True):
        assert rooms[arrow.head].holds(curve.tip)
        assert rooms[arrow.tail].holds(curve.back_tip or curve.points[0])
        assert (curve.back_tip is not None) == arrow.both


def test_a_chain_runs_down_and_a_wide_fan_runs_across() -> None:
    slim, wide = arrange(*chain(4)), arrange(*fan(16))
    assert len({place.x for place in slim.boxes}) == 1
    assert len({place.x for place in wide.boxes[1:]}) == 1


def test_nothing_lies_outside_the_page() -> None:
    layout = arrange(*chain(5))
    page = Rectangle(Point(layout.width / 2, layout.height / 2), layout.width, layout.height)
    assert all(page.holds(point) for curve in layout.curves for point in curve.points)


@given(st.text(), st.text())
def test_widths_add_up(one: str, other: str) -> None:
    assert abs(text_width(one + other, 10) - text_width(one, 10) - text_width(other, 10)) < 1e-6


def test_wide_letters_are_wider_and_marks_on_letters_have_no_width() -> None:
    assert text_width("실", 10) > text_width("W", 10) > text_width("i", 10)
    assert text_width("e\u0301", 10) == text_width("e", 10)
