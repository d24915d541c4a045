"""The places of boxes, arrows and labels."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from stateward.lifecycle.render.clearance import Rectangle, move_labels_clear
from stateward.lifecycle.render.layout import Arrow, Box, Curve, Layout, Point, arrange
from stateward.lifecycle.render.text_width import text_width


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
    assert not any(one.meets(other) for one, other in combinations(rooms, 2))


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


def straight(x: float, label: Point | None = None) -> Curve:
    return Curve(tuple(Point(x, y) for y in (0, 60, 120, 180)), Point(x, 190), label=label)


def test_a_label_that_an_arrow_runs_through_is_moved_aside() -> None:
    arrows = (Arrow("a", "b", 60, 20), Arrow("c", "d", 0, 0))
    crossed = Layout(400, 200, (), (straight(100, Point(135, 90)), straight(140)))
    moved = move_labels_clear(crossed, (), arrows).curves[0].label
    assert moved is not None
    assert not Rectangle(moved, 50, 15).holds(Point(140, moved.y))
    assert not Rectangle(moved, 50, 15).holds(Point(100, moved.y))


def test_a_label_that_is_free_stays_where_it_is() -> None:
    free = Layout(400, 200, (), (straight(100, Point(135, 90)), straight(300)))
    assert move_labels_clear(free, (), (Arrow("a", "b", 60, 20), Arrow("c", "d", 0, 0))) == free


def test_a_label_with_nowhere_to_go_stays_where_it_is() -> None:
    fence = tuple(straight(float(x)) for x in range(0, 400, 12))
    crowded = Layout(400, 200, (), (straight(100, Point(135, 90)), *fence))
    nowhere = (Arrow("a", "b", 60, 20), *(Arrow("c", "d", 0, 0) for _ in fence))
    assert move_labels_clear(crowded, (), nowhere) == crowded


@given(st.text(), st.text())
def test_widths_add_up(one: str, other: str) -> None:
    assert abs(text_width(one + other, 10) - text_width(one, 10) - text_width(other, 10)) < 1e-6


def test_wide_letters_are_wider_and_marks_on_letters_have_no_width() -> None:
    assert text_width("실", 10) > text_width("W", 10) > text_width("i", 10)
    assert text_width("e\u0301", 10) == text_width("e", 10)
