"""The deployment in responses: workers, timers, stuck work, recovery and retention."""

from enum import StrEnum

from msgspec import Struct

from stateward.schemas.params import Json, Moment


class WorkerView(Struct, frozen=True):
    """A process that claims work."""

    id: str
    host: str
    pid: int
    lease: float
    seen: Moment
    alive: bool


class TimerView(Struct, frozen=True):
    """Something to be done to an object at a time."""

    ns: str
    id: str
    due: Moment
    rank: int
    object: str
    event: str
    facts: list[str]
    args: Json


class StuckReason(StrEnum):
    """Why something counts as stuck."""

    OVERDUE = "its deadline has passed"
    ORPHANED = "its worker is dead"


class StuckView(Struct, frozen=True):
    """Work that does not end: of which object, since when overdue, and in whose hands."""

    ns: str
    object: str
    op: str
    action: str
    state: str
    why: StuckReason
    deadline: Moment | None
    owner: str | None
    attempts: int


class HealedView(Struct, frozen=True):
    """What the healer did: work put back that dead workers held, and overdue work settled or hurried on."""

    freed: int
    settled: int


class PrunedView(Struct, frozen=True):
    """How much of what ended before a time has gone, or would go; `next` is where to go on, or null at the end."""

    before: Moment
    operations: int
    objects: int
    lines: int
    answers: int
    next: int | None
