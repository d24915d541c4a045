"""The deployment in responses: workers, lanes, locks, timers, stuck work, recovery and retention."""

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
    kinds: list[str] = []  # the kinds whose work it does; empty if it does not say


class PluginView(Struct, frozen=True):
    """A domain of the server. One that could not be loaded has an `error`; it and `place` are for administrators."""

    name: str
    about: str = ""
    version: str = ""
    requires: str = ""
    kinds: list[str] = []
    place: str | None = None
    error: str | None = None


class TimerView(Struct, frozen=True):
    """An event that an object gets at a time."""

    ns: str
    id: str
    due: Moment
    rank: int
    object: str
    event: str
    facts: list[str]
    args: Json


class StuckReason(StrEnum):
    """The reason why work counts as stuck."""

    OVERDUE = "its deadline has passed"
    ORPHANED = "its worker is dead"


class StuckView(Struct, frozen=True):
    """Stuck work: its object, its deadline and its worker."""

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
    """The result of a run of the healer: work requeued from dead workers, and overdue work settled or expedited."""

    freed: int
    settled: int


class PrunedView(Struct, frozen=True):
    """The history that was pruned, or would be, of what ended before a time; `next` continues it, null at the end."""

    before: Moment
    operations: int
    objects: int
    lines: int
    answers: int
    next: int | None


class LaneView(Struct, frozen=True):
    """A lane: its capacity, its running operations, whether others wait, and until when it is backed off."""

    lane: str
    grp: str
    capacity: int
    running: int
    waiting: bool
    back_off: Moment | None
    throttled: int


class LaneGroupView(Struct, frozen=True):
    """A group of lanes, with the number of lanes that may be active at once."""

    grp: str
    lanes: int


class LanesView(Struct, frozen=True):
    """All lanes and groups that have a limit or work."""

    groups: list[LaneGroupView]
    lanes: list[LaneView]


class LockView(Struct, frozen=True):
    """An intention lock on a path of a tree, held or waited for by an operation."""

    tree: str
    path: str
    mode: str
    op: str
    waiting: bool
