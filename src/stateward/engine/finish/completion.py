"""Completion: reports about operations are checked against the fencing token, and applied.

A report counts only if its owner and epoch are those of the work item now. Any other report changes nothing, and is
journaled as rejected. A report that counts changes the operation, the object, the queue, the locks and the journal in
one transaction.
"""

from collections.abc import Iterable, Sequence, Set

from msgspec.structs import replace

from stateward.engine.finish.claim_reports import ClaimReport, Ending, Interrupted, NotStarted, Pause, Phase, Requeue
from stateward.engine.kinds import Kinds, run_end_hooks
from stateward.engine.transitions import change_state, fence_work, journal, journal_rejection
from stateward.engine.troubles import journal_trouble
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters, with_age
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
from stateward.store.records import Key, Object, Operation, Status, WorkItem


async def record_claim_reports(tx: Tx, kinds: Kinds, reports: Sequence[ClaimReport]) -> list[bool]:
    """Apply a batch of reports; returns for each whether it counted."""
    uow = UnitOfWork(tx)
    uow.operations.update((report.operation.key, report.operation) for report in reports)
    await uow.load({Key(report.operation.ns, report.operation.object) for report in reports})
    await uow.load_locks_of(report.operation for report in reports)
    others = [report for report in reports if not isinstance(report.outcome, Ending)]
    phases = {report.operation.key for report in others if isinstance(report.outcome, Phase)}
    waiting = {key for report in others if (key := _parent_to_tell(report)) is not None}
    kept = await tx.operations(phases | waiting) if phases or waiting else {}
    waits = {
        report.operation.key
        for report in others
        if isinstance(report.outcome, Pause) and report.outcome.signal is not None
    }
    signals = {(signal.key, signal.name) for signal in await tx.signals(waits)} if waits else frozenset()
    counted = [_record(uow, kinds, report, kept, signals) for report in reports]
    await run_end_hooks(uow, kinds)
    await promote_waiters(uow)
    await uow.apply()
    return counted


def _record(
    uow: UnitOfWork, kinds: Kinds, report: ClaimReport, kept: dict[Key, Operation], signals: Set[tuple[Key, str]]
) -> bool:
    operation, outcome = report.operation, report.outcome
    record = uow.objects[Key(operation.ns, operation.object)]
    work = uow.work(operation.key)
    if work is None or work.owner != report.owner or work.epoch != report.epoch:
        _reject(uow, record, report, "another worker has taken over" if work is not None else "the operation has ended")
        return False
    if report.successor is not None and not work.is_prefetched:  # a prefetched item has no slot to free
        uow.start_prefetched(report.successor)
    if work.fenced:
        if not isinstance(outcome, Interrupted | NotStarted):
            _reject(uow, record, report, "the operation was fenced")
        uow.remove_work(work)
        return False
    if isinstance(outcome, Ending):
        return _end(uow, kinds, record, work, report, outcome)
    if isinstance(outcome, Phase):
        return _enter_phase(uow, kinds[record.kind].lifecycle, record, kept[work.key], report)
    if isinstance(outcome, Requeue):
        requeue(uow, work, outcome, report.steps)
        if outcome.tells_waiter:
            parent = kept.get(key) if (key := _parent_to_tell(report)) is not None else None
            journal_trouble(uow, record, operation, outcome.error or "it was not done", parent)
    elif isinstance(outcome, Pause):
        _pause(uow, operation, work, outcome, has_signal=(work.key, outcome.signal) in signals)
    elif isinstance(outcome, Interrupted):
        uow.update_work(replace(work, owner=None, observe=True))
        if report.steps is not None:
            uow.changes.steps.append((work.key, report.steps))
    else:
        uow.update_work(replace(work, owner=None, attempts=work.attempts - 1))
    return True


def _end(uow: UnitOfWork, kinds: Kinds, record: Object, work: WorkItem, report: ClaimReport, ending: Ending) -> bool:
    """End an operation; it is attempted again if its end depends on a version of the object that has changed."""
    if ending.version not in (None, record.version):
        uow.update_work(replace(work, owner=None, not_before=0.0, attempts=work.attempts - 1))
        if report.steps is not None:
            uow.changes.steps.append((work.key, report.steps))
        return False
    if ending.traceback is not None:
        uow.tracebacks[work.key] = ending.traceback
    if report.steps is not None:
        uow.last_steps[work.key] = report.steps
    given_up = replace(work, owner=None)  # its owner has reported the end, and works on it no more
    complete(uow, kinds[record.kind].lifecycle, record, report.operation, given_up, ending)
    return True


def _parent_to_tell(report: ClaimReport) -> Key | None:
    """Return the parent operation in whose journal a child's error is to stand."""
    tells_parent = isinstance(report.outcome, Requeue) and report.outcome.tells_parent
    return (
        Key(report.operation.ns, report.operation.parent)
        if tells_parent and report.operation.parent is not None
        else None
    )


