"""The handler of an update of a lease: it switches to the hosts that were booked for the update."""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.domains.leases import lease_parts
from stateward.domains.leases.bookings import BookHost, HandOverHost, HostChange, ReleaseHost
from stateward.domains.leases.context import MAX_ATTEMPTS, LeaseContext
from stateward.domains.leases.errors import HostHeld, HostsTaken
from stateward.domains.leases.handlers import lease_ending
from stateward.domains.leases.lifecycle import ReservationState
from stateward.domains.leases.model import (
    Holding,
    Lease,
    LeaseSpec,
    ReservationSeen,
    ReservationSpec,
    read_lease,
    read_lease_spec,
    status_from_word,
)
from stateward.engine import Ending, Job, Temporary

R = ReservationState


async def update(ctx: LeaseContext, job: Job) -> Ending:
    """Switch to the hosts that were booked for the update, and release the others."""
    lease = read_lease(job.claim.object)
    changing = [(spec, seen) for spec, seen in lease.reservations() if seen.proposed is not None]
    try:
        await ctx.booking_writer.write(
            job, [one for spec, seen in changing for one in _switch_changes(ctx, lease, spec, seen)]
        )
    except HostHeld as held:
        if job.attempt < MAX_ATTEMPTS:
            raise Temporary(str(held)) from held
        return await _roll_back(ctx, job, lease, str(held))
    seen = lease.seen
    for spec, mine in changing:
        seen = lease_parts.reassign_hosts(seen, spec.id, "update", _updated_reservation(ctx, spec, mine))
    return lease_ending(status_from_word(job.origin), seen)


def _switch_changes(
    ctx: LeaseContext, lease: Lease, spec: ReservationSpec, seen: ReservationSeen
) -> Iterable[tuple[str, HostChange]]:
    new, demand = seen.proposed or {}, ctx.resources[spec.resource_type].demand(spec.details)
    yield from ((name, ReleaseHost(spec.id)) for name in seen.hosts if name not in new)
    if seen.status is R.ACTIVE and demand is not None:
        holding = Holding(lease.object.id, spec.id, demand.share is None)
        yield from ((name, HandOverHost(holding)) for name in new)


def _updated_reservation(ctx: LeaseContext, spec: ReservationSpec, seen: ReservationSeen) -> ReservationSeen:
    """Return a reservation after the update; the record of lost hosts is reset unless hosts are still missing."""
    demand, hosts = ctx.resources[spec.resource_type].demand(spec.details), seen.proposed or {}
    missing = demand is not None and sum(hosts.values()) < demand.min_count
    return replace(
        seen,
        hosts=hosts,
        proposed=None,
        missing_resources=missing,
        resources_changed=False,
        lost=seen.lost if missing else (),
    )


async def _roll_back(ctx: LeaseContext, job: Job, lease: Lease, why: str) -> Ending:
    """Roll the update back: book the hosts as they were before, if they are still free."""
    former = job.claim.operation.previous_spec
    spec = lease.spec if former is None else read_lease_spec(former)
    changes = [one for mine in spec.reservations for one in _rollback_changes(ctx, lease, spec, mine)]
    try:
        await ctx.booking_writer.write(job, changes)
    except HostsTaken as taken:
        why = f"{why}; {taken}"
    seen = lease.seen
    for mine in spec.reservations:
        seen = lease_parts.update_reservation(seen, mine.id, proposed=None)
    return lease_ending(status_from_word(job.origin), seen, why)


def _rollback_changes(
    ctx: LeaseContext, lease: Lease, spec: LeaseSpec, mine: ReservationSpec
) -> Iterable[tuple[str, HostChange]]:
    seen, demand = lease.seen.reservations[mine.id], ctx.resources[mine.resource_type].demand(mine.details)
    if demand is None or seen.proposed is None:
        return
    yield from ((name, ReleaseHost(mine.id)) for name in seen.proposed if name not in seen.hosts)
    for name, count in seen.hosts.items():
        yield name, BookHost(demand.booking(lease.object.id, mine.id, spec.window, count))
