"""Fields that are given as options: `--set size=4 --set tags=a,b --set login.user=ann`.

The shell passes texts. The JSON schema that the server has for a kind says what they stand for, so that `zip=01234`
stays a text where a text is wanted. Without a schema, a value is JSON, or text where it is not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from stateward.client.arguments import parse_pair, parse_value
from stateward.errors import BadInput, UnknownName

Schema: TypeAlias = Mapping[str, Any]

ANY: Schema = {}
SET = "--set"
ITEMS = "[]"
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list, with commas between the values",
    "object": "an object: give its fields as NAME.FIELD=VALUE, or JSON",
    "string": "a text",
}
_INTEGER = re.compile(r"-?[0-9]+")
_CONSTANTS = {"true": True, "false": False, "null": None}
_NO = object()


def parse_fields(
    texts: Sequence[str], schema: Schema | None, former: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the object that options such as `a.b=1` stand for; they replace the fields of a former one."""
    fields: dict[str, Any] = dict(former or {})
    given: set[str] = set()
    for text in texts:
        path, value = parse_pair(SET, text)
        if path in given:
            raise BadInput(SET, path, f"given once: {path} is there twice")
        given.add(path)
        *outer, name = path.split(".")
        ways, here = [(ANY if schema is None else schema)], fields
        for number, step in enumerate(outer):
            ways = _inside(ways, step, ".".join(outer[: number + 1]))
            inner = here.get(step)
            here[step] = inner = dict(inner) if isinstance(inner, Mapping) else {}
            here = inner
        if not name or not all(outer):
            raise BadInput(SET, path, "of the form field=value, or field.field=value")
        ways = _inside(ways, name, path)
        here[name] = _converted(value, ways, path)
    return fields


def _inside(ways: Sequence[Schema], name: str, path: str) -> list[Schema]:
    """Return the schemas that a field may have; raises with the nearest name if there is no such field."""
    schemas: list[Schema] = []
    known: dict[str, None] = {}
    is_open = False
    for way in _alternatives(ways):
        properties = way.get("properties", {})
        known |= dict.fromkeys(properties)
        more = way.get("additionalProperties", not properties and way.get("type", "object") == "object")
        is_open |= bool(more) and way.get("type", "object") == "object"
        if name in properties:
            schemas.append(properties[name])
        elif isinstance(more, Mapping):
            schemas.append(more)
    if schemas:
        return schemas
    if known or not is_open:
        raise UnknownName(f"field for {SET}", path, _full_names(path, known))
    return [ANY]


def _full_names(path: str, names: Mapping[str, None]) -> list[str]:
    prefix = path.rpartition(".")[0]
    return [f"{prefix}.{name}" if prefix else name for name in names]


def _alternatives(ways: Sequence[Schema]) -> Iterator[Schema]:
    for way in ways:
        if "anyOf" in way:
            yield from _alternatives(way["anyOf"])
        else:
            yield way


