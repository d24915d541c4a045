"""What the server answers with: records as JSON has them, with times that people can read.

JSON text that the store keeps (specs, arguments, results) is passed on as it is, and never decoded on the way.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec
from msgspec import Raw

from stateward.engine import Kind
from stateward.engine.errors import Blocker
from stateward.lifecycle import StateClass
from stateward.schemas.deployment import TimerView, WorkerView
from stateward.schemas.journal import LineView
from stateward.schemas.lanes import LaneGroupView, LanesView, LaneView, LockView
from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import OperationView
from stateward.schemas.problems import BlockerView
from stateward.store.port import LaneLoad
from stateward.store.records import JournalEntry, LaneGroup, Lock, Object, Operation, Timer, WorkerRecord

StateClasses: TypeAlias = Mapping[tuple[str, str], StateClass]
"""By kind and state; a state of a kind that this process does not know is not there."""


def state_classes(kinds: Iterable[Kind]) -> StateClasses:
    """Return the classes of all states of these kinds."""
    return {(kind.name, state.word): state.state_class for kind in kinds for state in kind.lifecycle.states}


FIRST, LAST = (one.replace(tzinfo=UTC) for one in (datetime.min, datetime.max))
"""The times that can be told: one in another zone may be just outside, where it is told as the nearest."""


def to_datetime(seconds: float) -> datetime:
    """Return a time of the store as one that people can read."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return LAST if seconds > 0 else FIRST


def to_datetime_or_none(seconds: float | None) -> datetime | None:
    """Return a time that may not have come yet."""
    return None if seconds is None else to_datetime(seconds)


def raw_json(text: str | None) -> Raw | None:
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
        since=to_datetime(found.since),
        version=found.version,
        generation=found.generation,
        op=found.op,
        queue=found.queue,
        parent=found.parent,
        spec=Raw(found.spec),
        seen=Raw(found.seen),
        labels=_labels(found.labels),
        error=found.error,
        created=to_datetime(found.created),
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
        result=raw_json(found.result),
        error=found.error,
        created=to_datetime(found.created),
        started=to_datetime_or_none(found.started),
        ended=to_datetime_or_none(found.ended),
    )


def line_view(line: JournalEntry, *, bare: bool = False) -> LineView:
    """Return a line of the journal as it is shown; `bare` leaves the spec out."""
    return LineView(
        seq=line.seq,
        ns=line.ns,
        object=line.object,
        kind=line.kind,
        op=line.op,
        at=to_datetime(line.at),
        actor=line.actor,
        who=line.who,
        event=line.event,
        source=line.source,
        target=line.target,
        reason=line.reason,
        spec=None if bare else raw_json(line.spec),
    )


def blocker_view(blocker: Blocker) -> BlockerView:
    """Return what is in the way as it is shown."""
    return BlockerView(
        blocker.op,
        blocker.action,
        str(blocker.actor),
        blocker.who,
        to_datetime(blocker.since),
        blocker.path,
        blocker.mode,
        blocker.waiting,
    )


def lane_view(load: LaneLoad) -> LaneView:
    """Return a lane as it is shown."""
    lane = load.lane
    back_off = to_datetime(lane.back_off) if lane.back_off else None
    return LaneView(lane.lane, lane.grp, lane.capacity, load.running, load.waiting, back_off, lane.throttled)


def lanes_view(groups: list[LaneGroup], loads: list[LaneLoad]) -> LanesView:
    """Return all lanes and groups as they are shown."""
    return LanesView([LaneGroupView(one.grp, one.lanes) for one in groups], [lane_view(one) for one in loads])


def worker_view(worker: WorkerRecord, now: float) -> WorkerView:
    """Return a worker as it is shown."""
    return WorkerView(worker.id, worker.host, worker.pid, worker.lease, to_datetime(worker.seen), worker.is_alive(now))


def timer_view(timer: Timer) -> TimerView:
    """Return a timer as it is shown."""
    facts, args = _names(timer.facts), Raw(timer.args)
    return TimerView(timer.ns, timer.id, to_datetime(timer.due), timer.rank, timer.object, timer.event, facts, args)


def lock_view(lock: Lock) -> LockView:
    """Return a lock as it is shown."""
    return LockView(lock.tree, lock.path, lock.mode, lock.op, lock.waiting)
