"""A lifecycle as a self-contained SVG, whose states and arrows a page can find and highlight.

Every state and every arrow is a group with an id and data attributes: `state-Running` with `data-state`, and
`move-Running-Suspending` with `data-source`, `data-target` and `data-events`. A state also has an empty text of class
`count` at its corner, for a page to write a number into.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from stateward.lifecycle.render.arrow_labels import Tone
from stateward.lifecycle.render.arrows import arrow_texts, arrows
from stateward.lifecycle.render.drawing import ArrowShape, StateShape, draw
from stateward.lifecycle.render.layout import Point
from stateward.lifecycle.render.svg_markup import STYLE, element, escaped
from stateward.lifecycle.states import FINAL, GONE, NEW, State
from stateward.lifecycle.table import Lifecycle

MARGIN = 12.0


@lru_cache(maxsize=128)
def svg(lifecycle: Lifecycle) -> str:
    """Return the drawing of a lifecycle. It is cached: the layout takes long, and a lifecycle does not change."""
    drawn = draw(lifecycle)
    names = _names(drawn.shapes)
    wide, high = round(drawn.width + 2 * MARGIN), round(drawn.height + 2 * MARGIN)
    head: dict[str, str | float] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "class": "lifecycle",
        "role": "img",
        "data-kind": lifecycle.kind,
        "viewBox": f"{-MARGIN:g} {-MARGIN:g} {wide} {high}",
        "width": wide,
        "height": high,
    }
    about = f"{lifecycle.declaration.about}: " if lifecycle.declaration.about else ""
    inside = (
        element("title", {}, escaped(lifecycle.kind)),
        element("desc", {}, escaped(f"{about}{', '.join(state.word for state in lifecycle.declaration.states)}")),
        element("style", {}, STYLE),
        *(group for line in sorted(drawn.lines, key=_loudness) for group in arrows(line, names, lifecycle)),
        element("g", {"class": "labels"}, *(text for line in drawn.lines for text in arrow_texts(line, lifecycle))),
        *(_shape(shape, names[shape.key]) for shape in drawn.shapes),
    )
    return element("svg", head, *(f"\n{part}" for part in inside if part), "\n") + "\n"


def _loudness(line: ArrowShape) -> int:
    """Return the sort key of an arrow: important arrows come last, so that they lie on top."""
    return -(line.edge.tone if line.edge else Tone.ASKED)


def _names(shapes: Iterable[StateShape]) -> dict[str, str]:
    """Return a unique name of each shape for ids: the word of its state, without characters that selectors reserve."""
    names: dict[str, str] = {}
    for shape in shapes:
        word = shape.state.word.strip("()") if shape.state is not None else shape.key
        name = stem = re.sub(r"\W+", "_", word)
        taken = 1
        while name in names.values():
            taken += 1
            name = f"{stem}_{taken}"
        names[shape.key] = name
    return names


def _shape(shape: StateShape, name: str) -> str:
    state = shape.state
    if state is None:
        return element("g", {"class": "initial"}, _circle(shape.at, shape.width / 2)) if shape.dot else ""
    kind = "initial" if state == NEW else "gone" if state == GONE else state.state_class.value
    return element(
        "g",
        {"id": f"state-{name}", "class": f"state {kind}", "data-state": state.word},
        element("title", {}, escaped(f"{state.word}: {state.about or state.state_class}")),
        *(_eye(shape) if shape.dot else _box(shape, state)),
    )


def _eye(shape: StateShape) -> Iterator[str]:
    yield _circle(shape.at, shape.width / 2)
    if shape.state == GONE:
        yield _circle(shape.at, shape.width / 2 - 4, "eye")


def _circle(at: Point, radius: float, kind: str = "outline") -> str:
    return element("circle", {"class": kind, "cx": at.x, "cy": at.y, "r": radius})


def _box(shape: StateShape, state: State) -> Iterator[str]:
    yield _rectangle(shape, 0, "outline")
    if state.state_class is FINAL:
        yield _rectangle(shape, 3.5, "inner")
    yield element("text", {"x": shape.at.x, "y": shape.at.y + 4.5}, escaped(state.word))
    corner = {"x": shape.at.x + shape.width / 2 - 3, "y": shape.at.y - shape.height / 2 - 3}
    yield element("text", {"class": "count", **corner}, "")


def _rectangle(shape: StateShape, inset: float, kind: str) -> str:
    wide, high = shape.width - 2 * inset, shape.height - 2 * inset
    corner = {"x": shape.at.x - wide / 2, "y": shape.at.y - high / 2}
    return element("rect", {"class": kind, **corner, "width": wide, "height": high, "rx": 9 - inset})
