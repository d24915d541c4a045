"""Updates of leases: the guard books the new hosts, the handler hands them over, and the end switches to them.

The commit that ends an update switches the lease to its new hosts and releases the others. An update that fails, or
runs out of time, releases the new hosts in that commit instead, and books the hosts as they were before.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.domains.leases import lease_parts, model
from stateward.domains.leases.booking_writer import write_host_changes
from stateward.domains.leases.bookings import HandOverHost, HostChange, ReleaseHost, book_hosts, release_proposed
from stateward.domains.leases.context import MAX_ATTEMPTS, LeaseContext
from stateward.domains.leases.errors import HostHeld, HostsTaken
from stateward.domains.leases.lifecycle import ReservationState
from stateward.domains.leases.resources import ResourcePlugins
from stateward.engine import Job, Permanent, Temporary
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import UnknownName
from stateward.store.records import Operation

R = ReservationState


async def update(ctx: LeaseContext, job: Job) -> None:
    """Hand over the hosts that were booked for the update."""
    lease = model.read_lease(job.claim.object)
    changes = [change for spec, seen in lease.reservations() for change in _hand_over(ctx.resources, lease, spec, seen)]
    try:
        await ctx.booking_writer.write(job, changes)
    except HostHeld as held:
        raise (Temporary if job.attempt < MAX_ATTEMPTS else Permanent)(str(held)) from held


def _hand_over(
    resources: ResourcePlugins, lease: model.Lease, spec: model.ReservationSpec, seen: model.ReservationSeen
) -> Iterable[tuple[str, HostChange]]:
    demand = resources[spec.resource_type].demand(spec.details)
    if seen.status is R.ACTIVE and demand is not None:
        holding = model.Holding(lease.object.id, spec.id, demand.share is None)
        yield from ((name, HandOverHost(holding)) for name in seen.proposed or ())


async def end_update(
    uow: UnitOfWork, resources: ResourcePlugins, lease: model.Lease, operation: Operation, *, succeeded: bool
) -> model.LeaseSeen:
    """Switch a lease to the hosts that an update has booked, or release them if it did not succeed."""
    changing = [(spec, seen) for spec, seen in lease.reservations() if seen.proposed is not None]
    ns, parts = lease.object.ns, lease.seen
    await uow.load({model.host_key(ns, name) for _, seen in changing for name in seen.booked})
    for spec, seen in changing:
        if succeeded:
            gone = [(name, ReleaseHost(spec.id)) for name in seen.hosts if name not in (seen.proposed or ())]
            write_host_changes(uow, ns, gone, operation.id, lease.object.id)
            demand, hosts = resources[spec.resource_type].demand(spec.details), seen.proposed or {}
            missing = demand is not None and sum(hosts.values()) < demand.min_count
            updated = replace(
                seen,
                hosts=hosts,
                proposed=None,
                missing_resources=missing,
                resources_changed=False,
                lost=seen.lost if missing else (),
            )
            parts = lease_parts.reassign_hosts(parts, spec.id, "update", updated)
        else:
            _roll_back(uow, resources, lease, spec, seen, operation)
            parts = lease_parts.update_reservation(parts, spec.id, proposed=None)
    return parts


def _roll_back(
    uow: UnitOfWork,
    resources: ResourcePlugins,
    lease: model.Lease,
    spec: model.ReservationSpec,
    seen: model.ReservationSeen,
    operation: Operation,
) -> None:
    """Release the hosts of an update, and book each former host as it was; one that was taken keeps its new booking.

    The lease is in ERROR: `recover` brings it back only if it can book all of its hosts.
    """
    ns, of = lease.object.ns, lease.object.id
    write_host_changes(uow, ns, release_proposed(spec.id, seen), operation.id, of)
    try:
        demand = resources[spec.resource_type].demand(spec.details)
    except (Temporary, UnknownName):  # the type of resource cannot be used in the process that ends the update
        return
    for change in book_hosts(lease, spec.id, seen, demand) if demand is not None else ():
        try:
            write_host_changes(uow, ns, [change], operation.id, of)
        except HostsTaken:
            continue
