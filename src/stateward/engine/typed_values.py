"""Types of specs and arguments: checking, schemas and secrets.

A spec is stored as JSON text. Without a type, a wrong one fails in a worker, long after its author has gone. A kind
that declares a `msgspec.Struct` for its spec, or for the arguments of an action, has them checked when the request is
accepted. Forms, commands and clients are generated from the schema of the same type.

A field whose schema says `writeOnly` is a secret: no error, and no way out of the server, shows its value.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from functools import cache, lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, inspect

from stateward.errors import BadInput, UnknownField, UnknownName
from stateward.store.records import to_json
from stateward.validation_texts import bad_input

Schema: TypeAlias = dict[str, Any]

MASK = "***"
"""The replacement of a secret value."""

SHORTEST_SECRET = 4
"""Shorter secrets are not searched in messages: they are parts of common words and numbers."""

MAX_DEPTH = 100
"""How deeply a value may be nested, so that all of it can be walked through."""

_ESCAPED, _BRACKETS = re.compile(r"\\."), re.compile(r"[\[\]{}]")

_REF = "#/$defs/"

_RECORDS = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
"""The types that a schema refers to: msgspec leaves out the metadata of such a reference in a union."""

_TEXT_TYPES = (bytes, datetime, date, time, timedelta)
"""The types whose JSON is a text other than the one that Python prints."""


class ValueType:
    """The type of a spec, or of the arguments of an action."""

    __slots__ = ("_decoder", "_defs", "_root", "has_secrets", "schema", "secret_names", "struct")

    def __init__(self, struct: type[Struct]) -> None:
        self.struct = struct
        self._decoder = msgspec.json.Decoder(struct)
        drawn = msgspec.json.schema(struct)
        self._defs: Schema = drawn.pop("$defs", {})
        self._root: Schema = drawn
        self.schema: Schema = _inlined(drawn, self._defs, ())
        """The JSON schema, without references: a type that contains itself is an object of any form there."""
        fields = _SecretFields(inspect.type_info(struct))
        self.has_secrets = fields.has_secrets
        self.secret_names = frozenset(fields.names)

    def read(self, text: str, place: str, state: str | None = None) -> Struct:
        """Return a stored value; raises with the field that does not fit, never with its value."""
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            unfit = bad_input(error, self.struct, place, state)
            if error.__cause__ is not None:  # raised by the struct itself, in words of its own
                unfit.allowed = self.mask_in(unfit.allowed, text)
            raise unfit from None
        except Exception as error:  # a check of the struct's own that fails itself must not stop the others' requests
            why = f"of a form that {self.struct.__name__} can check: {type(error).__name__}"
            raise BadInput(place, None, why, state=state) from error

    def normalize(self, text: str, place: str, state: str | None = None) -> str:
        """Return a given value as it is stored, with its defaults; raises with the field that does not fit.

        Unlike a decoder of msgspec, this refuses unknown fields of any struct: a misspelt name would be lost silently.
        """
        decoded = self.read(text, place, state)
        given = msgspec.json.decode(text)
        refuse_unknown_fields(given, decoded, place, state)
        for where, secret in self._secrets(given, place):
            if MASK in _parts_of(secret):
                raise BadInput(where, None, f"the secret itself: {MASK} only stands for it", state=state)
        try:
            return msgspec.json.encode(decoded, order="deterministic").decode()
        except TypeError:  # keys that are no texts cannot be sorted as they are
            plain = msgspec.to_builtins(decoded, str_keys=True)
            return msgspec.json.encode(plain, order="deterministic").decode()

    def mask(self, text: str) -> str:
        """Return JSON text with the secret values masked, and those of fields that this type does not know."""
        return to_json(self._replaced(msgspec.json.decode(text), [self._root], "", lambda _place, _value: MASK))

    def mask_in(self, message: str, text: str) -> str:
        """Return a message in which the secrets of a value, given as JSON text, are masked."""
        return mask_texts(message, self.secret_texts(text))

    def secret_texts(self, text: str) -> set[str]:
        """Return the secrets of a value, given as JSON text, that are searched in messages and results."""
        secrets = self._secrets(msgspec.json.decode(text), "")
        forms = {form for _, value in secrets for part in _parts_of(value) for form in _printed_forms(part)}
        return {form for form in forms if len(form) >= SHORTEST_SECRET}

    def _secrets(self, given: Any, place: str) -> list[tuple[str, Any]]:  # noqa: ANN401 - plain JSON
        """Return the secrets in plain JSON, each with its place."""
        secrets: list[tuple[str, Any]] = []
        if self.has_secrets:
            self._replaced(given, [self._root], place, lambda where, value: secrets.append((where, value)))
        return secrets

    def _replaced(
        self,
        value: Any,  # noqa: ANN401 - plain JSON
        schemas: Iterable[Schema],
        place: str,
        replacement: Callable[[str, Any], Any],
    ) -> Any:  # noqa: ANN401
        """Return plain JSON with replaced secrets; `schemas` are those that the value may have."""
        ways = list(self._alternatives(schemas))
        if not ways:
            return value
        if value is not None and any(way.get("writeOnly") for way in ways):
            return replacement(place, value)
        if isinstance(value, dict):
            is_record = any("properties" in way for way in ways)
            return {
                name: self._replaced(part, schemas, f"{place}.{name}", replacement)
                if (schemas := _schemas_of_field(ways, name)) or not is_record
                else replacement(f"{place}.{name}", part)  # an earlier type had it, and it may have been a secret
                for name, part in value.items()
            }
        if isinstance(value, list):
            return [
                self._replaced(part, _schemas_of_item(ways, number), f"{place}[{number}]", replacement)
                for number, part in enumerate(value)
            ]
        return value

    def _alternatives(self, schemas: Iterable[Schema]) -> Iterator[Schema]:
        for schema in schemas:
            yield schema
            if "$ref" in schema:
                yield from self._alternatives([self._defs[schema["$ref"].removeprefix(_REF)]])
            yield from self._alternatives(schema.get("anyOf", ()))


class _SecretFields:
    """The secret fields of a type, by their names in JSON and in Python; raises for secrets that no schema tells."""

    def __init__(self, root: inspect.Type) -> None:
        self.names: set[str] = set()  # bounded by: the fields of a type
        self.has_secrets = False
        self._seen: set[Any] = set()  # bounded by: the types in a type
        self._walk(root, "")

    def _walk(self, kind: inspect.Type, place: str) -> bool:
        """Return whether a value of this type may be a secret, or a collection of secrets."""
        match kind:
            case inspect.Metadata(type=inner, extra_json_schema=extra):
                is_secret = bool((extra or {}).get("writeOnly"))
                self.has_secrets |= is_secret
                return self._walk(inner, place) or is_secret
            case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
                are_secret = [self._walk(member, place) for member in types]
                if isinstance(kind, inspect.UnionType) and any(map(_is_secret_record, types)):
                    raise BadInput(place, None, "secret as a whole: Annotated[A | B, ...], not Annotated[A, ...] | B")
                return any(are_secret)
            case inspect.DictType(key_type=key, value_type=value):
                if self._walk(key, place):
                    raise BadInput(place, None, "a mapping whose keys are not secret, or secret as a whole")
                return self._walk(value, place)
            case inspect.CollectionType(item_type=item):
                return self._walk(item, place)
            case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
                if kind.cls not in self._seen:
                    self._seen.add(kind.cls)
                    for field in kind.fields:
                        if self._walk(field.type, f"{place}.{field.encode_name}".removeprefix(".")):
                            self.names |= {field.name, field.encode_name}
        return False


def _is_secret_record(kind: inspect.Type, *, is_secret: bool = False) -> bool:
    if not isinstance(kind, inspect.Metadata):
        return is_secret and isinstance(kind, _RECORDS)
    return _is_secret_record(kind.type, is_secret=is_secret or bool((kind.extra_json_schema or {}).get("writeOnly")))


@cache  # bounded by: the types of the program
def value_type(struct: type[Struct]) -> ValueType:
    """Return the type of values of a struct; the schema of each struct is made once."""
    return ValueType(struct)


def declared_type(kind: str, place: str, struct: Any) -> ValueType:  # noqa: ANN401 - it may be declared wrongly
    """Return the type that a kind declares; raises with the kind and the field if it cannot be a schema."""
    where = f"{place} of kind {kind}"
    if not isinstance(struct, type) or not issubclass(struct, Struct):
        raise BadInput(where, struct, "a subclass of msgspec.Struct")
    try:
        declared = value_type(struct)
    except BadInput as error:
        raise BadInput(f"{where}, field {error.field}", None, error.allowed) from error
    except Exception as error:  # msgspec and the resolution of annotations raise errors of many classes
        why = (str(error) or type(error).__name__).splitlines()[-1]  # the lines before are about options of msgspec
        raise BadInput(f"{where}{_unfit_field(struct)}", None, f"of a type that has a JSON schema: {why}") from error
    if struct.__struct_config__.array_like:
        raise BadInput(where, struct, "a struct that is encoded as an object: array_like=False")
    return declared


def _unfit_field(struct: type[Struct]) -> str:
    """Return which field of a struct has no schema, as it continues its place."""
    try:
        for field in msgspec.structs.fields(struct):
            try:
                msgspec.json.schema(field.type)
            except Exception:
                return f", field {field.encode_name}"
    except Exception:  # noqa: S110 - an annotation that cannot be resolved belongs to no field
        pass
    return ""


def _inlined(schema: Any, defs: Schema, inside: tuple[str, ...]) -> Any:  # noqa: ANN401 - a part of a schema
    """Return a schema without references."""
    if isinstance(schema, list):
        return [_inlined(part, defs, inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    own = {
        name: _fields_inlined(part, defs, inside) if name == "properties" else _inlined(part, defs, inside)
        for name, part in schema.items()
        if name not in ("$ref", "default", "mapping")
    }
    if "default" in schema and (schema["default"] in (None, [], {}, ()) or not _holds_secret(schema, defs)):
        own["default"] = schema["default"]
    if "$ref" not in schema:
        return own
    name = schema["$ref"].removeprefix(_REF)
    target = {"title": name, "type": "object"} if name in inside else _inlined(defs[name], defs, (*inside, name))
    return {**target, **own}


def _fields_inlined(fields: Schema, defs: Schema, inside: tuple[str, ...]) -> Schema:
    """Return the schemas of an object's fields, which may have any names."""
    return {name: _inlined(part, defs, inside) for name, part in fields.items()}


