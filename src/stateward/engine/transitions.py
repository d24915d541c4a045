"""Changing an object's state, and voiding the work that held it: what every program is made of."""

from datetime import UTC, datetime

from msgspec.structs import replace

from stateward.engine.unit_of_work import UnitOfWork, sanitize_text
from stateward.lifecycle import TRANSITIONAL, Move
from stateward.store.records import JournalEntry, Key, Object, Status, WorkItem


def change_state(
    uow: UnitOfWork,
    found: Object,
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

    An object that comes to rest lets go of the operation that held its state; `holds` says that the operation named
    takes hold of it.
    """
    rests = move.target.state_class is not TRANSITIONAL
    kept = found.op if not rests else None
    key = found.key
    changed = replace(
        found,
        state=move.target.word,
        since=uow.now,
        version=uow.next_version(key),
        op=op if holds else kept,
        spec=found.spec if spec is None else spec,
        generation=found.generation if generation is None else generation,
        error=sanitize_text(error),
        removed=move.target.is_absent,
        seen=found.seen if seen is None else seen,
    )
    uow.save_object(key, changed)
    renewed = spec if spec is not None and spec != found.spec else None
    journal(uow, found, op, move.actor, who, move.event, found.state, changed.state, reason or error, renewed)
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
    """Write a line about an object; without a source and a target it tells of something that changed no state."""
    uow.append_journal(
        JournalEntry(
            about.ns, about.id, about.kind, op, uow.now, actor, who, event, source, target, sanitize_text(reason), spec
        )
    )


def fence_operation(uow: UnitOfWork, found: Object, why: str) -> None:
    """Void the operation that holds an object's state: whatever it still reports no longer counts.

    While a worker may still be at it, its work row stays in the queue as a ghost, so that the next operation does not
    start before the worker has confirmed that it stopped, or is dead.
    """
    if found.op is None:
        return
    operation = uow.operations[Key(found.ns, found.op)]
    work = uow.work(operation.key)
    uow.record_end(operation, Status.CANCELLED, work, None, why)
    if work is not None:
        fence_work(uow, work)


def fence_work(uow: UnitOfWork, work: WorkItem) -> None:
    """Take work away whose operation has ended; a worker that may still be at it leaves a ghost behind."""
    if work.owner is None:
        uow.remove_work(work)
    else:
        uow.update_work(replace(work, fenced=True))
        uow.changes.fences_running_work = True


def time_text(at: float) -> str:
    """Return a time in UTC, to the second, in the one form in which texts and commands tell times."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
