"""Reading of YAML files from outside: a malicious file can neither crash nor block the process.

Deep nesting would overrun libyaml's stack, and no error could be caught. A few hundred bytes of aliases to aliases
stand for millions of values. So the events of the parser are checked first, which takes no stack: a document that is
nested too deeply, or has too many values, is refused before it is composed. A value counts as often as aliases repeat
it.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from msgspec import Struct
from yaml import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingNode,
    MarkedYAMLError,
    Node,
    NodeEvent,
    ScalarNode,
    SequenceNode,
)

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 100
MOST = 100_000
"""How many values a file may have, keys included, with all that its aliases repeat."""


def compose(text: str) -> Node | None:
    """Return the nodes of a text; raises YAML's own errors, also for what is too deep or too large."""
    _check_size(text)
    node: Node | None = yaml.compose(text, Loader=LOADER)
    return node


def load_all(text: str) -> list[Any]:
    """Return the documents of a text as plain JSON; raises YAML's own errors, also for what JSON cannot say.

    Texts need no quotes unless JSON has a constant or a number of this form: `no` and `2026-01-31` are texts.
    """
    _check_size(text)
    return [_plain(node) for node in yaml.compose_all(text, Loader=LOADER)]


class MarkedValue(Struct, frozen=True):
    """A document as plain JSON, with the lines of its fields: `spec.tags[0]` and so on; the whole has the name ``."""

    value: Any
    lines: dict[str, int]

    def line(self, field: str) -> int:
        """Return the line of a field, or of the nearest field around it that is there."""
        while field not in self.lines:
            field = field.rpartition("[" if field.endswith("]") else ".")[0]
        return self.lines[field]


def load_marked(text: str) -> list[MarkedValue]:
    """Return the documents of a text with their lines; a document that is a list stands for its items."""
    _check_size(text)
    roots = list(yaml.compose_all(text, Loader=LOADER))
    nodes = [node for root in roots for node in (root.value if isinstance(root, SequenceNode) else [root])]
    return [MarkedValue(_plain(node), dict(_lines(node, ""))) for node in nodes]


def _lines(node: Node, path: str) -> Iterator[tuple[str, int]]:
    yield path, node.start_mark.line + 1
    if isinstance(node, MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            yield from _lines(value, inner)
            yield inner, key.start_mark.line + 1
    elif isinstance(node, SequenceNode):
        for number, child in enumerate(node.value):
            yield from _lines(child, f"{path}[{number}]")


def _check_size(text: str) -> None:
    size = _Size()
    for event in yaml.parse(text, Loader=LOADER):
        size.add(event)


_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def _plain(node: Node) -> Any:  # noqa: ANN401 - what JSON can say
    if isinstance(node, MappingNode):
        fields: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode) or key.value == "<<" or key.value in fields:
                raise _refused(key, "a field must have a plain name of its own")
            fields[key.value] = _plain(value)
        return fields
    if isinstance(node, SequenceNode):
        return [_plain(child) for child in node.value]
    assert isinstance(node, ScalarNode)
    if node.style or not (node.value in _CONSTANTS or _NUMBER.fullmatch(node.value)):
        return str(node.value)  # in quotes, in a block, or no constant and no number
    if node.value in _CONSTANTS:
        return _CONSTANTS[node.value]
    try:
        return msgspec.json.decode(node.value)
    except (msgspec.DecodeError, ValueError):  # Python limits the digits of whole numbers
        raise _refused(node, "a number is out of range; a text of digits needs quotes") from None


class _Size:
    """The number of values that a text stands for, counted from its events."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, int]] = [(None, 0)]  # collections: their anchors, and their values so far
        self._anchored: dict[str | None, int] = {}  # bounded by: one document

    def add(self, event: yaml.Event) -> None:
        """Count an event; raises if the text is too deep or too large."""
        if isinstance(event, CollectionStartEvent):
            self._open.append((event.anchor, 1))
            if len(self._open) > DEEPEST + 1:
                raise _refused(event, f"nested more than {DEEPEST} deep")
        elif isinstance(event, CollectionEndEvent):
            self._close(event, *self._open.pop())
        elif isinstance(event, AliasEvent):
            if any(anchor == event.anchor for anchor, _ in self._open):
                raise _refused(event, f"alias {event.anchor!r} is part of what it stands for")
            self._close(event, None, self._anchored.get(event.anchor, 1))
        elif isinstance(event, NodeEvent):
            self._close(event, event.anchor, 1)

    def _close(self, event: yaml.Event, anchor: str | None, values: int) -> None:
        """Add what has ended to the collection that it is in."""
        if anchor is not None:
            self._anchored[anchor] = values
        outer, before = self._open[-1]
        self._open[-1] = (outer, before + values)
        if before + values > MOST:
            raise _refused(event, f"more than {MOST} values, with those that aliases repeat")


def _refused(event: Any, problem: str) -> MarkedYAMLError:  # noqa: ANN401 - marks of libyaml have another type
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
