"""Ending: what a worker, an agent or the healer reports about an operation, checked against its fencing token.

A report counts only from the owner and the epoch that the operation has now. Any other changes nothing and is journaled
as rejected. Whatever counts changes the operation, the object, the queue, the locks and the journal together.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stateward.engine.change import change_state, journal, void
from stateward.engine.desk import Desk
from stateward.engine.following import follow
from stateward.engine.kinds import Kinds
from stateward.engine.outcomes import Ending, Phase, Report, Retry, Stopped, Untouched
from stateward.engine.promotion import bring_forward
from stateward.engine.troubles import note_trouble
from stateward.lifecycle import (
    CANCELLED,
    CLOCK,
    FAILED,
    SUCCEEDED,
    TIMED_OUT,
    TRANSITIONAL,
    UNKNOWN,
    WORKER,
    Lifecycle,
    Meaning,
    Move,
    decide,
)
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Operation, Status, Work


async def report(tx: Tx, kinds: Kinds, reports: Sequence[Report]) -> list[bool]:
    """Take a batch of reports; tells for each whether it counted."""
    desk = Desk(tx)
    desk.operations.update((one.operation.key, one.operation) for one in reports)
    await desk.load({Key(one.operation.ns, one.operation.object) for one in reports})
    await desk.load_locks(
        {Key(one.operation.ns, one.operation.tree) for one in reports if one.operation.tree is not None}
    )
    phases = {one.operation.key for one in reports if isinstance(one.says, Phase)}
    waiting = {key for one in reports if (key := _parent_to_tell(one)) is not None}
    kept = await tx.operations(phases | waiting) if phases or waiting else {}
    counted = [_take(desk, kinds, one, kept) for one in reports]
    await follow(desk, kinds)
    await bring_forward(desk)
    await desk.apply()
    return counted


def _take(desk: Desk, kinds: Kinds, one: Report, kept: dict[Key, Operation]) -> bool:
    found = desk.objects[Key(one.operation.ns, one.operation.object)]
    work = desk.work(one.operation.key)
    if work is None or work.owner != one.owner or work.epoch != one.epoch:
        _reject(desk, found, one, "another worker has taken over" if work is not None else "the operation has ended")
        return False
    if one.successor is not None and not work.spare:  # who was never counted leaves no place
        desk.begin(one.successor)
    if work.fenced:
        if not isinstance(one.says, Stopped | Untouched):
            _reject(desk, found, one, "the operation was fenced")
        desk.drop(work)
        return False
    if isinstance(one.says, Retry):
        put_back(desk, work, one.says)
        if one.says.told:
            parent = kept.get(key) if (key := _parent_to_tell(one)) is not None else None
            note_trouble(desk, found, one.operation, one.says.error or "it was not done", parent)
    elif isinstance(one.says, Stopped):
        desk.change(replace(work, owner=None, observe=True))
    elif isinstance(one.says, Untouched):
        desk.change(replace(work, owner=None, attempts=work.attempts - 1))
    elif isinstance(one.says, Phase):
        return _advance(desk, kinds[found.kind].lifecycle, found, kept[work.key], one)
    else:
        given_up = replace(work, owner=None)  # whoever says how it ended is no longer at it
        settle(desk, kinds[found.kind].lifecycle, found, one.operation, given_up, one.says)
    return True


def _parent_to_tell(one: Report) -> Key | None:
    """Return the operation that waits for a child's, where it is to be told what keeps the child."""
    told = isinstance(one.says, Retry) and one.says.parent_told
    return Key(one.operation.ns, one.operation.parent) if told and one.operation.parent is not None else None


def _advance(desk: Desk, lifecycle: Lifecycle, found: Object, operation: Operation, one: Report) -> bool:
    """Enter the next phase, together with the note that it was entered: a repeated report finds the note."""
    says = one.says
    assert isinstance(says, Phase)
    if operation.steps == says.steps:
        return True
    move = _known_move(lifecycle, found.state, operation, says)
    if move is None or move.target.state_class is not TRANSITIONAL:
        _reject(desk, found, one, f"{found.state} has no phase that ends with it")
        return False
    change_state(desk, found, move, operation.who, operation.id)
    desk.changes.steps.append((operation.key, says.steps))
    _give_time(desk, operation, move)
    return True


def _give_time(desk: Desk, operation: Operation, move: Move) -> None:
    """Begin the time that the state entered has; that of a spare begins when it does."""
    work = desk.work(operation.key)
    if work is not None and not work.spare and move.within is not None:
        desk.change(replace(work, deadline=desk.now + move.within))


def put_back(desk: Desk, work: Work, retry: Retry) -> None:
    """Return work to its lane, to be claimed again later; what was cancelled meanwhile, at once."""
    later = _until_moved_on(work) if retry.after is None else desk.now + retry.after
    later = 0.0 if work.cancelled else later
    desk.change(replace(work, owner=None, not_before=later, observe=retry.observe or work.observe))


def _until_moved_on(work: Work) -> float:
    """Wait for a move until the deadline; one that came before the worker let go has left its time, and counts once."""
    return 0.0 if work.not_before > 0 or work.deadline is None else work.deadline


def settle(
    desk: Desk, lifecycle: Lifecycle, found: Object, operation: Operation, work: Work | None, ending: Ending
) -> None:
    """End an operation, or a phase of it: the object goes where the table says."""
    if not operation.hidden:
        move = ending_move(lifecycle, found.state, operation, ending)
        status = ending.status or (Status.CANCELLED if ending.event == CANCELLED else None)
        settle_with(desk, found, operation, work, move, ending.result, ending.error, ending.seen, status)
        return
    status = ending.status or _status(ending.event)
    if status is not Status.SUCCEEDED:
        journal(desk, found, operation.id, ending.actor, operation.who, ending.event, reason=ending.error)
    _over(desk, operation, work, status, ending.result, ending.error)


