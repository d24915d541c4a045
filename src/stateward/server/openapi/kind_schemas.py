"""The types of kinds in the OpenAPI document.

A body has one field `spec` for all kinds. Each declared type is a component, such as `dns.record.spec` or
`dns.record.change.args`, and the fields list the components beside any other object, so that generated clients have a
model of each. Their names, and those of the bodies, do not depend on the other kinds.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from stateward.engine import Kind
from stateward.engine.typed_values import ValueType
from stateward.errors import BadInput

Doc: TypeAlias = dict[str, Any]

REF = "#/components/schemas/"
BY_KIND = "x-stateward-kinds"
"""The extension that maps kinds (and actions) to the components of their types."""

BODIES = ("NewObject", "Ask", "Planned", "GroupAsk")
"""The bodies whose fields `spec` and `args` are of a kind's types."""

SAMPLES = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}


def add_kind_schemas(schemas: Doc, kinds: Iterable[Kind], examples: Mapping[str, Any]) -> None:
    """Add the types of all kinds to the components of a document, and to the fields of the bodies.

    `examples` are those of plug-ins, by the name of the component; a type without one gets a simple value that fits.
    """
    specs: dict[str, str] = {}
    args: dict[str, dict[str, str]] = {}
    for kind in kinds:
        if kind.types is None:
            continue
        if kind.types.spec is not None:
            about = f"The spec of {kind.name}."
            specs[kind.name] = _add(schemas, f"{kind.name}.spec", kind.types.spec, about, examples)
        for action, type_ in kind.types.args.items():
            about = f"The arguments of {action}, for {kind.name}."
            args.setdefault(kind.name, {})[action] = _add(schemas, f"{kind.name}.{action}.args", type_, about, examples)
    for body in BODIES:
        fields = schemas.get(body, {}).get("properties", {})
        _refer(fields, "spec", specs, specs.values())
        _refer(fields, "args", args, [ref for refs in args.values() for ref in refs.values()])


def _add(schemas: Doc, name: str, type_: ValueType, about: str, examples: Mapping[str, Any]) -> str:
    example = examples[name] if name in examples else _example(type_.schema)
    try:
        type_.normalize(msgspec.json.encode(example).decode(), "example")
    except BadInput:  # a pattern, or a condition of the struct's own, that no schema tells
        fitting = []
    else:
        fitting = [example]
    schemas[name] = {"description": about, **type_.schema, "title": name, **({"examples": fitting} if fitting else {})}
    return f"{REF}{name}"


def _refer(fields: Doc, name: str, by_kind: Mapping[str, Any], refs: Iterable[str]) -> None:
    if name not in fields or not by_kind:
        return
    ways = fields[name].get("anyOf") or [{key: value for key, value in fields[name].items() if key != "default"}]
    fields[name] = {**fields[name], "anyOf": [*({"$ref": ref} for ref in refs), *ways], BY_KIND: dict(by_kind)}


def _example(schema: Doc) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a value that is likely to fit: the declared example, the default, or the simplest one of its type."""
    if "examples" in schema:
        return schema["examples"][0]
    if "default" in schema and schema["default"] is not None:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0])
    if "properties" in schema:
        return {name: _example(field) for name, field in schema["properties"].items()}
    if "prefixItems" in schema:
        return [_example(part) for part in schema["prefixItems"]]
    return schema.get("minimum", SAMPLES.get(schema.get("type", ""), {}))
