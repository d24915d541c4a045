"""Handlers of leases: create, start, end and delete.

Each handler ends with one report: the lease's new status together with the statuses of all of its parts. The handler
checks the combination before it reports; a combination that the table does not have is an error.
"""

from stateward.domains.leases import lease_parts
from stateward.domains.leases.context import Failures, LeaseContext, describe_failures
from stateward.domains.leases.lifecycle import LeaseState, ReservationState
from stateward.domains.leases.model import EventType, LeaseSeen, read_lease
from stateward.engine import Ending, Job
from stateward.lifecycle import FAILED
from stateward.store.records import to_json

L = LeaseState


def lease_ending(status: LeaseState, seen: LeaseSeen, failure: str | None = None) -> Ending:
    """Return the report that ends an action on a lease: in the given status, or in ERROR with the failure."""
    if failure is None:
        return Ending(seen=to_json(lease_parts.require_valid(status, seen)))
    return Ending(FAILED, error=failure, seen=to_json(lease_parts.require_valid(L.ERROR, seen)))


async def create(_ctx: LeaseContext, _job: Job) -> None:
    """Do nothing: the commit that accepted the lease has booked the hosts."""


async def start(ctx: LeaseContext, job: Job) -> Ending:
    """Hand the resources of all reservations over."""
    tasks = ctx.tasks(job)
    failures = await ctx.start(job, tasks)
    seen = read_lease(job.claim.object).seen
    for task in tasks:
        error = failures.get(task.spec.id)
        seen = (
            lease_parts.start_reservation(seen, task.spec.id)
            if error is None
            else lease_parts.fail_reservation(seen, task.spec.id, str(error))
        )
    if failures:
        return lease_ending(L.ERROR, lease_parts.fail_event(seen, EventType.START), describe_failures(failures))
    return lease_ending(L.ACTIVE, lease_parts.complete_event(seen, EventType.START))


async def end(ctx: LeaseContext, job: Job) -> Ending:
    """Take the resources of all reservations back."""
    failures, seen = await _release_resources(ctx, job)
    if failures:
        return lease_ending(L.ERROR, lease_parts.fail_event(seen, EventType.END), describe_failures(failures))
    seen = lease_parts.complete_event(seen, EventType.END)
    return lease_ending(
        L.TERMINATED, seen, None if lease_parts.is_valid(L.TERMINATED, seen) else "its start had failed"
    )


async def delete(ctx: LeaseContext, job: Job) -> Ending:
    """Take the resources back, whatever the status was before; a delete that fails can be repeated."""
    failures, seen = await _release_resources(ctx, job)
    return lease_ending(L.DELETING, seen, describe_failures(failures) if failures else None)


async def _release_resources(ctx: LeaseContext, job: Job) -> tuple[Failures, LeaseSeen]:
    tasks = ctx.tasks(job, lambda task: task.seen.status is not ReservationState.DELETED)
    failures = await ctx.end(job, tasks)
    lease = read_lease(job.claim.object)
    over = [reservation.id for reservation in lease.spec.reservations if reservation.id not in failures]
    await ctx.release(job, lease, over)
    seen = lease.seen
    for task in tasks:
        error = failures.get(task.spec.id)
        if error is None:
            seen = lease_parts.release_reservation(seen, task.spec.id)
        elif task.seen.status is ReservationState.ERROR:  # only its error text changes
            seen = lease_parts.update_reservation(seen, task.spec.id, error=str(error))
        else:
            seen = lease_parts.fail_reservation(seen, task.spec.id, str(error))
    return failures, seen
