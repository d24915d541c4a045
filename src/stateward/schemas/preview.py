"""Previews in responses: what an action would do to how many objects, before anybody asks for it."""

from msgspec import Struct

from stateward.schemas.problems import Problem


class PreviewTargets(Struct, frozen=True):
    """Objects of one kind and state that an action would touch: through which state, and to which one."""

    kind: str
    state: str
    via: str | None
    desired: str
    count: int


class PreviewPlace(Struct, frozen=True):
    """How many of the touched objects are in one place: a provider and its region."""

    place: str
    count: int


class PreviewRefusal(Struct, frozen=True):
    """Objects that refuse an action for the same reason, with the ids of a few of them."""

    code: str
    detail: str
    state: str
    count: int
    examples: list[str]


class PreviewView(Struct, frozen=True):
    """The effect that an action would have; nothing was changed.

    `problem` is the reason why it would be refused, null if it would be accepted. `total` counts the objects that it
    would touch; a composite does not count beside its parts. `removes` says that some of them would end for good.
    `undo` is the action that would lead all of them back, if there is one.
    """

    action: str
    accepted: bool
    problem: Problem | None
    total: int
    targets: list[PreviewTargets]
    places: list[PreviewPlace]
    refused: list[PreviewRefusal]
    protected: int
    protected_examples: list[str]
    removes: bool
    undo: str | None
    within: float | None
    effects: list[str]
