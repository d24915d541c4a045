"""Views of stored records, as the API returns them.

JSON text in the store (specs, arguments, results) is passed on without decoding it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec
from msgspec import Raw

from stateward.engine import Kind
from stateward.engine.errors import Blocker
from stateward.engine.job_steps import has_times, without_times
from stateward.engine.tracebacks import split_result
from stateward.lifecycle import StateClass
from stateward.schemas.deployment import LaneGroupView, LanesView, LaneView, LockView, TimerView, WorkerView
from stateward.schemas.journal import LineView
from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import OperationView
from stateward.schemas.problems import BlockerView
from stateward.schemas.timeline import SpanView
from stateward.server.operation_timeline import Span
from stateward.store import records
from stateward.store.port import LaneLoad

StateClasses: TypeAlias = Mapping[tuple[str, str], StateClass]
"""The class of a state, by kind and state; states of unknown kinds are missing."""


def state_classes(kinds: Iterable[Kind]) -> StateClasses:
    """Return the classes of all states of these kinds."""
    return {(kind.name, state.word): state.state_class for kind in kinds for state in kind.lifecycle.states}


FIRST, LAST = (moment.replace(tzinfo=UTC) for moment in (datetime.min, datetime.max))
"""The first and the last time of `datetime`; a time outside is shown as the nearer of them."""


def to_datetime(seconds: float) -> datetime:
    """Return a time of the store, in seconds since 1970, as a UTC time."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return LAST if seconds > 0 else FIRST


def to_datetime_or_none(seconds: float | None) -> datetime | None:
    """Return a time of the store as a UTC time, or None."""
    return None if seconds is None else to_datetime(seconds)


def raw_json(text: str | None) -> Raw | None:
    """Return JSON text as a value that is encoded unchanged."""
    return None if text is None else Raw(text)


def _names(text: str) -> list[str]:
    return [] if text == "[]" else msgspec.json.decode(text, type=list[str])


def object_view(record: records.Object, classes: StateClasses) -> ObjectView:
    """Return the view of an object."""
    labels = {} if record.labels == "{}" else msgspec.json.decode(record.labels, type=dict[str, str])
    return ObjectView(
        ns=record.ns,
        id=record.id,
        kind=record.kind,
        state=record.state,
        state_class=classes.get((record.kind, record.state)),
        since=to_datetime(record.since),
        version=record.version,
        generation=record.generation,
        op=record.op,
        queue=record.queue,
        parent=record.parent,
        spec=Raw(record.spec),
        seen=Raw(record.seen),
        labels=records.shown_labels(labels) if records.PROTECTED_LABEL in labels else labels,
        error=record.error,
        created=to_datetime(record.created),
        protected=labels.get(records.PROTECTED_LABEL, ""),
    )


def _shown_steps(steps: str) -> str:
    return records.to_json(without_times(msgspec.json.decode(steps))) if has_times(steps) else steps


def operation_view(operation: records.Operation) -> OperationView:
    """Return the view of an operation."""
    result, traceback = split_result(operation)
    return OperationView(
        ns=operation.ns,
        id=operation.id,
        object=operation.object,
        kind=operation.kind,
        action=operation.action,
        status=operation.status,
        actor=str(operation.actor),  # a request that was just accepted has an `Actor`, a subclass of str
        who=operation.who,
        facts=_names(operation.facts),
        args=Raw(operation.args),
        origin=operation.origin,
        via=operation.via,
        desired=operation.desired,
        failing=operation.failing,
        hidden=operation.hidden,
        within=operation.within,
        generation=operation.generation,
        parent=operation.parent,
        tree=operation.tree,
        attempts=operation.attempts,
        steps=Raw(_shown_steps(operation.steps)),
        result=raw_json(result),
        error=operation.error,
        created=to_datetime(operation.created),
        started=to_datetime_or_none(operation.started),
        ended=to_datetime_or_none(operation.ended),
        traceback=traceback,
        group=operation.bulk or operation.parent,
    )


def span_view(span: Span) -> SpanView:
    """Return the view of a span of an operation's timeline."""
    began, ended = to_datetime_or_none(span.began), to_datetime_or_none(span.ended)
    call = (span.provider, span.target, span.count, span.slowest_s)
    return SpanView(span.kind, span.name, span.status, began, ended, span.text, span.object, span.op, *call)


def journal_entry_view(entry: records.JournalEntry, *, bare: bool = False) -> LineView:
    """Return the view of a journal entry; `bare` leaves the spec out."""
    return LineView(
        seq=entry.seq,
        ns=entry.ns,
        object=entry.object,
        kind=entry.kind,
        op=entry.op,
        at=to_datetime(entry.at),
        actor=entry.actor,
        who=entry.who,
        event=entry.event,
        source=entry.source,
        target=entry.target,
        reason=entry.reason,
        spec=None if bare else raw_json(entry.spec),
    )


def blocker_view(blocker: Blocker) -> BlockerView:
    """Return the view of a blocker."""
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
    """Return the view of a lane."""
    lane = load.lane
    back_off = to_datetime(lane.back_off) if lane.back_off else None
    return LaneView(lane.lane, lane.grp, lane.capacity, load.running, load.waiting, back_off, lane.throttled)


def lanes_view(groups: list[records.LaneGroup], loads: list[LaneLoad]) -> LanesView:
    """Return the view of all lanes and groups."""
    return LanesView([LaneGroupView(group.grp, group.lanes) for group in groups], [lane_view(load) for load in loads])


def worker_view(worker: records.WorkerRecord, now: float) -> WorkerView:
    """Return the view of a worker."""
    known = msgspec.json.decode(worker.kinds or "[]", type=list[str])
    kinds = sorted(kind for kind in known if " " not in kind)  # the others are about parts that it does not know
    seen = to_datetime(worker.seen)
    return WorkerView(worker.id, worker.host, worker.pid, worker.lease, seen, worker.is_alive(now), kinds)


def timer_view(timer: records.Timer) -> TimerView:
    """Return the view of a timer."""
    facts, args = _names(timer.facts), Raw(timer.args)
    return TimerView(timer.ns, timer.id, to_datetime(timer.due), timer.rank, timer.object, timer.event, facts, args)


def lock_view(lock: records.Lock) -> LockView:
    """Return the view of a lock."""
    return LockView(lock.tree, lock.path, lock.mode, lock.op, lock.waiting)
