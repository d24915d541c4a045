"""Sentences for values that a record does not accept.

msgspec checks bodies, specs and files. Its messages name Python's types and show regular expressions, and a user knows
neither. `explain` turns such a message into the path of the field and what the field must be.

No text of msgspec reaches a user: a message that is not known here becomes "of the documented form".
"""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import inspect

from stateward.errors import BadInput, UnknownField

GIVEN = "given"
"""What a missing field must be."""

OTHERWISE = "of the documented form"
_TIME = "a time such as 2026-01-31T12:00:00Z"
_WIRE_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": _TIME,
    "date": "a date such as 2026-01-31",
    "time": "a time of day such as 12:00:00",
    "duration": "a duration such as PT1H",
    "uuid": "a UUID",
    "bytes": "a text in base64",
}
_INVALID = (
    ("Invalid RFC3339 encoded datetime", _TIME),
    ("Invalid RFC3339 encoded date", _WIRE_TYPES["date"]),
    ("Invalid RFC3339 encoded time", _WIRE_TYPES["time"]),
    ("Invalid epoch timestamp", _TIME),
    ("Timestamp is out of range", _TIME),
    ("Invalid ISO8601 duration", _WIRE_TYPES["duration"]),
    ("Only units", _WIRE_TYPES["duration"]),
    ("Duration is out of range", "a shorter duration"),
    ("Invalid UUID", _WIRE_TYPES["uuid"]),
    ("Invalid decimal string", _WIRE_TYPES["decimal"]),
    ("Invalid base64 encoded string", _WIRE_TYPES["bytes"]),
    ("Number out of range", "a smaller number"),
    ("Integer value out of range", "a smaller number"),
    ("Invalid enum value", "one of the documented values"),
    ("Invalid value", "one of the documented values"),
)

_EXPECTED = r"(?s)Expected `(?P<wanted>[^`]*)`(?P<rest>.*)"
_GOT = r", got `([^`]*)`"
_LIMIT = r" (?P<length>of length )?(?P<side>[<>]=?) (?P<limit>\S+)"
_LENGTH = r" of (?P<side>at least |at most )?length (?P<limit>\d+(?: to \d+)?)"
_MULTIPLE = r" that's a multiple of (\S+)"
_REGEX = " matching regex "
_FIELD = r"(?s)Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`"
_STEP = r"([^.\[\]]+)|(\[[^\]]*\])"  # a field, or an item of a list or of an object
_SIGNS = r"\^\[([^\]\\^]+)\](?:[+*]|\{\d+,\d*\})(?:\$|\\[Zz])"
_SIDES = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_UNITS = {"str": "character", "bytes": "byte", "object": "field", "array": "item"}

PATTERN_MEANINGS: dict[str, str] = {}  # bounded by: the patterns of the program
"""What a text of a pattern is, as it continues "must be"; each pattern is registered next to its constant."""


def describe_pattern(pattern: str, means: str) -> str:
    """Register what a text of this pattern is, as it continues "must be"; return the pattern."""
    PATTERN_MEANINGS[pattern] = means
    return pattern


class Explanation(NamedTuple):
    """Where a value is wrong, and what it must be; `known` are the fields that there are instead of an unknown one."""

    place: str
    allowed: str
    known: tuple[str, ...] | None = None


def explain(error: Exception | str, expected: object = None) -> Explanation:
    """Return the place and the reason of an error of msgspec; `expected` is the type that it checked."""
    why, _, path = str(error).partition(" - at `")
    path, is_key = path.removeprefix("key` in `"), path.startswith("key` in `")
    place = path.removesuffix("`").removeprefix("$").removeprefix(".")
    if (field := re.fullmatch(_FIELD, why)) is not None:
        inner = f"{place}.{field['name']}".removeprefix(".") or '""'  # a field's name may be empty
        if field["what"] == "missing required":
            return Explanation(inner, GIVEN)
        known = tuple(known_fields(expected, place))
        return Explanation(inner, UnknownField(inner, known).allowed, known)
    if isinstance(error, Exception) and isinstance(error.__cause__, ValueError):  # raised by the record itself
        return Explanation(place, why)
    types = [] if is_key else _types_at(expected, place)
    allowed = _allowed(why, types)
    return Explanation(place, f"an object whose every name is {allowed}" if is_key else allowed)


def bad_input(error: Exception, expected: object, root: str, state: str | None = None) -> BadInput:
    """Return the error of input for a value at `root` that msgspec refused."""
    explanation = explain(error, expected)
    separator = "" if not root or not explanation.place or explanation.place.startswith("[") else "."
    field = f"{root}{separator}{explanation.place}"
    if explanation.known is None:
        return BadInput(field, None, explanation.allowed, state=state)
    unknown = UnknownField(field, explanation.known)
    unknown.state = state
    return unknown


