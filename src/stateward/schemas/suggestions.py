"""Suggestions of a search."""

from enum import StrEnum

from msgspec import Struct


class SuggestionType(StrEnum):
    """What a suggestion leads to."""

    OBJECT = "object"
    OPERATION = "operation"
    KIND = "kind"
    STATE = "state"
    NAMESPACE = "namespace"
    LABEL = "label"


class Suggestion(Struct, frozen=True):
    """Something that has the searched text: `text` has it, and `matched` is that part of it, as it is written there.

    Fields that the type has not are empty: a kind has no id, and a label (`name=value`) has only its text.
    """

    type: SuggestionType
    text: str
    matched: str = ""
    ns: str = ""
    id: str = ""
    kind: str = ""
    state: str = ""
