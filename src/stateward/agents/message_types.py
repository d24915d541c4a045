"""The types of fields in messages between agents and controllers."""

from typing import Annotated

from msgspec import Meta

from stateward.validation_texts import describe_pattern

MAX_TEXT_CHARS = 10_000
"""The length limit of an agent's texts."""

Number = Annotated[int, Meta(ge=0, le=2**62)]
NAME_TEXT = describe_pattern(r"^[^\x00-\x1f\x7f]*\Z", "a text without control characters")
ANY_TEXT = describe_pattern(r"^[^\x00]*\Z", "a text without a NUL")
Name = Annotated[str, Meta(max_length=250, pattern=NAME_TEXT)]
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARS, pattern=ANY_TEXT)]
"""Texts of an agent; they exclude characters that a store cannot keep."""


def clip_text(text: str) -> str:
    """Return a text without NUL characters, cut to the length limit."""
    return text.replace("\x00", "\ufffd")[:MAX_TEXT_CHARS]
