"""Fields of a schema as rows of a table, and as proposals of the shell."""

from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from stateward.client.field_options import complete_fields, field_rows
from stateward.engine.typed_values import value_type


class Item(Struct):
    name: str
    weight: Annotated[int, Meta(ge=1, description="grams")] = 1


class Parcel(Struct, kw_only=True):
    items: Annotated[list[Item], Meta(min_length=1, max_length=9)]
    sent: Annotated[datetime, Meta(tz=True)]
    within: timedelta | None = None
    note: Annotated[str, Meta(description="for the driver")] | None = None


SCHEMA = value_type(Parcel).schema


def test_rows_have_the_bounds_of_lists_the_fields_of_their_items_formats_and_descriptions_of_optional_fields() -> None:
    assert list(field_rows(SCHEMA)) == [
        ("items", "list of object, entries at least 1, entries at most 9", "required", ""),
        ("items[].name", "string", "required", ""),
        ("items[].weight", "integer, at least 1", "1", "grams"),
        ("sent", "date-time (such as 2026-01-31T10:20:30Z)", "required", ""),
        ("within", "duration (such as PT1H30M) | null", "null", ""),
        ("note", "string | null", "null", "for the driver"),
    ]


def test_the_shell_offers_no_fields_of_items() -> None:
    assert complete_fields(SCHEMA, "") == ["items=", "sent=", "within=", "note="]
