"""YAML documents: plain values, and the line on which each of them begins.

A definition needs only mappings, lists, texts, numbers, true and false. Values that other parsers guess (`no` for
false, `1:30` for 90) are texts here. A key that is given twice and a merged mapping are errors that name the line.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

import yaml
from msgspec import Struct

from stateward.documents import compose
from stateward.errors import BadInput

MAX_DEPTH = 60
LONGEST_INTEGER = 18

TEXTS = frozenset({"env", "command"})
"""All values below these fields are texts, whatever they look like."""

WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
NUMBER = re.compile(r"[-+]?([0-9]+|(?=\.?[0-9])[0-9]*\.[0-9]*([eE][-+]?[0-9]+)?)")

NO_NUL = "a text without a NUL character"
"""No argument of a process, no file name and no text in PostgreSQL can contain a NUL."""

QUOTED = frozenset({"'", '"', "|", ">"})

Where = tuple[str, ...]


class BadDefinition(BadInput):
    """A definition that cannot be used: its file, its line, its field, and what is allowed there."""

    def __init__(self, file: str, line: int, where: Where, value: object, allowed: str) -> None:
        self.file, self.line, self.path = file, line, ".".join(where)
        place = f"{file}, line {line}" + (f", {self.path}" if where else "")
        super().__init__(place, value, allowed)

    def __str__(self) -> str:
        return f"{self.field}: must be {self.allowed}"


class Document(Struct, frozen=True):
    """The values of a file, and the line on which each of them begins, by its path."""

    file: str
    value: Any
    lines: dict[Where, int]

    def wrong(self, where: Where, value: object, allowed: str) -> BadDefinition:
        """Return an error about a value."""
        known = where
        while known not in self.lines:
            known = known[:-1]
        return BadDefinition(self.file, self.lines[known], where, value, allowed)


def load(text: str, file: str) -> Document:
    """Read YAML."""
    try:
        node = compose(text)
    except yaml.MarkedYAMLError as error:
        line = min(error.problem_mark.line + 1, len(text.splitlines()) or 1) if error.problem_mark else 1
        raise BadDefinition(file, line, (), "", f"YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise BadDefinition(file, 1, (), "", f"YAML: {str(error).splitlines()[0]}") from error
    reader = _Reader(file)
    value = None if node is None else reader.value(node, ())
    return Document(file, value, {(): 1, **reader.lines})


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Where, int] = {}  # bounded by: one document

    def value(self, node: yaml.Node, where: Where) -> Any:  # noqa: ANN401 - what YAML can say
        self.lines[where] = node.start_mark.line + 1
        if len(where) > MAX_DEPTH:
            raise self._wrong(node, where, f"at most {MAX_DEPTH} levels deep")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*where, str(number))) for number, child in enumerate(node.value)]
        return self._scalar(node, where)

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                raise self._wrong(key, where, "a plain name for a field")
            if "\0" in key.value:
                raise self._wrong(key, where, f"{NO_NUL}, also in the name of a field")
            if key.value in members:
                raise self._wrong(key, (*where, key.value), "given once: it is there twice")
            members[key.value] = self.value(value, (*where, key.value))
        return members

    def _scalar(self, node: yaml.Node, where: Where) -> Any:  # noqa: ANN401
        text = str(node.value)
        if "\0" in text:
            raise self._wrong(node, where, NO_NUL)
        if getattr(node, "style", None) in QUOTED or TEXTS & set(where):
            return text
        if text in WORDS:
            return WORDS[text]
        if NUMBER.fullmatch(text):
            return self._number(text, node, where)
        return text

    def _number(self, text: str, node: yaml.Node, where: Where) -> float:
        """Return a number; long integers are refused, because Python parses none of more than 4,300 digits."""
        if not {".", "e", "E"} & set(text):
            if len(text) > LONGEST_INTEGER:
                raise self._wrong(node, where, f"an integer of at most {LONGEST_INTEGER} characters")
            return int(text)
        number = float(text)
        if not isfinite(number):
            raise self._wrong(node, where, "a finite number")
        return number

    def _wrong(self, node: yaml.Node, where: Where, allowed: str) -> BadDefinition:
        return BadDefinition(self.file, node.start_mark.line + 1, where, "", allowed)