def _holds_secret(schema: Any, defs: Schema, inside: tuple[str, ...] = ()) -> bool:  # noqa: ANN401 - a part of a schema
    """Return whether a value of a schema is a secret, or has one anywhere in it."""
    if isinstance(schema, list):
        return any(_holds_secret(part, defs, inside) for part in schema)
    if not isinstance(schema, dict):
        return False
    name = schema.get("$ref")
    if isinstance(name, str) and name not in inside:  # a field may have that name as well
        inside = (*inside, name)
        if _holds_secret(defs[name.removeprefix(_REF)], defs, inside):
            return True
    return schema.get("writeOnly") is True or any(_holds_secret(part, defs, inside) for part in schema.values())


def _schemas_of_field(ways: Iterable[Schema], name: str) -> list[Schema]:
    schemas = [way.get("properties", {}).get(name, way.get("additionalProperties")) for way in ways]
    return [schema for schema in schemas if isinstance(schema, dict)]


def _schemas_of_item(ways: Iterable[Schema], place: int) -> list[Schema]:
    schemas = [(*way.get("prefixItems", ())[place : place + 1], way.get("items"))[0] for way in ways]
    return [schema for schema in schemas if isinstance(schema, dict)]


def texts_in(value: Any) -> Iterator[str]:  # noqa: ANN401 - plain JSON
    """Yield the texts and numbers in plain JSON that are long enough to be searched."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts_in(part)
    elif not isinstance(value, bool) and value is not None and len(str(value)) >= SHORTEST_SECRET:
        yield str(value)


def mask_texts(message: str, secrets: Iterable[str]) -> str:
    """Return a message in which secrets are masked, the longest first: one may be a part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, MASK)
    return message


