"""What the server answers with: records as JSON has them, with times that people can read.

JSON text that the store keeps (specs, arguments, results) is passed on as it is, and never decoded on the way.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from stateward.engine.errors import Blocker
from stateward.lifecycle import StateClass
from stateward.server.classes import StateClasses
from stateward.store.port import LaneLoad
from stateward.store.records import JournalEntry, LaneGroup, Lock, Object, Operation, Status, Timer, Worker

Json = Annotated[Any, Meta(description="any JSON")]
Moment = Annotated[datetime, Meta(tz=True)]


class ObjectView(Struct, frozen=True):
    """An object: what is wanted of it (`spec`), what was last seen of it, and the operation that holds its state."""

    ns: str
    id: str
    kind: str
    state: str
    state_class: StateClass | None
    since: Moment
    version: int
    generation: int
    op: str | None
    queue: str
    parent: str | None
    spec: Json
    seen: Json
    labels: dict[str, str]
    error: str | None
    created: Moment


class OperationView(Struct, frozen=True):
    """An accepted action, and how it ended once it has."""

    ns: str
    id: str
    object: str
    kind: str
    action: str
    status: Status
    actor: str
    who: str
    facts: list[str]
    args: Json
    origin: str
    via: str
    desired: str
    failing: str
    hidden: bool
    within: float
    generation: int
    parent: str | None
    tree: str | None
    attempts: int
    steps: Json
    result: Json
    error: str | None
    created: Moment
    started: Moment | None
    ended: Moment | None


class AcceptedView(Struct, frozen=True):
    """What was accepted: the object as it is now, and the operation, unless the state was changed at once."""

    object: ObjectView
    operation: OperationView | None


class LineView(Struct, frozen=True):
    """A line of the journal: who, what, from, to, why, when."""

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


class BlockerView(Struct, frozen=True):
    """What is in the way: an operation, who asked for it, since when; for locks also where and how."""

    op: str
    action: str
    actor: str
    who: str
    since: Moment
    path: str | None = None
    mode: str | None = None
    waiting: bool = False


class ObjectPage(Struct, frozen=True):
    """A page of objects, in the order of their ids; `next` is where to go on, or null at the end."""

    items: list[ObjectView]
    next: str | None


class OperationPage(Struct, frozen=True):
    """Operations; there is no further page."""

    items: list[OperationView]
    next: str | None = None


class LinePage(Struct, frozen=True):
    """A page of the journal, in the order of its lines; `next` is where to go on, or null at the end.

    `pruned` is the horizon, where the page begins before it: of the lines up to this number some are gone.
    """

    items: list[LineView]
    next: str | None
    pruned: int | None = None


class LaneView(Struct, frozen=True):
    """A lane: what it may run, what it runs, whether something waits in it, and until when it is backed off."""

    lane: str
    grp: str
    capacity: int
    running: int
    waiting: bool
    back_off: Moment | None
    throttled: int


class LaneGroupView(Struct, frozen=True):
    """A group of lanes: how many of them may be active at once."""

    grp: str
    lanes: int


class LanesView(Struct, frozen=True):
    """All lanes and groups that have a limit or work."""

    groups: list[LaneGroupView]
    lanes: list[LaneView]


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


class LockView(Struct, frozen=True):
    """An intention lock on a path of a tree, held or waited for by an operation."""

    tree: str
    path: str
    mode: str
    op: str
    waiting: bool


FIRST, LAST = (one.replace(tzinfo=UTC) for one in (datetime.min, datetime.max))
"""The times that can be told: one in another zone may be just outside, where it is told as the nearest."""


def when(seconds: float) -> datetime:
    """Return a time of the store as one that people can read."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return LAST if seconds > 0 else FIRST


def when_or_none(seconds: float | None) -> datetime | None:
    """Return a time that may not have come yet."""
    return None if seconds is None else when(seconds)


def json(text: str | None) -> Raw | None:
    """Return JSON text as a value that is passed on as it is."""
    return None if text is None else Raw(text)


def _names(text: str) -> list[str]:
    return [] if text == "[]" else msgspec.json.decode(text, type=list[str])


def _labels(text: str) -> dict[str, str]:
    return {} if text == "{}" else msgspec.json.decode(text, type=dict[str, str])


def object_view(found: Object, classes: StateClasses) -> ObjectView:
    """Return an object as it is shown."""
    return ObjectView(
        ns=found.ns,
        id=found.id,
        kind=found.kind,
        state=found.state,
        state_class=classes.get((found.kind, found.state)),
        since=when(found.since),
        version=found.version,
        generation=found.generation,
        op=found.op,
        queue=found.queue,
        parent=found.parent,
        spec=Raw(found.spec),
        seen=Raw(found.seen),
        labels=_labels(found.labels),
        error=found.error,
        created=when(found.created),
    )


def operation_view(found: Operation) -> OperationView:
    """Return an operation as it is shown."""
    return OperationView(
        ns=found.ns,
        id=found.id,
        object=found.object,
        kind=found.kind,
        action=found.action,
        status=found.status,
        actor=str(found.actor),  # what was just accepted may still have an `Actor`, which is not plain text
        who=found.who,
        facts=_names(found.facts),
        args=Raw(found.args),
        origin=found.origin,
        via=found.via,
        desired=found.desired,
        failing=found.failing,
        hidden=found.hidden,
        within=found.within,
        generation=found.generation,
        parent=found.parent,
        tree=found.tree,
        attempts=found.attempts,
        steps=Raw(found.steps),
        result=json(found.result),
        error=found.error,
        created=when(found.created),
        started=when_or_none(found.started),
        ended=when_or_none(found.ended),
    )


def line_view(line: JournalEntry, *, bare: bool = False) -> LineView:
    """Return a line of the journal as it is shown; `bare` leaves the spec out."""
    return LineView(
        seq=line.seq,
        ns=line.ns,
        object=line.object,
        kind=line.kind,
        op=line.op,
        at=when(line.at),
        actor=line.actor,
        who=line.who,
        event=line.event,
        source=line.source,
        target=line.target,
        reason=line.reason,
        spec=None if bare else json(line.spec),
    )


def blocker_view(blocker: Blocker) -> BlockerView:
    """Return what is in the way as it is shown."""
    return BlockerView(
        blocker.op,
        blocker.action,
        str(blocker.actor),
        blocker.who,
        when(blocker.since),
        blocker.path,
        blocker.mode,
        blocker.waiting,
    )


def lane_view(load: LaneLoad) -> LaneView:
    """Return a lane as it is shown."""
    lane = load.lane
    back_off = when(lane.back_off) if lane.back_off else None
    return LaneView(lane.lane, lane.grp, lane.capacity, load.running, load.waiting, back_off, lane.throttled)


def lanes_view(groups: list[LaneGroup], loads: list[LaneLoad]) -> LanesView:
    """Return all lanes and groups as they are shown."""
    return LanesView([LaneGroupView(one.grp, one.lanes) for one in groups], [lane_view(one) for one in loads])


def worker_view(worker: Worker, now: float) -> WorkerView:
    """Return a worker as it is shown."""
    return WorkerView(worker.id, worker.host, worker.pid, worker.lease, when(worker.seen), worker.is_alive(now))


def timer_view(timer: Timer) -> TimerView:
    """Return a timer as it is shown."""
    facts, args = _names(timer.facts), Raw(timer.args)
    return TimerView(timer.ns, timer.id, when(timer.due), timer.rank, timer.object, timer.event, facts, args)


def lock_view(lock: Lock) -> LockView:
    """Return a lock as it is shown."""
    return LockView(lock.tree, lock.path, lock.mode, lock.op, lock.waiting)