def _converted(text: str, ways: Sequence[Schema], path: str) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a text as the value that a schema wants; a text is what it is only where nothing else fits."""
    flat = list(_alternatives(ways))
    for way in sorted(flat, key=lambda schema: schema.get("type") == "string" and "enum" not in schema):
        value = _value(text, way, path)
        if value is not _NO:
            return value
    is_secret = any(schema.get("writeOnly") for schema in (*ways, *flat))
    raise BadInput(f"{SET} {path}", None if is_secret else text, " or ".join(dict.fromkeys(map(_wanted, flat))))


def _value(text: str, way: Schema, path: str) -> Any:  # noqa: ANN401
    """Return a text as the value of one schema, or `_NO` if it cannot be one."""
    if "enum" in way:
        return next((choice for choice in way["enum"] if str(choice) == text), _NO)
    match way.get("type"):
        case "string":
            return text
        case "integer":
            return parsed if _INTEGER.fullmatch(text) and isinstance(parsed := parse_value(text), int) else _NO
        case "number":
            parsed = parse_value(text)
            return parsed if isinstance(parsed, int | float) and not isinstance(parsed, bool) else _NO
        case "boolean":
            return parsed if isinstance(parsed := _CONSTANTS.get(text, _NO), bool) else _NO
        case "null":
            return None if text == "null" else _NO
        case "array":
            return _list(text, way, path)
        case "object":
            return parsed if isinstance(parsed := parse_value(text), dict) else _NO
    return parse_value(text)


def _list(text: str, way: Schema, path: str) -> Any:  # noqa: ANN401
    if text.startswith("["):
        return parsed if isinstance(parsed := parse_value(text), list) else _NO
    several, first = text.split(",") if text else [], way.get("prefixItems", ())
    items = way.get("items") or ANY
    return [
        _converted(part, [first[number] if number < len(first) else items], f"{path}[{number}]")
        for number, part in enumerate(several)
    ]


def _wanted(way: Schema) -> str:
    if "enum" in way:
        return f"one of {', '.join(map(str, way['enum']))}"
    return _WORDS.get(str(way.get("type")), "of the documented form")


# --- descriptions -----------------------------------------------------------------------------------------------------


def field_rows(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield the fields of a schema: the name, the type, the default (or that it is required), and the description.

    The fields of an object follow it, with their full names; those of the items of a list as `trays[].size`.
    """
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        default = "required" if name in required else "" if "default" not in field else _shown(field["default"])
        ways = list(_alternatives([field]))
        about = dict.fromkeys(text for way in (field, *ways) if (text := way.get("description")))
        yield path, type_text(field), default, " | ".join(about)
        for way in ways:
            yield from field_rows(way, f"{path}.")
        for item in _alternatives([items for way in ways if (items := way.get("items"))]):
            yield from field_rows(item, f"{path}{ITEMS}.")


def type_text(schema: Schema) -> str:
    """Return what a value is, in a few words: `integer, at least 1`, `A | TXT`, `list of string`."""
    ways = [_type_text(way) for way in _alternatives([schema])]
    secret = ["secret"] if any(way.get("writeOnly") for way in (schema, *_alternatives([schema]))) else []
    return ", ".join([" | ".join(dict.fromkeys(ways)), *secret])


def _type_text(way: Schema) -> str:
    if "enum" in way:
        return " | ".join(map(str, way["enum"]))
    name = str(way.get("format") or way.get("type") or "any")
    if name == "array":
        name = f"list of {type_text(way.get('items') or ANY)}"
    limits = [f"{word} {way[key]}" for key, word in _LIMITS.items() if key in way]
    return ", ".join([f"{name} ({_FORMATS[name]})" if name in _FORMATS else name, *limits])


_FORMATS = {
    "date-time": "such as 2026-01-31T10:20:30Z",
    "date": "such as 2026-01-31",
    "time": "such as 10:20:30Z",
    "duration": "such as PT1H30M",
}


_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "entries at least",
    "maxItems": "entries at most",
    "multipleOf": "a multiple of",
    "pattern": "matching",
}


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever JSON can say
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def complete_fields(schema: Schema, incomplete: str) -> list[str]:
    """Offer the fields of a schema as `name=`, and the values of one that has few."""
    path, equals, _ = incomplete.partition("=")
    if not equals:
        names = (name for name, *_ in field_rows(schema) if ITEMS not in name)  # a list is given as a whole
        return [f"{name}=" for name in names if name.startswith(incomplete)]
    ways = [schema]
    for step in path.split("."):
        ways = [inner for way in _alternatives(ways) if (inner := way.get("properties", {}).get(step)) is not None]
    values = [value for way in _alternatives(ways) for value in _few_values(way)]
    return [option for value in values if (option := f"{path}={value}").startswith(incomplete)]


def _few_values(way: Schema) -> list[str]:
    return ["true", "false"] if way.get("type") == "boolean" else [str(choice) for choice in way.get("enum", ())]
