"""The arrows of a drawing as SVG groups.

A page finds them by `data-source` and `data-target`, or by `data-sources` and `data-targets` where an end stands for
many states. Lists are JSON, because the name of a state may have any character. An arrow that also leads back has a
second group, so that a page can highlight each direction. The texts of arrows are apart from them: they lie on top of
all lines, which Graphviz may bend through the space of a text.
"""

import json
from collections.abc import Iterable, Iterator
from math import hypot

from stateward.lifecycle.render.arrow_labels import Label, Tone
from stateward.lifecycle.render.drawing import LINE, ArrowShape
from stateward.lifecycle.render.layout import Point
from stateward.lifecycle.render.phrases import join_states
from stateward.lifecycle.render.svg_markup import element, escaped, number
from stateward.lifecycle.states import States
from stateward.lifecycle.table import Lifecycle

HALF_HEAD = 3.2
BASELINE = 4.0


def arrows(line: ArrowShape, names: dict[str, str], lifecycle: Lifecycle) -> Iterator[str]:
    """Yield the group of an arrow, and that of its way back if it has one."""
    start, *rest = map(_pair, line.curve.points)
    way = element("path", {"d": f"M{start}C{' '.join(rest)}"})
    forth = way + _tip(line.curve.points[-1], line.curve.tip)
    tail, head = names[line.tail], names[line.head]
    edge = line.edge
    if edge is None:
        yield element("g", {"class": f"move {Tone.WENT_ON.css}"}, forth)
        return
    sources, targets = edge.sources, States((edge.target,))
    attributes = _attributes(f"{tail}-{head}", edge.tone.css, sources, targets, edge.labels)
    title = _title(lifecycle, sources, targets, edge.labels)
    yield element("g", attributes, title, forth)
    if line.curve.back_tip is not None:
        back = way + _tip(line.curve.points[0], line.curve.back_tip)
        attributes = _attributes(f"{head}-{tail}", f"back {line.back[0].tone.css}", targets, sources, edge.back)
        yield element("g", attributes, _title(lifecycle, targets, sources, edge.back), back)


def _attributes(
    name: str, kind: str, sources: States, targets: States, labels: Iterable[Label]
) -> dict[str, str | float]:
    """Return the attributes by which a page finds an arrow."""
    ends = {"data-source": sources, "data-target": targets}
    return {
        "id": f"move-{name}",
        "class": f"move {kind}",
        **{attribute: states[0].word for attribute, states in ends.items() if len(states) == 1},
        **{f"{attribute}s": _json(state.word for state in states) for attribute, states in ends.items()},
        "data-events": _json(dict.fromkeys(label.event for label in labels)),
    }


def _json(words: Iterable[str]) -> str:
    return json.dumps(list(words), ensure_ascii=False)


def _title(lifecycle: Lifecycle, sources: States, targets: States, labels: tuple[Label, ...]) -> str:
    happens = ", ".join(map(str, labels))
    return element(
        "title", {}, escaped(f"{join_states(lifecycle, sources)} \u2192 {join_states(lifecycle, targets)}: {happens}")
    )


def arrow_texts(line: ArrowShape, lifecycle: Lifecycle) -> Iterator[str]:
    """Yield the texts of an arrow, and those of its way back, each with the title of its direction."""
    edge = line.edge
    if edge is None:
        return
    words, along, both = _words(line), len(line.along), len(line.along) + len(line.back)
    sources, targets = edge.sources, States((edge.target,))
    yield element("g", {}, _title(lifecycle, sources, targets, edge.labels), *words[:along], *words[both:])
    if line.back:
        yield element("g", {}, _title(lifecycle, targets, sources, edge.back), *words[along:both])


def _words(line: ArrowShape) -> list[str]:
    texts = [(label.text, label.tone.css) for label in (*line.along, *line.back)] + [
        (text, "whence") for text in line.whence
    ]
    top = line.words_at.y - (len(texts) - 1) * LINE / 2 + BASELINE
    return [
        element("text", {"class": kind, "x": line.words_at.x, "y": top + n * LINE}, escaped(text))
        for n, (text, kind) in enumerate(texts)
    ]


def _tip(base: Point, tip: Point) -> str:
    """Return an arrow's head, from the end of its curve to its tip."""
    length = hypot(tip.x - base.x, tip.y - base.y) or 1.0
    x, y = (tip.y - base.y) / length * HALF_HEAD, (base.x - tip.x) / length * HALF_HEAD
    corners = (Point(base.x + x, base.y + y), tip, Point(base.x - x, base.y - y))
    return element("polygon", {"points": " ".join(map(_pair, corners))})


def _pair(point: Point) -> str:
    return f"{number(point.x)},{number(point.y)}"
