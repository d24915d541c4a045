from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.engine.kinds import Kinds
from stateward.errors import BadInput, UnknownName
from stateward.server.routes.object_sorting import decode_cursor, encode_cursor, parse_sort
from stateward.store.filters import SortOrder
from stateward.store.records import Key

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.text(), st.none() | st.text())
def test_any_text_is_an_order_or_bad_input(text: str, kind: str | None) -> None:
    with suppress(BadInput, UnknownName):
        assert parse_sort(text, kind, Kinds([]), internal=False).is_descending is text.startswith("-")


@given(NAMES | st.floats(allow_nan=False, allow_infinity=False), NAMES, NAMES)
def test_a_cursor_comes_back_exactly(value: str | float, ns: str, id_: str) -> None:
    order = SortOrder("since" if isinstance(value, float) else "state", is_number=isinstance(value, float))
    assert decode_cursor(encode_cursor(value, Key(ns, id_)), order) == (value, ns, id_)


@given(st.text())
def test_any_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(BadInput):
        decode_cursor(text, SortOrder("since", is_number=True))
