"""Selectors of labels: the forms of Kubernetes, and the words `exists` and `!exists` of CB-Tumblebug.

A selector is a list of conditions with commas between; all of them must hold. Where a label is missing, `!=` and
`notin` hold, as in Kubernetes. A text in no known form is refused: it would select nothing, or everything.
"""

import re
from collections.abc import Callable

from stateward.errors import BadInput

Labels = dict[str, str]
LabelTest = Callable[[Labels], bool]

GRAMMAR = "`a=b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`, `a` or `!a`, with commas between"

NAME = r"(?P<name>[^\s,()=!]+)"
CONDITIONS = (
    re.compile(rf"{NAME}\s*(?P<sign>!=|==?)\s*(?P<value>[^=,][^,]*|)\Z"),
    re.compile(rf"{NAME}\s+(?P<sign>in|notin)\s*\((?P<values>[^()]*)\)\Z"),
    re.compile(rf"{NAME}\s+(?P<sign>!?exists)\Z"),
    re.compile(rf"(?P<sign>!?)\s*{NAME}\Z"),
)
"""The forms of a condition."""

COMMA = re.compile(r",(?![^()]*\))")
"""A comma that ends a condition: one within parentheses does not."""


def parse_selector(text: str) -> LabelTest:
    """Return a function that tells whether labels fit a selector; an empty selector fits all."""
    tests = [_parse_condition(text, condition.strip()) for condition in COMMA.split(text) if condition.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _parse_condition(text: str, condition: str) -> LabelTest:
    match = next(filter(None, (form.match(condition) for form in CONDITIONS)), None)
    if match is None:
        raise BadInput("labelSelector", text, GRAMMAR)
    parts = match.groupdict()
    name: str = parts["name"]
    match parts["sign"]:
        case "" | "exists":
            return lambda labels: name in labels
        case "!" | "!exists":
            return lambda labels: name not in labels
        case "=" | "==":
            return lambda labels: labels.get(name) == parts["value"].strip()
        case "!=":
            return lambda labels: labels.get(name) != parts["value"].strip()
    values = frozenset(value.strip() for value in parts["values"].split(","))
    return lambda labels: (labels.get(name) in values) is (parts["sign"] == "in")