def _enter_phase(
    uow: UnitOfWork, lifecycle: Lifecycle, record: Object, operation: Operation, report: ClaimReport
) -> bool:
    """Enter the next phase and store its step in one transaction, so that a repeated report finds the step."""
    phase = report.outcome
    assert isinstance(phase, Phase)
    if operation.steps == phase.steps:
        return True
    move = _known_move(lifecycle, record.state, operation, phase)
    if move is None or move.target.state_class is not TRANSITIONAL:
        _reject(uow, record, report, f"{record.state} has no phase that ends with it")
        return False
    change_state(uow, record, move, operation.who, operation.id)
    uow.changes.steps.append((operation.key, phase.steps))
    _start_deadline(uow, operation, move)
    return True


def _start_deadline(uow: UnitOfWork, operation: Operation, move: Move) -> None:
    """Start the deadline of the state that was entered; that of a prefetched operation starts with the operation."""
    work = uow.work(operation.key)
    if work is not None and not work.is_prefetched and move.within is not None:
        uow.update_work(replace(work, deadline=uow.now + move.within))


def requeue(uow: UnitOfWork, work: WorkItem, retry: Requeue, last_steps: str | None = None) -> None:
    """Return work to its lane, to be claimed again later; if it was cancelled meanwhile, at once."""
    not_before = uow.now + (retry.after or 0.0)
    if retry.after is None:  # it waits for a move, which may have come before the worker let go of it
        not_before = 0.0 if work.not_before > 0 or work.deadline is None else work.deadline
    if work.cancelled and not retry.is_undoing:
        not_before = 0.0
    attempts = work.attempts if retry.steps is None else work.attempts - 1
    observe = retry.observe or work.observe
    uow.update_work(replace(work, owner=None, not_before=not_before, observe=observe, attempts=attempts))
    if (steps := retry.steps or retry.attempts or last_steps) is not None:
        uow.changes.steps.append((work.key, steps))


def _pause(uow: UnitOfWork, operation: Operation, work: WorkItem, pause: Pause, *, has_signal: bool) -> None:
    """Return work to its lane until its time; at once, if it was cancelled or its signal came in the meantime.

    Nothing is under way in a pause, so that the next claim need not observe first.
    """
    deadline = uow.now + operation.within if work.deadline is None else work.deadline
    until = 0.0 if work.cancelled or has_signal else deadline if pause.until is None else pause.until
    paused = replace(work, owner=None, not_before=until, deadline=deadline, attempts=work.attempts - 1, observe=False)
    uow.update_work(paused)
    uow.changes.steps.append((work.key, pause.steps))


def complete(
    uow: UnitOfWork, lifecycle: Lifecycle, record: Object, operation: Operation, work: WorkItem | None, ending: Ending
) -> None:
    """End an operation, or a phase of it; the lifecycle's table says which state the object enters."""
    if not operation.hidden:
        move = ending_move(lifecycle, record.state, operation, ending)
        status = ending.status or (Status.CANCELLED if ending.event == CANCELLED else None)
        complete_with(uow, record, operation, work, move, ending.result, ending.error, ending.seen, status)
        return
    status = ending.status or HIDDEN_STATUSES.get(ending.event, Status.FAILED)
    if status is not Status.SUCCEEDED:
        journal(uow, record, operation.id, ending.actor, operation.who, ending.event, reason=ending.error)
    _finish(uow, operation, work, operation.via, status, ending.result, ending.error)


def _started(uow: UnitOfWork, operation: Operation, work: WorkItem | None, state: str) -> float | None:
    """Return the time when the work of an operation first started, which its deadline tells.

    The deadline of a later phase, in another state, tells only when the phase began; then it stays unknown. A column of
    its own would be written with every claim.
    """
    if operation.started is not None or work is None or work.deadline is None or state != operation.via:
        return operation.started
    return min(max(operation.created, work.deadline - operation.within), uow.now)


def complete_with(
    uow: UnitOfWork,
    record: Object,
    operation: Operation,
    work: WorkItem | None,
    move: Move,
    result: str | None,
    error: str | None,
    seen: str | None = None,
    status: Status | None = None,
    who: str = "",
) -> None:
    """End an operation with a move; unless it succeeded, the object gets its previous spec back.

    The operation's status follows from the move, unless it is given: a table may have no row for a cancellation. If
    there is no error, it says who has ended the operation, and by which event.
    """
    is_success = move.meaning in (Meaning.SUCCESS, Meaning.STEP)
    reason = error
    if not error and not is_success:
        is_cancelled = move.meaning is Meaning.CANCEL
        reason = f"{'cancelled' if is_cancelled else move.event} by {who or move.actor}"
        if not is_cancelled:  # a cancellation alone is no fault of the object
            reason = error = with_age(reason, operation, uow.now)
    spec = None if is_success and status is not Status.CANCELLED else operation.previous_spec
    object_error = None if is_success else error
    change_state(uow, record, move, operation.who, operation.id, spec=spec, seen=seen, error=object_error, reason=error)
    if move.target.state_class is not TRANSITIONAL:  # in a transitional state, only a phase has ended
        _finish(uow, operation, work, record.state, status or STATUSES[move.meaning], result, reason)


