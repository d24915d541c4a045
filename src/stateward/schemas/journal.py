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


class FieldChange(Struct, frozen=True):
    """A field of a spec that was `added`, `removed` or `changed`, such as `disks[0].size`; secrets are masked."""

    field: str
    how: str
    before: Json
    after: Json


class SpecChange(Struct, frozen=True):
    """A change of an object's spec: who made it, when, by which event, and every field that differs."""

    seq: int
    at: Moment
    actor: str
    who: str
    event: str
    op: str | None
    fields: list[FieldChange]


class LinePage(Struct, frozen=True):
    """A page of journal entries in their order; `next` continues it, null at the end. `seq` is the number up to which
    the journal was read: to follow the journal, continue after it.

    `pruned` is the horizon, where the page begins before it: of the lines up to this number some are gone.
    """

    items: list[LineView]
    next: str | None
    pruned: int | None = None
    seq: int = 0


class TransitionCounts(Struct, frozen=True):
    """The number of transitions in each step of so many seconds from `since`; the last one is not over yet."""

    since: Moment
    step_s: int
    counts: list[int]
