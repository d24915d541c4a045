"""Recovery (the healer): no operation outlives its deadline, and none waits for a dead worker.

The claims of a dead worker are requeued, and the next worker observes their outcome first. Overdue work of another
party is ended. Other overdue work goes first in its lane: the next worker observes its outcome and ends it. Nothing is
taken from a live worker, which keeps the deadlines of its own claims.

Due timers and overdue work of all kinds share transactions, in which guards and end hooks of plugins run. If one of
these fails, each item gets its own transaction, and the item that failed is postponed, so that it delays no other.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from stateward.engine.finish.completion import time_out
from stateward.engine.kinds import Kinds
from stateward.engine.transitions import REQUEUED_EVENT, journal
from stateward.engine.troubles import journal_trouble
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.lifecycle import HEALER
from stateward.store.errors import StoreError
from stateward.store.port import Tx, TxFunction
from stateward.store.records import OVERDUE_PRIORITY, Key, WorkItem

log = logging.getLogger("stateward.worker")

T = TypeVar("T")
Item = TypeVar("Item")

POSTPONED_MIN_S, POSTPONED_MAX_S = 1.0, 600.0
"""How many seconds a timer or overdue work waits after its guard or end hook has failed: at first, and at most."""


class StoreRunner(Protocol):
    """Runs a transaction function, and again until the store can be reached."""

    async def __call__(self, program: TxFunction[T], /) -> T: ...


class ItemFailed(Exception, Generic[Item]):
    """The code of a kind has failed for the only item of a transaction."""

    def __init__(self, item: Item, error: Exception) -> None:
        super().__init__(item)
        self.item, self.error = item, error

    @property
    def reason(self) -> str:
        """The class of the error: its text may contain a secret, and is only for the log."""
        return f"its guard or end hook failed ({type(self.error).__name__})"


@contextmanager
def naming_failed_item(items: Sequence[Item]) -> Iterator[None]:
    """Raise an unexpected error as `ItemFailed`, if there is only one item that can have caused it."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        if len(items) != 1:
            raise
        raise ItemFailed(items[0], error) from error


async def run_isolated(
    run_tx: StoreRunner,
    program: Callable[[Tx, int], Awaitable[int]],
    postpone: Callable[[Tx, ItemFailed[Item]], Awaitable[None]],
    most: int,
) -> int:
    """Process up to `most` items in one transaction; if one of them fails, each in its own. Returns how many."""
    try:
        return await run_tx(lambda tx: program(tx, most))
    except StoreError:
        raise
    except Exception:
        log.debug("a guard or an end hook has failed: each item is processed alone", exc_info=True)
    for done in range(most):
        if not await _process_one(run_tx, program, postpone):
            return done
    return most


async def _process_one(
    run_tx: StoreRunner,
    program: Callable[[Tx, int], Awaitable[int]],
    postpone: Callable[[Tx, ItemFailed[Item]], Awaitable[None]],
) -> bool:
    """Process one item, or postpone it; returns whether there was one."""
    try:
        return await run_tx(lambda tx: program(tx, 1)) > 0
    except ItemFailed as error:
        failed = error
    await run_tx(lambda tx: postpone(tx, failed))
    return True


async def reap_dead_workers(tx: Tx, by: str) -> int:
    """Requeue the work of workers whose lease expired; returns the count. The calling worker is never reaped."""
    return await release_worker_claims(tx, [worker.id for worker in await tx.dead_workers() if worker.id != by])


async def release_worker_claims(tx: Tx, dead: Sequence[str]) -> int:
    """Requeue the claims of workers that are dead or have stopped, and remove the workers; returns how many claims."""
    held = [work for worker in dead for work in await tx.owned(worker)]
    uow = UnitOfWork(tx)
    await uow.load({Key(work.ns, work.object) for work in held})
    for work in held:
        if work.fenced:
            uow.remove_work(work)
        else:
            record = uow.objects[Key(work.ns, work.object)]
            journal(uow, record, work.op, HEALER, "", REQUEUED_EVENT, reason=f"worker {work.owner} is gone")
            uow.update_work(replace(work, owner=None, observe=True))
    for worker in dead:
        await tx.remove_worker(worker)
    await promote_waiters(uow)
    await uow.apply()
    return len(held)


async def resolve_overdue(run_tx: StoreRunner, kinds: Kinds, worker: str, most: int) -> int:
    """Run `expedite_overdue`, and keep the failure of one end hook from affecting other work; returns how many."""

    async def postpone(tx: Tx, failed: ItemFailed[WorkItem]) -> None:
        await _postpone_deadline(tx, kinds, worker, failed)

    return await run_isolated(run_tx, lambda tx, limit: expedite_overdue(tx, kinds, worker, limit), postpone, most)


async def expedite_overdue(tx: Tx, kinds: Kinds, worker: str, most: int) -> int:
    """End overdue operations of other parties, and let all others go first in their lanes; returns how many.

    The calling worker keeps the deadlines of its own claims, even if its lease looks expired.
    """
    overdue = await tx.overdue(most, kinds.filter, worker)
    if not overdue:
        return 0
    uow = UnitOfWork(tx)
    await uow.load({Key(work.ns, work.object) for work in overdue})
    kinds.pass_over_unknown((uow.objects[Key(work.ns, work.object)], None) for work in overdue)
    with naming_failed_item(overdue):
        await time_out(uow, kinds, [work for work in overdue if work.remote])
    for work in (work for work in overdue if not work.remote):
        if work.fenced:
            uow.remove_work(work)
        else:  # its observation needs a slot of the lane like any attempt
            first = replace(work, owner=None, observe=True, priority=OVERDUE_PRIORITY)
            uow.update_work(replace(first, not_before=min(work.not_before, uow.now)))
    await promote_waiters(uow)
    await uow.apply()
    return len(overdue)


async def _postpone_deadline(tx: Tx, kinds: Kinds, worker: str, failed: ItemFailed[WorkItem]) -> None:
    """Set a later deadline for work whose end hook failed: as long from now as it is overdue. `why` shows the trouble.

    The log has the error once for each operation, as the object does.
    """
    work = failed.item
    if work not in await tx.overdue(1, kinds.filter, worker):
        return  # another process was faster
    uow = UnitOfWork(tx)
    await uow.load([Key(work.ns, work.object)])
    await uow.load_operations([work.key])
    record, operation = uow.objects[Key(work.ns, work.object)], uow.operations[work.key]
    late_s = uow.now - operation.created - operation.within
    uow.update_work(replace(work, deadline=uow.now + min(max(late_s, POSTPONED_MIN_S), POSTPONED_MAX_S)))
    text = f"it is overdue and cannot be ended: {failed.reason}"
    if record.error != text:
        what = (operation.id, operation.action, operation.kind, operation.object)
        log.error("operation %s (%s of %s %s) is overdue and cannot be ended", *what, exc_info=failed.error)
        journal_trouble(uow, record, operation, text, None)
    await uow.apply()
