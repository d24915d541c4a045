"""What is done when a lease is made, starts, ends and is deleted.

Each ends with one report that carries the lease's new status and the statuses of all of its parts together; whether
they go together is looked at here before it is said, and what does not is an error.
"""

from stateward.domains.leases import lease_parts
from stateward.domains.leases.context import Failures, Workshop, told
from stateward.domains.leases.lifecycle import LeaseState, ReservationState
from stateward.domains.leases.model import EventType, LeaseSeen, lease_of, written
from stateward.domains.leases.resources import Task
from stateward.engine import Ending, Job
from stateward.lifecycle import FAILED

L = LeaseState


def ending(status: LeaseState, seen: LeaseSeen, failure: str | None = None) -> Ending:
    """Return the report that a lease's work is over: it is what it was to be, or it is in ERROR."""
    if failure is None:
        return Ending(seen=written(lease_parts.agree(status, seen)))
    return Ending(FAILED, error=failure, seen=written(lease_parts.agree(L.ERROR, seen)))


async def create(_shop: Workshop, _job: Job) -> None:
    """Do nothing: hosts were booked by the commit that accepted the lease."""


async def start(shop: Workshop, job: Job) -> Ending:
    """Hand the resources over."""
    tasks = shop.tasks(job)
    failures = await shop.start(job, tasks)
    seen = lease_of(job.claim.object).seen
    for task in tasks:
        error = failures.get(task.spec.id)
        seen = (
            lease_parts.started(seen, task.spec.id)
            if error is None
            else lease_parts.broken(seen, task.spec.id, str(error))
        )
    if failures:
        return ending(L.ERROR, lease_parts.failed(seen, EventType.START), told(failures))
    return ending(L.ACTIVE, lease_parts.done(seen, EventType.START))


async def end(shop: Workshop, job: Job) -> Ending:
    """Take the resources back."""
    failures, seen = await _taken_back(shop, job)
    if failures:
        return ending(L.ERROR, lease_parts.failed(seen, EventType.END), told(failures))
    seen = lease_parts.done(seen, EventType.END)
    return ending(L.TERMINATED, seen, None if lease_parts.agreeing(L.TERMINATED, seen) else "its start had failed")


async def delete(shop: Workshop, job: Job) -> Ending:
    """Take the resources back, whatever had become of them; what fails here can be asked for again."""
    failures, seen = await _taken_back(shop, job)
    return ending(L.DELETING, seen, told(failures) if failures else None)


async def _taken_back(shop: Workshop, job: Job) -> tuple[Failures, LeaseSeen]:
    tasks = shop.tasks(job, _not_released)
    failures = await shop.end(job, tasks)
    lease = lease_of(job.claim.object)
    over = [one.id for one in lease.spec.reservations if one.id not in failures]
    await shop.release(job, lease, over)
    seen = lease.seen
    for task in tasks:
        error = failures.get(task.spec.id)
        seen = lease_parts.released(seen, task.spec.id) if error is None else _stuck(seen, task, str(error))
    return failures, seen


def _not_released(task: Task) -> bool:
    return task.seen.status is not ReservationState.DELETED


def _stuck(seen: LeaseSeen, task: Task, error: str) -> LeaseSeen:
    """Say that a reservation's resources could not be taken back; one that failed before has failed once more."""
    if task.seen.status is ReservationState.ERROR:
        return lease_parts.with_reservation(seen, task.spec.id, error=error)
    return lease_parts.broken(seen, task.spec.id, error)
