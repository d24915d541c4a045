"""The drawing of a lifecycle: its boxes and arrows, with their sizes and places.

Texts are measured without a font, so that a drawing is the same on every machine: by a table of widths of common
sans-serif letters, in hundredths of the font size. A page shows the drawing in the font of its system, so a tenth is
added for wider fonts.
"""

from collections.abc import Iterator
from unicodedata import combining, east_asian_width

from msgspec import Struct
from msgspec.structs import replace

from stateward.lifecycle.render.arrow_labels import LabelLine, Tone, label_lines, return_label_lines, wrapped_lines
from stateward.lifecycle.render.edges import Edge, edges
from stateward.lifecycle.render.layout import Arrow, Box, Curve, Point, arrange
from stateward.lifecycle.render.phrases import join_states
from stateward.lifecycle.states import GONE, NEW, State
from stateward.lifecycle.table import Lifecycle

WORD, LABEL = 13.0, 11.0
"""The font sizes of states and of labels."""

BOLD = 1.1
LINE = 13.0
DOT, EYE = 16.0, 20.0
START = "start"
NOWHERE = Point(0, 0)
NO_CURVE = Curve((), NOWHERE)

WEIGHTS = {Tone.ASKED: 3, Tone.WENT_ON: 3, Tone.INSISTED: 1, Tone.FAILED: 1}
"""How straight Graphviz draws an arrow: most of all the successful way through a lifecycle."""


class StateShape(Struct, frozen=True):
    """The shape of a state. Without a state: the dot at the start, or the text that a bundle's arrow begins at."""

    key: str
    width: float
    height: float
    state: State | None = None
    dot: bool = False
    at: Point = NOWHERE


class ArrowShape(Struct, frozen=True):
    """An arrow and its labels; the one without an edge leads to the initial state."""

    tail: str
    head: str
    edge: Edge | None = None
    along: tuple[LabelLine, ...] = ()
    back: tuple[LabelLine, ...] = ()
    whence: tuple[str, ...] = ()
    curve: Curve = NO_CURVE
    words_at: Point = NOWHERE


class Drawing(Struct, frozen=True):
    """All shapes of a lifecycle, with the size of the drawing."""

    width: float
    height: float
    shapes: tuple[StateShape, ...]
    lines: tuple[ArrowShape, ...]


def draw(lifecycle: Lifecycle) -> Drawing:
    """Return the drawing of a lifecycle."""
    states = {state: _state(f"s{n}", state) for n, state in enumerate(lifecycle.states)}
    lines = tuple(_lines(lifecycle, states))
    shapes = (*_start(lifecycle), *states.values(), *(_stub(line) for line in lines if line.whence))
    boxes = tuple(Box(shape.key, shape.width, shape.height, shape.dot) for shape in shapes)
    arrows = tuple(map(_arrow, lines))
    layout = arrange(boxes, arrows)
    places = {shape.key: at for shape, at in zip(shapes, layout.boxes, strict=True)}
    return Drawing(
        layout.width,
        layout.height,
        tuple(replace(shape, at=places[shape.key]) for shape in shapes),
        tuple(
            replace(line, curve=curve, words_at=places[line.tail] if line.whence else curve.label or NOWHERE)
            for line, curve in zip(lines, layout.curves, strict=True)
        ),
    )


def _start(lifecycle: Lifecycle) -> tuple[StateShape, ...]:
    return (StateShape(START, DOT, DOT, dot=True),) if lifecycle.initial != NEW else ()


def _state(key: str, state: State) -> StateShape:
    if state in (NEW, GONE):
        size = DOT if state == NEW else EYE
        return StateShape(key, size, size, state, dot=True)
    return StateShape(key, max(64, text_width(state.word, WORD) * BOLD + 26), 32, state)


def _lines(lifecycle: Lifecycle, states: dict[State, StateShape]) -> Iterator[ArrowShape]:
    if lifecycle.initial != NEW:
        yield ArrowShape(START, states[lifecycle.initial].key)
    for n, edge in enumerate(edges(lifecycle)):
        whence = (
            tuple(wrapped_lines(join_states(lifecycle, edge.sources).split(" "), "from ", " ")) if edge.bundled else ()
        )
        tail = f"b{n}" if edge.bundled else states[edge.sources[0]].key
        yield ArrowShape(
            tail,
            states[edge.target].key,
            edge,
            tuple(label_lines(edge.labels)),
            tuple(return_label_lines(edge.back)),
            whence,
        )


def _stub(line: ArrowShape) -> StateShape:
    wide, high = _size(line)
    return StateShape(line.tail, wide, high)


def _arrow(line: ArrowShape) -> Arrow:
    wide, high = (0.0, 0.0) if line.whence else _size(line)
    weight = WEIGHTS[line.edge.tone if line.edge else Tone.WENT_ON]
    return Arrow(line.tail, line.head, wide, high, weight, both=bool(line.back))


def _size(line: ArrowShape) -> tuple[float, float]:
    """Return the width and height of an arrow's texts."""
    said = [
        text_width(label.text, LABEL) * (BOLD if label.tone is Tone.ASKED else 1) for label in (*line.along, *line.back)
    ]
    widths = [*said, *(text_width(text, LABEL) for text in line.whence)]
    return (max(widths) + 14, LINE * len(widths) + 6) if widths else (0.0, 0.0)


_WIDTHS = (
    (22, "ijl'|"),
    (30, "ftrI.,:;!()[]/\\`- "),
    (38, '"*{}^°·'),
    (50, "ckszvxyJ_?"),
    (58, "abdeghnopqu0123456789+=<>~#$LFTZE"),
    (68, "ABCDGHKNOPQRSUVXYÄÖÜ&"),
    (86, "mwMW%@—"),
)
_WIDTH = {letter: width / 100 for width, letters in _WIDTHS for letter in letters}
_ORDINARY = 0.6
_FULL = 1.0
_MARGIN = 1.1


def text_width(text: str, size: float) -> float:
    """Return the width of a text in the given font size."""
    return size * _MARGIN * sum(map(_letter, text))


def _letter(letter: str) -> float:
    known = _WIDTH.get(letter)
    if known is not None:
        return known
    if combining(letter):
        return 0.0
    return _FULL if east_asian_width(letter) in "WF" else _ORDINARY