def mask_texts_in(value: Any, secrets: Set[str]) -> Any:  # noqa: ANN401 - plain JSON
    """Return plain JSON in whose names, texts and numbers secrets are masked."""
    match value:
        case str():
            return mask_texts(value, secrets)
        case dict():
            return {mask_texts(name, secrets): mask_texts_in(part, secrets) for name, part in value.items()}
        case list():
            return [mask_texts_in(part, secrets) for part in value]
        case _:
            return MASK if str(value) in secrets else value


def _parts_of(secret: Any) -> Iterator[str]:  # noqa: ANN401 - plain JSON
    """Yield the texts and numbers of a secret, and the names in it."""
    if isinstance(secret, dict | list):
        for part in (*secret, *secret.values()) if isinstance(secret, dict) else secret:
            yield from _parts_of(part)
    elif not isinstance(secret, bool) and secret is not None:
        yield str(secret)


def _printed_forms(secret: str) -> Iterator[str]:
    """Return the forms that a secret may have in a message: quoted once or twice, by lines, or as its Python type."""
    values = {secret}
    for kind in _TEXT_TYPES:
        with suppress(msgspec.ValidationError):
            value = msgspec.convert(secret, kind)
            values |= {str(value), repr(value)}
            if isinstance(value, bytes):
                values |= {repr(value)[2:-1], value.decode(errors="replace")}
    for text in values | {line.strip() for value in values for line in value.splitlines()}:
        for quoted in _quoted(text):
            yield from _quoted(quoted)


