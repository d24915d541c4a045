"""Random values of random types: each is stored as it is read again, or refused with its place."""

from datetime import date, datetime
from decimal import Decimal
from itertools import count
from types import GenericAlias
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct, defstruct

from stateward.engine.kind_types import KindTypes, UnfitValue
from stateward.engine.requests import Creation, Request
from stateward.engine.typed_values import value_type
from stateward.store.records import to_json
from tests.long_forms import examples

NAMES = ("a", "b", "c_d", "$version", "key")
NUMBERS = count()
CREATES = Creation("test.kind")

plain_types = st.sampled_from(
    [
        *(bool, int, float, str, bytes, datetime, date, UUID, Decimal, Any, None, dict, list),
        Literal["x", "y"],
        Annotated[int, Meta(ge=0, lt=10)],
        Annotated[float, Meta(multiple_of=0.5)],
        Annotated[str, Meta(min_length=1, max_length=3, pattern="^[a-z]")],
        Annotated[str, Meta(extra_json_schema={"writeOnly": True})],
        Annotated[list[int], Meta(max_length=2)],
    ]
)


def structs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[type[Struct]]:
    """Return structs with fields of these types, with or without defaults."""
    fields = st.dictionaries(st.sampled_from(["a", "b", "c_d", "key"]), inner | inner.map(optional), max_size=4)
    return st.builds(
        lambda found, forbids, rename: defstruct(
            f"Random{next(NUMBERS)}",
            [(name, one, None) if is_optional(one) else (name, one) for name, one in found.items()],
            kw_only=True,
            forbid_unknown_fields=forbids,
            rename=rename,
        ),
        fields,
        st.booleans(),
        st.sampled_from([None, "camel"]),
    )


def optional(one: Any) -> Any:
    return one | None if isinstance(one, type) else one


def is_optional(one: Any) -> bool:
    return one is None or type(None) in getattr(one, "__args__", ())


types = st.recursive(
    plain_types,
    lambda inner: st.one_of(
        inner.map(lambda one: GenericAlias(list, one)),
        inner.map(lambda one: GenericAlias(dict, (str, one))),
        st.tuples(inner, inner).map(lambda two: GenericAlias(tuple, two)),
        structs(inner),
    ),
    max_leaves=6,
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=4),
)


FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "decimal": "1.5",
}


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema allows, and a few that it does not."""
    match schema:
        case {"anyOf": ways}:
            return st.one_of([fitting(one) for one in ways])
        case {"enum": several}:
            return st.sampled_from(several)
        case {"type": "object", "properties": fields, **more}:
            found = {name: fitting(one) for name, one in fields.items()}
            needed = {name: one for name, one in found.items() if name in more.get("required", ())}
            return st.fixed_dictionaries(
                needed, optional={name: one for name, one in found.items() if name not in needed}
            )
        case {"type": "object", **more}:
            inner = more.get("additionalProperties")
            return st.dictionaries(st.text(), fitting(inner) if isinstance(inner, dict) else values, max_size=2)
        case {"type": "array", "prefixItems": several}:
            return st.tuples(*(fitting(one) for one in several)).map(list)
        case {"type": "array", **more}:
            return st.lists(fitting(more.get("items", {})), max_size=2)
        case {"type": "string", "format": name}:
            return st.just(FORMATS[name])
        case {"type": "string", **more}:
            return st.sampled_from(["abc", "z"]) if more.keys() & {"pattern", "contentEncoding"} else st.text()
        case {"type": "integer"}:
            return st.integers(0, 9)
        case {"type": "number"}:
            return st.integers().map(lambda one: one / 2)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "null"}:
            return st.none()
    return values


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(struct=structs(types), data=st.data())
def test_any_value_is_stored_as_it_is_read_or_refused_with_its_place(struct: type[Struct], data: st.DataObject) -> None:
    fits = fitting(value_type(struct).schema)
    near = st.dictionaries(st.sampled_from(NAMES), values)
    spec, args = data.draw(fits | fits | near | values), data.draw(fits)
    kind = KindTypes("test.kind", struct, {"make": struct}, 2, lambda found, _version: found)
    request = Request("ns", "one", "make", "op", creates=CREATES, spec=to_json(spec), args=to_json(args))
    refused_field = ""
    try:
        checked = kind.check(request, "new")
    except UnfitValue as error:
        note(f"refused: {error}")
        refused_field = error.field
    if refused_field:
        assert refused_field.startswith(("spec", "args"))
        return
    assert kind.check(checked, "new") == checked
    stored = kind.stamp(checked).spec
    assert stored is not None
    assert isinstance(kind.read_spec(stored), struct)
    shown, unreadable = kind.show_spec(stored)
    assert unreadable is None
    assert msgspec.json.decode(shown).keys() == msgspec.json.decode(checked.spec or "").keys()
    assert isinstance(kind.read_args("make", checked.args), struct)
    kind.show_args("make", checked.args)
    assert kind.mask_in("text", stored, "make", checked.args) == "text" or kind.has_secrets


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(struct=structs(types), stored=values)
def test_a_stored_spec_of_any_form_can_be_shown(struct: type[Struct], stored: Any) -> None:
    kind = KindTypes("test.kind", struct, {}, 2, lambda found, _version: {"new": found["old"]})
    shown, unreadable = kind.show_spec(to_json(stored))
    msgspec.json.decode(shown)
    assert unreadable is None or unreadable.startswith("the stored spec, of version ")
