"""Changing an object's state, and voiding the work that held it: what every program is made of."""

from msgspec.structs import replace

from stateward.engine.desk import Desk
from stateward.engine.texts import told
from stateward.lifecycle import TRANSITIONAL, Move
from stateward.store.records import Key, Line, Object, Status, Work


def change_state(
    desk: Desk,
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
        since=desk.now,
        version=desk.next_version(key),
        op=op if holds else kept,
        spec=found.spec if spec is None else spec,
        generation=found.generation if generation is None else generation,
        error=told(error),
        removed=move.target.is_absent,
        seen=found.seen if seen is None else seen,
    )
    desk.put(key, changed)
    renewed = spec if spec is not None and spec != found.spec else None
    journal(desk, found, op, move.actor, who, move.event, found.state, changed.state, reason or error, renewed)
    return changed


def journal(
    desk: Desk,
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
    desk.write(
        Line(about.ns, about.id, about.kind, op, desk.now, actor, who, event, source, target, told(reason), spec)
    )


def fence(desk: Desk, found: Object, why: str) -> None:
    """Void the operation that holds an object's state: whatever it still reports no longer counts.

    While a worker may still be at it, its work row stays in the queue as a ghost, so that the next operation does not
    start before the worker has confirmed that it stopped, or is dead.
    """
    if found.op is None:
        return
    operation = desk.operations[Key(found.ns, found.op)]
    work = desk.work(operation.key)
    desk.end(operation, Status.CANCELLED, work, None, why)
    if work is not None:
        void(desk, work)


def void(desk: Desk, work: Work) -> None:
    """Take work away whose operation has ended; a worker that may still be at it leaves a ghost behind."""
    if work.owner is None:
        desk.drop(work)
    else:
        desk.change(replace(work, fenced=True))
        desk.changes.fences = True
