"""Eager claims: the worker of the accepting process claims new operations in the transaction that accepts them.

A later claim writes, announces, counts and locks the same rows again, with one more commit. The default lane has no
limit, so nothing has to be counted there, and ready work gets its owner at once.
"""

from collections.abc import Iterator

from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Claim, WorkerRecord, WorkItem


class EagerClaims:
    """The claims of one worker with so many free slots; they count once the transaction is committed."""

    def __init__(self, worker: WorkerRecord, room: int) -> None:
        self._worker = worker
        self._room = max(room, 0)  # negative if the worker stops, or has fewer slots than before
        self.claims: list[Claim] = []
        self.has_unclaimed = False  # some new work is left for the usual claim
        self.claimed_at = 0.0

    def claim_new_work(self, uow: UnitOfWork) -> None:
        """Claim new work of a unit of work, just before it is written, when nothing changes it any more.

        A worker whose last heartbeat was a while ago claims nothing: it may count as dead by now.
        """
        worker, self.claimed_at = self._worker, uow.now
        allowed = uow.tx.is_default_lane_unlimited and uow.now - worker.seen <= worker.lease / 3
        wanted = list(_claimable(uow))[: self._room] if allowed else []
        self.claims = [uow.assign_owner(work, worker.id) for work in wanted]
        self.has_unclaimed = len(self.claims) < len(uow.new_work)


def _claimable(uow: UnitOfWork) -> Iterator[WorkItem]:
    for work in uow.new_work:
        is_unlimited = not work.lane and not work.grp
        has_to_wait = work.remote or work.fenced or work.cancelled or work.children or work.not_before > uow.now
        if is_unlimited and work.ready and not has_to_wait:
            yield work
