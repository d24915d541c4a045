"""Free hands: the worker beside whoever accepts takes what needs nobody's leave, in the same transaction.

Work that is claimed later is written, announced, counted, locked and written again, with a commit more. Where no limit
is set (the default lane) nobody has to count, and work that is ready when it is accepted has its owner from the start.
"""

from collections.abc import Iterator

from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Claim, WorkerRecord, WorkItem


class EagerClaims:
    """A worker with so much room; what it has taken counts once the transaction is committed."""

    def __init__(self, worker: WorkerRecord, room: int) -> None:
        self._worker = worker
        self._room = max(room, 0)  # a worker that stops, or had more slots before, has less than none
        self.claims: list[Claim] = []
        self.has_unclaimed = False  # something new was not taken, and may be claimed in the common way
        self.claimed_at = 0.0

    def claim_new_work(self, uow: UnitOfWork) -> None:
        """Take what is new on a unit of work, just before it is written: by then nothing changes it any more.

        A worker whose last sign of life was a while ago takes nothing so: it may be taken for dead by now.
        """
        worker, self.claimed_at = self._worker, uow.now
        allowed = uow.tx.is_default_lane_unlimited and uow.now - worker.seen <= worker.lease / 3
        wanted = list(_claimable(uow))[: self._room] if allowed else []
        self.claims = [uow.assign_owner(one, worker.id) for one in wanted]
        self.has_unclaimed = len(self.claims) < len(uow.new_work)


def _claimable(uow: UnitOfWork) -> Iterator[WorkItem]:
    for one in uow.new_work:
        unlimited = not one.lane and not one.grp
        waits = one.remote or one.fenced or one.cancelled or one.children or one.not_before > uow.now
        if unlimited and one.ready and not waits:
            yield one
