"""Texts for people: what others say, as every database can hold it, and times, as every command prints them."""

from datetime import UTC, datetime
from typing import overload


@overload
def sanitize_text(text: str) -> str: ...
@overload
def sanitize_text(text: None) -> None: ...
def sanitize_text(text: str | None) -> str | None:
    """Return what a provider or an agent said; what is no character, and what ends a text elsewhere, becomes a mark.

    Otherwise an error could never be recorded, and what it is about would be tried again and again.
    """
    if text is None or (text.isprintable() and text.isascii()):
        return text
    return text.encode(errors="replace").decode().replace("\0", "?")


def time_text(at: float) -> str:
    """Return a time in UTC, to the second, in the one form in which texts and commands tell times."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
