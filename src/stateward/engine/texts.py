"""What others say, as text that every database can hold."""

from typing import overload


@overload
def told(text: str) -> str: ...
@overload
def told(text: None) -> None: ...
def told(text: str | None) -> str | None:
    """Return what a provider or an agent said; what is no character, and what ends a text elsewhere, becomes a mark.

    Otherwise an error could never be recorded, and what it is about would be tried again and again.
    """
    if text is None or (text.isprintable() and text.isascii()):
        return text
    return text.encode(errors="replace").decode().replace("\0", "?")