def settle_with(
    desk: Desk,
    found: Object,
    operation: Operation,
    work: Work | None,
    move: Move,
    result: str | None,
    error: str | None,
    seen: str | None = None,
    status: Status | None = None,
) -> None:
    """End an operation with a move; where its work came to nothing, the spec is what it was before.

    The operation's status follows from the move, unless it is given: a table may have no row for what was cancelled.
    """
    good = move.meaning in (Meaning.SUCCESS, Meaning.STEP)
    spec = None if good and status is not Status.CANCELLED else operation.previous_spec
    kept = None if good else error
    change_state(desk, found, move, operation.who, operation.id, spec=spec, seen=seen, error=kept, reason=error)
    if move.target.state_class is not TRANSITIONAL:  # otherwise only a phase has ended
        _over(desk, operation, work, status or STATUSES[move.meaning], result, error)


def advance(
    desk: Desk,
    found: Object,
    operation: Operation,
    move: Move,
    who: str,
    result: str | None = None,
    error: str | None = None,
    seen: str | None = None,
) -> None:
    """Let another party's move end an operation, or bring it further: a sign of life renews the deadline.

    Work that waits for such a move can be claimed again from now on.
    """
    work = desk.work(operation.key)
    if move.target.state_class is not TRANSITIONAL:
        settle_with(desk, found, operation, work, move, result, error, seen)
        return
    change_state(desk, found, move, who, operation.id, seen=seen)
    _give_time(desk, operation, move)
    work = desk.work(operation.key)
    if work is not None and (work.owner is not None or work.not_before > desk.now):
        desk.change(replace(work, not_before=desk.now))


def _over(
    desk: Desk, operation: Operation, work: Work | None, status: Status, result: str | None, error: str | None
) -> None:
    desk.end(operation, status, work, result, error)
    if work is not None:
        void(desk, work)


STATUSES = {
    Meaning.SUCCESS: Status.SUCCEEDED,
    Meaning.STEP: Status.SUCCEEDED,
    Meaning.FAILURE: Status.FAILED,
    Meaning.TIMEOUT: Status.FAILED,
    Meaning.CANCEL: Status.CANCELLED,
}


def _status(event: str) -> Status:
    return {SUCCEEDED: Status.SUCCEEDED, CANCELLED: Status.CANCELLED}.get(event, Status.FAILED)


FALLBACKS = {
    # event     tried in turn, where the table does not know it in this state
    SUCCEEDED: (Meaning.SUCCESS, Meaning.FAILURE, Meaning.TIMEOUT),
    FAILED: (Meaning.FAILURE, Meaning.TIMEOUT),
    UNKNOWN: (Meaning.TIMEOUT, Meaning.FAILURE),
    TIMED_OUT: (Meaning.TIMEOUT, Meaning.FAILURE),
    CANCELLED: (Meaning.CANCEL, Meaning.FAILURE, Meaning.TIMEOUT),
}


def ending_move(lifecycle: Lifecycle, state: str, operation: Operation, ending: Ending) -> Move:
    """Return the move that an ending makes; one that the table does not know counts as what it means."""
    move = _known_move(lifecycle, state, operation, ending)
    if move is not None:
        return move
    for meaning in FALLBACKS.get(ending.event, (Meaning.FAILURE, Meaning.TIMEOUT)):
        found = _exits(lifecycle, state, meaning, operation)
        if found:
            wanted = operation.desired if meaning is Meaning.SUCCESS else operation.failing
            return min(found, key=lambda move: move.target.word != wanted)
    raise LookupError(f"{lifecycle.kind} has no way out of {state} for {ending.event!r}")


def _known_move(lifecycle: Lifecycle, state: str, operation: Operation, says: Ending | Phase) -> Move | None:
    """Return the move that the table has for an event; a worker's own events are not in every table."""
    if (state, says.event, says.actor) not in lifecycle.moves:
        return None
    verdict = decide(lifecycle, state, says.event, says.actor, says.facts, operation.origin)
    return verdict if isinstance(verdict, Move) else None


def _exits(lifecycle: Lifecycle, state: str, meaning: Meaning, operation: Operation) -> list[Move]:
    return [
        move
        for move in lifecycle.exits(state)
        if move.meaning is meaning and not move.needs and move.origin in (None, operation.origin)
    ]


def _reject(desk: Desk, found: Object, one: Report, why: str) -> None:
    said = one.says.event if isinstance(one.says, Ending | Phase) else type(one.says).__name__.lower()
    journal(desk, found, one.operation.id, WORKER, one.owner, f"rejected: {said}", reason=why)


async def time_out(desk: Desk, kinds: Kinds, overdue: Iterable[Work]) -> int:
    """End work of other parties whose deadline has passed; returns how much there was."""
    rows = list(overdue)
    await desk.load({Key(work.ns, work.object) for work in rows})
    await desk.load_operations(work.key for work in rows)
    await desk.load_locks(Key(one.ns, one.tree) for one in desk.operations.values() if one.tree is not None)
    for work in rows:
        found, operation = desk.objects[Key(work.ns, work.object)], desk.operations[work.key]
        ending = Ending(TIMED_OUT, CLOCK, error="no sign of life before the deadline")
        settle(desk, kinds[found.kind].lifecycle, found, operation, work, ending)
    await follow(desk, kinds)
    return len(rows)
