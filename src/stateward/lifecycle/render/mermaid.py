"""A lifecycle as a Mermaid state diagram, which many documentation tools can draw."""

import re
from collections.abc import Iterator

from stateward.lifecycle.render.arrow_labels import Label
from stateward.lifecycle.render.edges import Edge, edges
from stateward.lifecycle.render.phrases import join_states
from stateward.lifecycle.states import GONE, NEW, State
from stateward.lifecycle.table import Lifecycle
from stateward.state_class import StateClass

BOUNDARY = "[*]"

STYLES = (
    "classDef stable fill:#e6f4ec,stroke:#1f7a4d,color:#12301f",
    "classDef transitional fill:#fdf3df,stroke:#a76a00,color:#3d2900,stroke-dasharray:5 4",
    "classDef final fill:#e7eefa,stroke:#2f5fa8,color:#13294b,stroke-width:3px",
    "classDef bundle fill:none,stroke:#808a94,stroke-dasharray:1 3,font-style:italic",
)

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_SPECIAL = re.compile(r"[^\w .,()\[\]/+*=?!-]")
_TAKEN = frozenset({
    "as", "choice", "class", "classdef", "click", "constructor", "default", "direction", "end", "fork", "hide", "href",
    "join", "note", "prototype", "root", "scale", "state", "statediagram", "style", "tostring", "valueof",
})  # fmt: skip
"""Reserved words of Mermaid and of the JavaScript below it."""


def mermaid(lifecycle: Lifecycle) -> str:
    """Return a lifecycle as a `stateDiagram-v2`."""
    names = {state: _name(n, state) for n, state in enumerate(lifecycle.states)}
    lines = (
        *STYLES,
        *_states(names),
        *([f"{BOUNDARY} --> {names[lifecycle.initial]}"] if lifecycle.initial != NEW else []),
        *(line for n, edge in enumerate(edges(lifecycle)) for line in _arrow(lifecycle, names, n, edge)),
        *_classes(names),
    )
    return "\n".join(("stateDiagram-v2", *(f"    {line}" for line in lines), ""))


def _name(number: int, state: State) -> str:
    """Return the name of a state in Mermaid: its own word if Mermaid can parse it, otherwise a number."""
    if state in (NEW, GONE):
        return BOUNDARY
    word = state.word
    plain = _PLAIN.fullmatch(word) and word.lower() not in _TAKEN and not word.startswith(("state_", "bundle_"))
    return word if plain else f"state_{number}"


def _states(names: dict[State, str]) -> Iterator[str]:
    for state, name in names.items():
        if name != BOUNDARY:
            yield name if name == state.word else f'state "{_safe(state.word)}" as {name}'


def _arrow(lifecycle: Lifecycle, names: dict[State, str], number: int, edge: Edge) -> Iterator[str]:
    head = names[edge.target]
    tail = f"bundle_{number}" if edge.bundled else names[edge.sources[0]]
    if edge.bundled:
        yield f'state "{_safe(join_states(lifecycle, edge.sources))}" as {tail}'
        yield f"class {tail} bundle"
    yield f"{tail} --> {head} : {_label(edge.labels)}"
    if edge.back:
        yield f"{head} --> {tail} : {'back if ' if edge.bundled else ''}{_label(edge.back)}"


def _label(labels: tuple[Label, ...]) -> str:
    return _safe(", ".join(map(str, labels)))


def _classes(names: dict[State, str]) -> Iterator[str]:
    for state_class in StateClass:
        members = [name for state, name in names.items() if name != BOUNDARY and state.state_class is state_class]
        if members:
            yield f"class {', '.join(members)} {state_class}"


def _safe(text: str) -> str:
    """Replace the characters that Mermaid would interpret by numbered entities."""
    return _SPECIAL.sub(lambda match: f"#{ord(match[0])};", text)
