"""The formats of `-o`: JSON, YAML, names, or values at a path of the result.

The path language is the part of JSONPath that people type: `.field`, `["a field"]`, `[0]`, `[-1]` and `[*]`, with or
without the braces of `kubectl`. A library for all of JSONPath would be a dependency for filters that `jq` does better.
A field that no value has is an error with the nearest name: a misspelt path must not look like an empty result.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from stateward.client.output import write_data
from stateward.errors import BadInput, UnknownName

OPTION = "--output"
TABLE, WIDE, JSON, YAML, NAME, PATH = "table", "wide", "json", "yaml", "name", "jsonpath"
FORMATS = (JSON, YAML, WIDE, NAME, f"{PATH}=PATH")
EVERY = "*"
STEP = r"""\.?(?:(?P<name>[^.\[\]"'{}\s]+)|\[(?P<item>-?\d+|\*)\]|\[(?P<quote>["'])(?P<quoted>.+?)(?P=quote)\])"""

Step = str | int
Values = list[Any]


class OutputFormat(Struct, frozen=True):
    """A format; `steps` are those of its path."""

    name: str = TABLE
    steps: tuple[Step, ...] = ()

    @property
    def is_data(self) -> bool:
        """Whether a program reads the output: nothing else may be printed."""
        return self.name not in (TABLE, WIDE)


def parse_output(text: str | None, *, as_json: bool = False) -> OutputFormat:
    """Read the value of `-o`; `--json` stands for `-o json`."""
    if text is None:
        return OutputFormat(JSON if as_json else TABLE)
    name, equals, path = text.partition("=")
    if as_json and text != JSON:
        raise BadInput(OPTION, text, "left out where --json is given")
    if name == PATH and equals:
        return OutputFormat(PATH, tuple(parse_path(path)))
    if name not in (JSON, YAML, WIDE, NAME, TABLE) or equals:
        raise UnknownName("output format", text, FORMATS)
    return OutputFormat(name)


def parse_path(text: str) -> list[Step]:
    """Read a path such as `[*].spec.size`."""
    path = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, at = list[Step](), 0
    while at < len(path) and path != ".":
        match = re.match(STEP, path[at:])
        if match is None:
            raise BadInput(OPTION, f"{PATH}={text}", 'a path such as [*].id, .spec.size or .labels["a.b"]')
        item = match["item"]
        steps.append(match["name"] or match["quoted"] or (EVERY if item == EVERY else int(item)))
        at += match.end()
    return steps


def print_data(output: OutputFormat, value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Print a result in a format for programs."""
    write_data("".join(f"{line}\n" for line in _lines(output, value)))


def _lines(output: OutputFormat, value: Any) -> Iterator[str]:  # noqa: ANN401
    if output.name == JSON:
        yield msgspec.json.format(msgspec.json.encode(value)).decode()
        return
    plain = msgspec.to_builtins(value)
    if output.name == YAML:
        import yaml

        yield yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=False).rstrip("\n")
    elif output.name == NAME:
        yield from map(_name, plain if isinstance(plain, list) else [plain])
    else:
        yield from map(_text, values_at(plain, output.steps))


def print_data_line(output: OutputFormat, value: Any) -> None:  # noqa: ANN401
    """Print one of many results as soon as it is known: a line of JSON, or a document of YAML."""
    if output.name == JSON:
        write_data(msgspec.json.encode(value).decode() + "\n")
    else:
        write_data("---\n" if output.name == YAML else "")
        print_data(output, value)
    sys.stdout.flush()


def _name(row: Any) -> str:  # noqa: ANN401
    """Return what a row is called: kind/id of an object, the id or the name of another record."""
    if isinstance(row, Mapping):
        if isinstance(row.get("object"), Mapping):
            return _name(row["object"])
        if row.get("id") and isinstance(row.get("kind"), str) and "action" not in row:
            return f"{row['kind']}/{row['id']}"
        for field in ("id", "name", "kind"):
            if isinstance(row.get(field), str):
                return str(row[field])
    raise BadInput(OPTION, NAME, "another format: this result has no names")


def _text(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def values_at(value: Any, steps: Sequence[Step]) -> Values:  # noqa: ANN401
    """Return the values at a path; None where a value does not have the field that another one has."""
    values: Values = [value]
    for step in steps:
        values = _fields(values, step) if isinstance(step, str) and step != EVERY else _items(values, step)
    return values


def _fields(values: Values, name: str) -> Values:
    known = {field: None for value in values if isinstance(value, Mapping) for field in value}
    if values and name not in known:
        raise UnknownName("field in the path", name, known)
    return [value.get(name) if isinstance(value, Mapping) else None for value in values]


def _items(values: Values, step: Step) -> Values:
    selected: Values = []
    for value in values:
        items = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else None
        if items is None:
            raise BadInput(OPTION, f"[{step}]", "left out here: this value is neither a list nor an object")
        selected += items if isinstance(step, str) else items[step : step + 1 or None]
    return selected
