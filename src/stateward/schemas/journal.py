"""Journal entries in responses."""

from msgspec import Struct

from stateward.schemas.params import Json, Moment


class LineView(Struct, frozen=True):
    """A journal entry: the actor, the event, the states before and after, the reason and the time."""

    seq: int
    ns: str
    object: str
    kind: str
    op: str | None
    at: Moment
    actor: str
    who: str
    event: str
    source: str | None
    target: str | None
    reason: str | None
    spec: Json


class LinePage(Struct, frozen=True):
    """A page of journal entries in their order; `next` continues it, null at the end.

    `pruned` is the horizon, where the page begins before it: of the lines up to this number some are gone.
    """

    items: list[LineView]
    next: str | None
    pruned: int | None = None
