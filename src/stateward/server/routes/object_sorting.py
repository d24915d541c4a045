"""The `sort` parameter of lists of objects, and the cursors of their pages.

A list in another order than that of ids continues behind a row, not at a number: rows that come, go or change meanwhile
neither repeat nor hide others. So `next` has the sort value, the namespace and the id of the last row.

Nobody can sort by a value that the presenter would hide, because the order tells the value: by fields of a spec only if
the kind declares them and they are neither secret nor internal, and never by error texts.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stateward.engine.kinds import Kind, Kinds
from stateward.errors import BadInput, UnknownName
from stateward.store.filters import SortOrder
from stateward.store.records import Key

TEXT_COLUMNS = ("id", "kind", "state", "ns", "parent")
TIME_COLUMNS = ("since", "created")
MAX_ID_CHARS = 250
SORT_MEANS = (
    f"one of {', '.join((*TEXT_COLUMNS, *TIME_COLUMNS))}, label.NAME or spec.FIELD, with - before it to reverse"
)
CURSOR_MEANS = "`next` of the page before, with the same sort"


def parse_sort(text: str, kind: str | None, kinds: Kinds, *, internal: bool) -> SortOrder:
    """Return the order that a `sort` parameter names; `internal` tells whether the caller sees internal fields."""
    name, is_descending = text.removeprefix("-"), text.startswith("-")
    first, _, rest = name.partition(".")
    if first == "label" and rest:
        return SortOrder("labels", (rest,), is_descending=is_descending)
    if first == "spec" and rest:
        if kind is None:
            raise BadInput("sort", text, "used with a kind, because kinds differ in their specs")
        path = tuple(rest.split("."))
        schema = _field_schema(kinds[kind], path, internal=internal)
        types = {way.get("type") for way in (schema, *schema.get("anyOf", ()))} - {None, "null"}
        is_number = bool(types) and types <= {"integer", "number"}
        return SortOrder("spec", path, is_number, is_descending)
    if name not in (*TEXT_COLUMNS, *TIME_COLUMNS):
        near = UnknownName("sort", name, (*TEXT_COLUMNS, *TIME_COLUMNS)).nearest
        raise BadInput("sort", text, SORT_MEANS + (f"; did you mean {near!r}?" if near else ""))
    return SortOrder(name, is_number=name in TIME_COLUMNS, is_descending=is_descending)


def _field_schema(kind: Kind, path: Sequence[str], *, internal: bool) -> Mapping[str, Any]:
    """Return the schema of a field of a kind's spec; raises if it is not declared, or hidden from the caller."""
    spec = None if kind.types is None else kind.types.spec
    if spec is None:
        raise BadInput("sort", ".".join(("spec", *path)), f"a column or a label: {kind.name} does not declare its spec")
    hidden = spec.secret_names | kind.privacy.secrets | (frozenset() if internal else kind.privacy.fields)
    schema: Mapping[str, Any] = spec.schema
    for name in path:
        fields = {
            name: its for name, its in schema.get("properties", {}).items() if name not in hidden and '"' not in name
        }
        if name not in fields:
            raise UnknownName(f"field of the spec of {kind.name} to sort by", name, fields)
        schema = fields[name]
    return schema


def encode_cursor(value: str | float, key: Key) -> str:
    """Return the cursor of the page behind a row."""
    return urlsafe_b64encode(msgspec.json.encode((value, *key))).decode().rstrip("=")


def decode_cursor(text: str, order: SortOrder) -> tuple[str | float, str, str]:
    """Return the sort value, namespace and id of a cursor."""
    try:
        packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        value, ns, id_ = msgspec.json.decode(packed, type=tuple[str | float, str, str])
    except (ValueError, msgspec.DecodeError) as error:
        raise BadInput("after", text, CURSOR_MEANS) from error
    if isinstance(value, str) is order.is_number or "\0" in f"{value}{ns}{id_}":
        raise BadInput("after", text, CURSOR_MEANS)
    return value, ns, id_
