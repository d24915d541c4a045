"""Transitions: the only place where an object's state changes, with its journal entry.

An operation that holds an object's state is fenced before another one takes hold of it.
"""

from datetime import UTC, datetime

from msgspec.structs import replace

from stateward.engine.stored_texts import sanitize_text
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import TRANSITIONAL, Lifecycle, Move
from stateward.store.records import JournalEntry, Key, Object, Status, WorkItem


def absent_object(key: Key, lifecycle: Lifecycle, now: float) -> Object:
    """Return an object that does not exist yet, in the initial state of its lifecycle."""
    return Object(
        ns=key.ns,
        id=key.id,
        kind=lifecycle.kind,
        state=lifecycle.initial.word,
        since=now,
        version=0,
        generation=0,
        op=None,
        queue=key.id,
        parent=None,
        spec="{}",
        labels="{}",
        error=None,
        created=now,
    )


def change_state(
    uow: UnitOfWork,
    record: Object,
    move: Move,
    who: str,
    op: str | None,
    *,
    holds: bool = False,
    spec: str | None = None,
    seen: str | None = None,
    generation: int | None = None,
    error: str | None = None,
    reason: str | None = None,
) -> Object:
    """Move an object to the state that a decision led to, and journal it.

    In a transitional state, an operation holds the object: the one it has, or, with `holds`, the given one. In any
    other state no operation does.
    """
    holder = record.op if move.target.state_class is TRANSITIONAL else None
    key = record.key
    changed = replace(
        record,
        state=move.target.word,
        since=uow.now,
        version=uow.next_version(key),
        op=op if holds else holder,
        spec=record.spec if spec is None else spec,
        generation=record.generation if generation is None else generation,
        error=sanitize_text(error),
        removed=move.target.is_absent,
        seen=record.seen if seen is None else seen,
    )
    uow.save_object(key, changed)
    new_spec = spec if spec is not None and spec != record.spec else None
    journal(uow, record, op, move.actor, who, move.event, record.state, changed.state, reason or error, new_spec)
    return changed


def journal(
    uow: UnitOfWork,
    about: Object,
    op: str | None,
    actor: str,
    who: str,
    event: str,
    source: str | None = None,
    target: str | None = None,
    reason: str | None = None,
    spec: str | None = None,
) -> None:
    """Append an entry about an object; without source and target, it is about something that changed no state."""
    uow.append_journal(
        JournalEntry(
            about.ns, about.id, about.kind, op, uow.now, actor, who, event, source, target, sanitize_text(reason), spec
        )
    )


REJECTED = "rejected: "
"""The prefix of the journal event of a report, a timer or a message that did not count."""

REQUEUED_EVENT = "put back"
"""The journal event of work that was taken from a dead worker."""


def journal_rejection(
    uow: UnitOfWork, about: Object, op: str | None, actor: str, who: str, event: str, reason: str
) -> None:
    """Journal that an event about an object did not count, and why."""
    journal(uow, about, op, actor, who, f"{REJECTED}{event}", reason=reason)


def fence_operation(uow: UnitOfWork, record: Object, reason: str) -> None:
    """End the operation that holds an object's state; its later reports no longer count.

    While a worker may still run it, its work item stays in the queue, fenced. So the next operation does not start
    before the worker has confirmed that it stopped, or is dead.
    """
    if record.op is None:
        return
    operation = uow.operations[Key(record.ns, record.op)]
    work = uow.work(operation.key)
    uow.record_end(operation, Status.CANCELLED, work, None, reason)
    if work is not None:
        fence_work(uow, work)


def fence_work(uow: UnitOfWork, work: WorkItem) -> None:
    """Remove the work of an ended operation; if a worker may still run it, fence it instead."""
    if work.owner is None:
        uow.remove_work(work)
    else:
        uow.update_work(replace(work, fenced=True))
        uow.changes.fences_running_work = True


def time_text(at: float) -> str:
    """Return a time in UTC, to the second, in the form that all texts and commands use."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