def advance(
    uow: UnitOfWork,
    record: Object,
    operation: Operation,
    move: Move,
    who: str,
    result: str | None = None,
    error: str | None = None,
    seen: str | None = None,
) -> None:
    """Let another party's move end an operation, or enter its next phase, which starts a new deadline.

    Work that waits for such a move can be claimed again from now on.
    """
    work = uow.work(operation.key)
    if move.target.state_class is not TRANSITIONAL:
        by = "" if move.actor == CLOCK else who  # the name of a timer is for the journal
        complete_with(uow, record, operation, work, move, result, error, seen, who=by)
        return
    change_state(uow, record, move, who, operation.id, seen=seen)
    _start_deadline(uow, operation, move)
    work = uow.work(operation.key)
    if work is not None and (work.owner is not None or work.not_before > uow.now):
        uow.update_work(replace(work, not_before=uow.now))


def _finish(
    uow: UnitOfWork,
    operation: Operation,
    work: WorkItem | None,
    state: str,
    status: Status,
    result: str | None,
    error: str | None,
) -> None:
    uow.record_end(operation, status, work, result, error, _started(uow, operation, work, state))
    if work is not None:
        fence_work(uow, work)


STATUSES = {
    Meaning.SUCCESS: Status.SUCCEEDED,
    Meaning.STEP: Status.SUCCEEDED,
    Meaning.FAILURE: Status.FAILED,
    Meaning.TIMEOUT: Status.FAILED,
    Meaning.CANCEL: Status.CANCELLED,
}
HIDDEN_STATUSES = {SUCCEEDED: Status.SUCCEEDED, CANCELLED: Status.CANCELLED}  # of work that changes no state

FALLBACKS = {
    # event     tried in turn, where the table does not know it in this state
    SUCCEEDED: (Meaning.SUCCESS, Meaning.FAILURE, Meaning.TIMEOUT),
    FAILED: (Meaning.FAILURE, Meaning.TIMEOUT),
    UNKNOWN: (Meaning.TIMEOUT, Meaning.FAILURE),
    TIMED_OUT: (Meaning.TIMEOUT, Meaning.FAILURE),
    CANCELLED: (Meaning.CANCEL, Meaning.FAILURE, Meaning.TIMEOUT),
}


def ending_move(lifecycle: Lifecycle, state: str, operation: Operation, ending: Ending) -> Move:
    """Return the move of an ending; if the table has no row for the event, the closest meaning decides."""
    move = _known_move(lifecycle, state, operation, ending)
    if move is not None:
        return move
    for meaning in FALLBACKS.get(ending.event, (Meaning.FAILURE, Meaning.TIMEOUT)):
        moves = _exits(lifecycle, state, meaning, operation)
        if moves:
            wanted = operation.desired if meaning is Meaning.SUCCESS else operation.failing
            move = min(moves, key=lambda move: move.target.word != wanted)
            # If nobody can say how it ended, a failure that leads there too is better: no deadline has passed.
            failures = _exits(lifecycle, state, Meaning.FAILURE, operation) if ending.event == UNKNOWN else ()
            return next((failure for failure in failures if failure.target == move.target), move)
    raise LookupError(f"{lifecycle.kind} has no way out of {state} for {ending.event!r}")


def _known_move(lifecycle: Lifecycle, state: str, operation: Operation, report: Ending | Phase) -> Move | None:
    """Return the move that the table has for an event, or None: not every table has the worker's own events."""
    if (state, report.event, report.actor) not in lifecycle.moves:
        return None
    verdict = decide(lifecycle, state, report.event, report.actor, report.facts, operation.origin)
    return verdict if isinstance(verdict, Move) else None


def _exits(lifecycle: Lifecycle, state: str, meaning: Meaning, operation: Operation) -> list[Move]:
    return [
        move
        for move in lifecycle.exits(state)
        if move.meaning is meaning and not move.needs and move.origin in (None, operation.origin)
    ]


EVENT_WORDS = {Requeue: "retry", Pause: "pause", Interrupted: "stopped", NotStarted: "untouched"}
"""How the journal names rejected outcomes that are no events of a lifecycle."""


def _reject(uow: UnitOfWork, record: Object, report: ClaimReport, reason: str) -> None:
    event = report.outcome.event if isinstance(report.outcome, Ending | Phase) else EVENT_WORDS[type(report.outcome)]
    journal_rejection(uow, record, report.operation.id, WORKER, report.owner, event, reason)


async def time_out(uow: UnitOfWork, kinds: Kinds, overdue: Iterable[WorkItem]) -> int:
    """End operations of other parties whose deadline has passed; returns how many there were."""
    rows = list(overdue)
    await uow.load({Key(work.ns, work.object) for work in rows})
    await uow.load_operations(work.key for work in rows)
    await uow.load_locks_of(uow.operations.values())
    for work in rows:
        record, operation = uow.objects[Key(work.ns, work.object)], uow.operations[work.key]
        error = with_age("no heartbeat and no report before the deadline", operation, uow.now)
        ending = Ending(TIMED_OUT, CLOCK, error=error)
        complete(uow, kinds[record.kind].lifecycle, record, operation, work, ending)
    await run_end_hooks(uow, kinds)
    return len(rows)