def _quoted(text: str) -> set[str]:
    """Return a text as it is, and as it is written between quotes."""
    return {text, *(way(text)[1:-1] for way in (repr, ascii, to_json, json.dumps))}


def refuse_unknown_fields(given: Any, decoded: Any, place: str, state: str | None, depth: int = 0) -> None:  # noqa: ANN401
    """Raise if plain JSON has a field that the value decoded from it does not have, or is too deep to be handled."""
    if depth >= MAX_DEPTH and given:
        raise BadInput(place.partition(".")[0], None, f"nested at most {MAX_DEPTH} levels deep", state=state)
    if isinstance(given, list) and isinstance(decoded, list | tuple):
        for number, (part, inner) in enumerate(zip(given, decoded, strict=False)):
            if isinstance(part, dict | list):
                refuse_unknown_fields(part, inner, f"{place}[{number}]", state, depth + 1)
    elif isinstance(given, dict) and isinstance(decoded, Mapping):
        for (name, part), inner in zip(given.items(), decoded.values(), strict=False):
            if isinstance(part, dict | list):
                refuse_unknown_fields(part, inner, f"{place}.{name}", state, depth + 1)
    elif isinstance(given, dict) and (known := _field_names(decoded.__class__)) is not None:
        for name, part in given.items():
            if name not in known:
                unknown = UnknownField(f"{place}.{name}".removeprefix("."), known)
                unknown.state = state
                raise unknown
            if isinstance(part, dict | list):
                refuse_unknown_fields(part, getattr(decoded, known[name], None), f"{place}.{name}", state, depth + 1)


@lru_cache(maxsize=1024)
def _field_names(record: type) -> Mapping[str, str] | None:
    """Return the fields of a type of records: their names in JSON, and their attributes."""
    if issubclass(record, Struct):
        names = dict(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
        tag = record.__struct_config__.tag_field
        return names if tag is None else {tag: tag, **names}
    if is_dataclass(record):
        return {field.name: field.name for field in dataclass_fields(record)}
    return None


def check_depth(place: str, text: str) -> None:
    """Raise if JSON text is nested more deeply than all ways out can show."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:  # almost every text
        return
    unescaped, depth = _ESCAPED.sub("", text) if "\\" in text else text, 0
    for bracket in _BRACKETS.findall("".join(unescaped.split('"')[::2])):  # every second piece is a quoted text
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise BadInput(place, None, f"nested at most {MAX_DEPTH} levels deep")


COLUMN_FIELDS = ("id", "state", "since", "parent", "error", "created", "op", "queue", "version", "generation")
"""The fields of every object that can be a column."""


def check_columns(kind: str, columns: Sequence[str], spec: ValueType | None) -> None:
    """Raise if a column is not a field of the kind's objects."""
    where = f"columns of kind {kind}"
    if isinstance(columns, str):
        raise BadInput(where, columns, "a sequence of fields")
    for column in columns:
        first, _, rest = column.partition(".")
        if rest and first in ("seen", "labels"):
            continue
        if rest and first == "spec":
            _require_field(column, rest.split("."), spec)
        elif column not in COLUMN_FIELDS:
            raise BadInput(where, column, f"spec., seen. or labels. with a field, or one of {', '.join(COLUMN_FIELDS)}")


def _require_field(column: str, path: Sequence[str], spec: ValueType | None) -> None:
    """Raise if a spec of this type has no such field; the inside of a field that is no object is not checked."""
    properties = {} if spec is None else spec.schema.get("properties", {})
    for name in path:
        if not properties:
            return
        if name not in properties:
            raise UnknownName(f"field in column {column}", name, properties)
        properties = properties[name].get("properties", {})
