"""Texts of other parties can be stored, whatever they contain."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.engine.stored_texts import sanitize_text


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_every_database_can_hold_it(text: str) -> None:
    kept = sanitize_text(text)
    assert kept.encode().decode() == kept
    assert "\0" not in kept


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_what_can_be_held_stays_as_it_is(text: str) -> None:
    assert sanitize_text(text) == text


def test_nothing_is_told_of_nothing() -> None:
    assert sanitize_text(None) is None
