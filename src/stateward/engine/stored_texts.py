"""Texts of handlers, providers and agents as the store keeps them."""

from typing import overload

TRACEBACK = "$traceback"
"""The field of a stored result that has the traceback of a failed operation; see `tracebacks`."""


@overload
def sanitize_text(text: str) -> str: ...


@overload
def sanitize_text(text: None) -> None: ...


def sanitize_text(text: str | None) -> str | None:
    """Return a text of a provider or an agent, with invalid characters and NUL replaced by question marks.

    No database stores them: the error could never be recorded, and its operation would be retried for ever.
    """
    if text is None or (text.isprintable() and text.isascii()):
        return text
    return text.encode(errors="replace").decode().replace("\0", "?")