def _allowed(why: str, types: Iterable[inspect.Type]) -> str:
    """Continue "must be" for a message of msgspec without its path."""
    types = list(types)
    if why.startswith(("Invalid enum value", "Invalid value")) and (values := _choices(types)):
        return f"one of {', '.join(values)}"
    for opening, allowed in _INVALID:
        if why.startswith(opening):
            return allowed
    said = re.fullmatch(_EXPECTED, why)
    return OTHERWISE if said is None else _constraint(said["wanted"], said["rest"], types)


def _constraint(wanted: str, rest: str, types: list[inspect.Type]) -> str:
    kinds = [_WIRE_TYPES.get(word) for word in wanted.split(" | ")]
    kind = " or ".join(text for text in kinds if text) if all(kinds) else OTHERWISE
    if rest.startswith(_REGEX):
        pattern = _unquoted(rest.removeprefix(_REGEX))
        return PATTERN_MEANINGS.get(pattern) or _signs_of(pattern) or OTHERWISE
    if (got := re.fullmatch(_GOT, rest)) is not None:
        given = "one with a point or an exponent" if got[1] == "float" and "int" in wanted else _WIRE_TYPES.get(got[1])
        return kind if given is None or given in kind else f"{kind}, not {given}"
    if (limit := re.fullmatch(_LIMIT, rest)) is not None:
        return _limited(wanted, kind, limit, types)
    if (length := re.match(_LENGTH, rest)) is not None:
        return f"{kind} of {length['side'] or 'exactly '}{length['limit']} items"
    if (multiple := re.fullmatch(_MULTIPLE, rest)) is not None:
        return f"a multiple of {multiple[1]}"
    if "timezone" in rest:
        return f"{kind} {'without' if 'no timezone' in rest else 'with'} a time zone"
    return kind


def _signs_of(pattern: str) -> str:
    """Return the words for a pattern that only says of which signs a text is; any other needs `describe_pattern`."""
    match = re.fullmatch(_SIGNS, pattern)
    return "" if match is None else f"text of {' '.join(re.findall(r'[A-Za-z0-9]-[A-Za-z0-9]|.', match[1]))}"


def _limited(wanted: str, kind: str, said: re.Match[str], types: list[inspect.Type]) -> str:
    """Name both limits if the type tells them, or the one that was crossed."""
    lower, upper = ("min_length", "max_length") if said["length"] else ("ge", "le")
    limits = {(getattr(type_, lower, None), getattr(type_, upper, None)) for type_ in types}
    low, high = next((pair for pair in limits if len(limits) == 1 and None not in pair), (None, None))
    amount = f"{low} to {high}" if low is not None else f"{_SIDES[said['side']]} {said['limit']}"
    if not said["length"]:
        return f"{kind} from {amount}" if low is not None else amount
    unit = _UNITS.get(wanted, "item") + ("" if amount.endswith(" 1") else "s")
    return f"{amount} {unit} long" if wanted in ("str", "bytes") else f"{kind} of {amount} {unit}"


def _unquoted(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ""


def _choices(types: Iterable[inspect.Type]) -> list[str]:
    choices: list[str] = []
    for type_ in types:
        match type_:
            case inspect.EnumType():
                choices += [str(member.value) for member in type_.cls]
            case inspect.LiteralType():
                choices += [str(value) for value in type_.values]
    return list(dict.fromkeys(choices))


def known_fields(expected: object, place: str) -> list[str]:
    """Return the names of the fields that the object at a place may have; `place` is as msgspec tells it."""
    structs = [struct for struct in _types_at(expected, place) if isinstance(struct, inspect.StructType)]
    return list(dict.fromkeys(field.encode_name for struct in structs for field in struct.fields))


def _types_at(expected: object, place: str) -> list[inspect.Type]:
    """Return the types that a value may have at a place, without the unions and metadata around them."""
    if expected is None:
        return []
    try:
        types = [inspect.type_info(expected)]
    except TypeError:  # a parameter may have a type that only the web framework reads
        return []
    for name, inside in re.findall(_STEP, place):
        types = [inner for type_ in types for inner in _within(type_, name or inside)]
    return list(_unwrapped(types))


def _within(node: inspect.Type, step: str) -> list[inspect.Type]:
    """Return the types of a field, or of the items, of a value."""
    inner: list[inspect.Type] = []
    for type_ in _unwrapped([node]):
        match type_:
            case inspect.StructType():
                inner += [field.type for field in type_.fields if field.encode_name == step]
                if type_.tag_field == step and isinstance(type_.tag, str | int):
                    inner.append(inspect.LiteralType((type_.tag,)))
            case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
                inner.append(type_.item_type)
            case inspect.TupleType():
                inner += type_.item_types
            case inspect.DictType():
                inner.append(type_.value_type)
    return inner


def _unwrapped(nodes: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for node in nodes:
        match node:
            case inspect.UnionType():
                yield from _unwrapped(node.types)
            case inspect.Metadata():
                yield from _unwrapped([node.type])
            case _:
                yield node


__all__ = ["GIVEN", "PATTERN_MEANINGS", "Explanation", "bad_input", "describe_pattern", "explain", "known_fields"]
