"""Arguments of commands: object references (`kind/id`), pairs (`key=value`), files and selectors."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from stateward.errors import BadInput, UnknownName


class ObjectRef(Struct, frozen=True):
    """A reference to an object: its id, and the kind that it must have, if one was given."""

    id: str
    kind: str | None = None

    def __str__(self) -> str:
        return self.id if self.kind is None else f"{self.kind}/{self.id}"


class ObjectSelector(Struct, frozen=True, omit_defaults=True):
    """The objects of a kind, a parent, states, labels or a part of their id."""

    kind: str | None = None
    parent: str | None = None
    states: list[str] = []
    labels: dict[str, str] = {}
    q: str | None = None


def parse_ref(text: str) -> ObjectRef:
    """Read `id` or `kind/id`."""
    kind, slash, id_ = text.partition("/")
    ref = ObjectRef(id_, kind) if slash else ObjectRef(text)
    if not ref.id or ref.kind == "" or "/" in ref.id:
        hint = f"; an id has ':' between its parts: {text.replace('/', ':')}" if "/" in ref.id else ""
        raise BadInput("object", text, f"an object's id, or kind/id{hint}")
    return ref


def is_kind_named(kind: str, wanted: str) -> bool:
    """Whether a name stands for a kind: its full name, or the last part of it (`vm` for `mci.vm`)."""
    return kind == wanted or kind.endswith("." + wanted)


def full_kind(name: str, known: Sequence[str]) -> str:
    """Return the full name of the one kind that a name stands for."""
    matches = [kind for kind in known if kind == name] or [kind for kind in known if is_kind_named(kind, name)]
    if not matches:
        raise UnknownName("kind", name, known)
    if len(matches) > 1:
        raise BadInput("kind", name, f"unambiguous: one of {', '.join(matches)}")
    return matches[0]


def parse_pair(field: str, text: str) -> tuple[str, str]:
    """Read `key=value`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadInput(field, text, "of the form key=value")
    return key, value


def parse_pairs(field: str, texts: Sequence[str]) -> dict[str, str]:
    """Read several `key=value`; a key that is given twice is an error."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, value = parse_pair(field, text)
        if key in pairs:
            raise BadInput(field, text, f"the only value for {key}, which is given twice")
        pairs[key] = value
    return pairs


def parse_values(field: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read several `key=value` whose values are JSON, or text where they are not."""
    return {key: parse_value(value) for key, value in parse_pairs(field, texts).items()}


def parse_value(text: str) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Read JSON, or a text where it is not."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def parse_json(field: str, text: str) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Read a value that must be JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise BadInput(field, text, "JSON: a text stands in double quotes") from None


def read_source(option: str, file: str) -> bytes:
    """Return the content of a file, or of standard input (`-`)."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadInput(option, file, f"a file that can be read ({error.strerror})") from error


PARTS = ("kind", "parent", "state", "label", "q")


def parse_selector(texts: Sequence[str]) -> ObjectSelector:
    """Read selectors such as `kind=mci.vm,state=Running,label=region=eu`; states add up, labels must all fit."""
    parts = [parse_pair("selector", part) for text in texts for part in text.split(",")]
    for name, _ in parts:
        if name not in PARTS:
            raise UnknownName("part of a selector", name, PARTS)
    return ObjectSelector(
        kind=_only(parts, "kind"),
        parent=_only(parts, "parent"),
        states=[value for name, value in parts if name == "state"],
        labels=parse_pairs("label", [value for name, value in parts if name == "label"]),
        q=_only(parts, "q"),
    )


def _only(parts: Sequence[tuple[str, str]], name: str) -> str | None:
    values = [value for part, value in parts if part == name]
    if len(values) > 1:
        raise BadInput("selector", f"{name}={values[1]}", f"the only value for {name}, which is given twice")
    return values[0] if values else None
