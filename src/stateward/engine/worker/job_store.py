"""The store of a job: progress, steps, phases and children that a handler records while it runs.

Each write checks the fencing token of the claim: a worker that has lost an operation cannot write for it any more.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.aio.backoff import GrowingIntervals
from stateward.engine.accept.accept import admit_all
from stateward.engine.finish.claim_reports import ClaimReport, Phase
from stateward.engine.job import ChildOutcome, Job
from stateward.engine.job_steps import CHILDREN, Steps
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Accepted, Request
from stateward.engine.stored_texts import sanitize_text
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.engine.transitions import journal
from stateward.engine.troubles import journal_trouble
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.engine.work_errors import Fenced, WaitingForChildren
from stateward.errors import StatewardError, UnknownName
from stateward.lifecycle import CLOCK, WORKER
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx
from stateward.store.records import Claim, Key, Operation, Progress, Timer, to_json

# Child operations: a step of a composite action that other operations carry out.
#
# One transaction accepts the children, stores the step and requeues the parent. So no child begins twice, whatever
# crashes when, and no worker slot is used for waiting: the parent can be claimed again when the last child has ended.


async def spawn(
    tx: Tx,
    kinds: Kinds,
    owner: str,
    claim: Claim,
    epoch: int,
    step: str,
    requests: Sequence[Request],
    calls: Mapping[str, Any],
) -> tuple[int, dict[str, Any]]:
    """Accept the children of a step; returns how many began, and all finished steps, this one included.

    `calls` are the records of the provider calls that the parent has made so far.
    """
    operation = claim.operation
    uow = UnitOfWork(tx)
    locked = {Key(request.ns, name) for request in requests for name in (request.object, *request.also_locks)}
    await uow.load({Key(operation.ns, operation.object), *locked})
    work = uow.work(operation.key)
    if work is None or work.fenced or work.cancelled or (work.owner, work.epoch) != (owner, epoch):
        raise Fenced(operation.id)  # a cancelled operation begins no children: its next attempt says how it ended
    children = [
        replace(request, op=_child_id(operation.id, step, number), parent=operation.id)
        for number, request in enumerate(requests)
    ]
    verdicts = await admit_all(uow, kinds, children)
    begun = sum(isinstance(verdict, Accepted) and verdict.operation is not None for verdict in verdicts)
    denied = {
        request.object: str(verdict)
        for request, verdict in zip(requests, verdicts, strict=True)
        if isinstance(verdict, StatewardError)
    }
    # A phase may have added a step since the work was claimed.
    stored: dict[str, Any] = msgspec.json.decode((await tx.operations([operation.key]))[operation.key].steps)
    steps = stored | {**calls, step: denied, f"{CHILDREN}{step}": len(requests)}
    uow.changes.steps.append((operation.key, to_json(steps)))
    if begun:
        uow.update_work(replace(work, owner=None, children=begun))
    await promote_waiters(uow)
    await uow.apply()
    return begun, steps


def _child_id(parent: str, step: str, number: int) -> str:
    """Return the operation id of a child, which is the same whenever the step is repeated."""
    return blake2b(f"{parent}/{step}/{number}".encode(), digest_size=16).hexdigest()


class JobStore:
    """Writes for the jobs of one worker."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        worker: str,
        reports: TransactionBatcher[ClaimReport, bool],
        parent_intervals: GrowingIntervals,
    ) -> None:
        self._store, self._kinds, self._worker, self._reports = store, kinds, worker, reports
        self._parent_intervals = parent_intervals

    async def progress(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        """Store a line of progress."""
        await self._store.transact(
            lambda tx: save_job_state(
                tx,
                self._worker,
                job,
                [Progress(job.ns, job.key.id, tx.now, sanitize_text(job.mask_secrets(text)), done, total)],
                job.steps_with_calls,
            )
        )

    async def trouble(self, job: Job, text: str) -> None:
        """Journal an error that keeps a job from making progress."""
        parent = job.claim.operation.parent
        tells_parent = parent is not None and self._parent_intervals.is_due((job.ns, parent))
        await self._store.transact(
            lambda tx: record_trouble(tx, self._worker, job, job.mask_secrets(text), tells_parent=tells_parent)
        )

    async def checkpoint(self, job: Job, steps: Steps, event: str | None = None, reason: str | None = None) -> None:
        """Store the finished steps of a job; with an event, journal it in the same transaction."""
        encoded = to_json(steps)
        if event is None:
            await self._store.transact(lambda tx: save_job_state(tx, self._worker, job, steps=encoded))
        else:
            await self._store.transact(lambda tx: save_event(tx, self._worker, job, encoded, event, reason))

    async def take_signal(self, job: Job, signal: str, key: str, steps: Steps) -> dict[str, Any] | None:
        """Take the oldest signal of a name, and store its payload under a key of the steps; None if there is none."""
        return await self._store.transact(lambda tx: take_signal(tx, self._worker, job, signal, key, steps))

    async def set_timer(self, job: Job, action: str, at: float | None) -> None:
        """Set the timer of an action of the job's object; None removes it."""
        lifecycle = self._kinds.of(job.claim.object).lifecycle
        by_clock = dict.fromkeys(row.event for row in lifecycle.rows if CLOCK in row.actors)
        if action not in by_clock:
            raise UnknownName(f"action of {lifecycle.kind} by the clock", action, by_clock)
        timer = Timer(job.ns, f"{action} of {job.object}", at or 0.0, 0, job.object, action, "[]", "{}")
        changes = Changes(timers_gone=[timer.key]) if at is None else Changes(timers=[timer])
        await self._store.transact(lambda tx: _apply_if_owned(tx, self._worker, job, changes))

    async def children(self, job: Job, step: str, count: int) -> list[ChildOutcome]:
        """Return how the children of a step have ended."""
        # Operations of denied requests do not exist.
        keys = [Key(job.ns, _child_id(job.key.id, step, number)) for number in range(count)]
        operations = await self._store.reader.operations(keys)
        return [_outcome(operations[key]) for key in keys if key in operations]

    async def phase(self, job: Job, phase: Phase) -> None:
        """Report the end of a phase."""
        if not await self._reports.submit(ClaimReport(job.claim.operation, self._worker, job.epoch, phase)):
            raise Fenced(job.key.id)

    async def spawn(self, job: Job, step: str, requests: Sequence[Request]) -> Steps:
        """Start the children of a step; raises `WaitingForChildren` if there are any."""
        begun, steps = await self._store.transact(
            lambda tx: spawn(tx, self._kinds, self._worker, job.claim, job.epoch, step, requests, job.calls)
        )
        if begun:
            raise WaitingForChildren
        return steps


async def record_trouble(tx: Tx, owner: str, job: Job, text: str, *, tells_parent: bool) -> None:
    """Journal an error that keeps a job from making progress, if the worker still owns it."""
    uow = UnitOfWork(tx)
    await uow.load([job.claim.object.key])
    await _require_ownership(tx, owner, job)
    parent = Key(job.ns, job.claim.operation.parent or "")
    waiting = (await tx.operations([parent])).get(parent) if tells_parent else None
    journal_trouble(uow, uow.objects[job.claim.object.key], job.claim.operation, text, waiting)
    if (steps := job.steps_with_calls) is not None:
        uow.changes.steps.append((job.key, steps))
    await uow.apply()


def _outcome(child: Operation) -> ChildOutcome:
    result = None if child.result is None else msgspec.json.decode(child.result)
    return ChildOutcome(child.object, child.action, child.status, result, child.error)


async def save_event(tx: Tx, owner: str, job: Job, steps: str, event: str, reason: str | None) -> None:
    """Store the steps of a job and journal an event, if the worker still owns it."""
    uow = UnitOfWork(tx)
    await uow.load([job.claim.object.key])
    await _require_ownership(tx, owner, job)
    who = job.claim.operation.who
    journal(uow, uow.objects[job.claim.object.key], job.key.id, WORKER, who, event, reason=reason)
    uow.changes.steps.append((job.key, steps))
    await uow.apply()


async def take_signal(tx: Tx, owner: str, job: Job, signal: str, key: str, steps: Steps) -> dict[str, Any] | None:
    """Take a signal and store its payload in one transaction, so that each is taken once.

    A signal is sent under the lock of the operation's object, which is held here too: none is overlooked.
    """
    await tx.objects([job.claim.object.key])
    await _require_ownership(tx, owner, job)
    received = next((stored for stored in await tx.signals([job.key]) if stored.name == signal), None)
    if received is None:
        return None
    taken = {"signal": signal, "payload": msgspec.json.decode(received.payload)}
    await tx.apply(Changes(steps=[(job.key, to_json({**steps, key: taken}))], signals_gone=[received]))
    return taken


async def _require_ownership(tx: Tx, owner: str, job: Job) -> None:
    work = (await tx.work([job.key])).get(job.key)
    if work is None or work.fenced or (work.owner, work.epoch) != (owner, job.epoch):
        raise Fenced(job.key.id)


async def _apply_if_owned(tx: Tx, owner: str, job: Job, changes: Changes) -> None:
    await _require_ownership(tx, owner, job)
    await tx.apply(changes)


async def save_job_state(
    tx: Tx, owner: str, job: Job, progress: Collection[Progress] = (), steps: str | None = None
) -> None:
    """Store progress lines or steps of a job, if the worker still owns it."""
    stored = [] if steps is None else [(job.key, steps)]
    await _apply_if_owned(tx, owner, job, Changes(progress=list(progress), steps=stored))
