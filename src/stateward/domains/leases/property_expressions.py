"""Expressions by which a reservation chooses hosts, such as `["and", [">=", "$vcpus", "4"], ...]`.

An expression is JSON text: an operator and its two operands, of which the first is the name of a property after a
dollar sign; `and` and `or` join further expressions. Numbers are compared as numbers, everything else as text.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stateward.domains.leases.wire_values import parse_decimal
from stateward.errors import BadInput

HostTest = Callable[[Mapping[str, str]], bool]

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
CONNECTIVES: dict[str, Callable[..., bool]] = {"and": all, "or": any}
MAX_DEPTH = 20
ALLOWED = 'an expression such as [">=", "$vcpus", "4"], or several in ["and", ...] or ["or", ...]'


def match_all(_properties: Mapping[str, str]) -> bool:
    """Match any host."""
    return True


def parse_expression(field: str, text: str) -> HostTest:
    """Read an expression; an empty one matches any host."""
    if not text:
        return match_all
    try:
        expression = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise BadInput(field, text, ALLOWED) from None
    return match_all if expression in ("", []) else _test(field, expression, MAX_DEPTH)


def _test(field: str, expression: object, depth: int) -> HostTest:
    match expression:
        case [str(joint), *rest] if joint in CONNECTIVES and rest and depth:
            tests = [_test(field, part, depth - 1) for part in rest]
            return lambda properties: CONNECTIVES[joint](test(properties) for test in tests)
        case [str(sign), str(name), str() | int() | float() as value] if sign in COMPARISONS and name[:1] == "$":
            return _comparison(sign, name[1:], str(value))
        case _:
            raise BadInput(field, expression, ALLOWED)


def _comparison(sign: str, name: str, value: str) -> HostTest:
    compare, number = COMPARISONS[sign], parse_decimal(value)

    def test(properties: Mapping[str, str]) -> bool:
        has = properties.get(name)
        if has is None:
            return False
        other = parse_decimal(has)
        return compare(has, value) if number is None or other is None else compare(other, number)

    return test
