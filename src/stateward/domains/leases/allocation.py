"""Allocation of hosts to a lease, new or updated.

The allocator searches the pool in memory. What it finds is held tentatively, so that concurrent searches of the same
process choose other hosts, until the commit that books the hosts.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from stateward.domains.leases.bookings import Demand, booking_fits
from stateward.domains.leases.errors import NotEnoughHosts, ReservationNotChangeable
from stateward.domains.leases.host_pool import HostPool
from stateward.domains.leases.lifecycle import ReservationState
from stateward.domains.leases.model import Allocation, Lease, LeaseSpec, ReservationSeen, ReservationSpec
from stateward.domains.leases.resources import ResourcePlugins

AllocationPlan = dict[str, Allocation]
"""Hosts by the id of the reservation."""


class HostAllocator:
    """Finds hosts for the reservations of a lease in a pool, and holds them tentatively."""

    def __init__(self, pool: HostPool, resources: ResourcePlugins, lease: str, spec: LeaseSpec) -> None:
        self._pool = pool
        self._resources = resources
        self._lease = lease
        self._spec = spec
        self._tentative: AllocationPlan = {}  # bounded by: the reservations of one lease

    def allocate(self) -> AllocationPlan:
        """Return hosts for a new lease."""
        return {
            reservation.id: self._hold_tentatively(reservation, demand, self._search(reservation, demand))
            for reservation in self._spec.reservations
            if (demand := self._demand(reservation)) is not None
        }

    def allocate_change(self, lease: Lease) -> AllocationPlan:
        """Return hosts for the reservations whose hosts or times an update changes."""
        moved = lease.spec.window != self._spec.window
        before = {reservation.id: reservation for reservation in lease.spec.reservations}
        plan: AllocationPlan = {}
        for reservation in self._spec.reservations:
            demand, seen = self._demand(reservation), lease.seen.reservations[reservation.id]
            concerned = seen.status in (ReservationState.PENDING, ReservationState.ACTIVE)
            if before[reservation.id] != reservation:
                self._check_change(before[reservation.id], reservation, seen)
            if demand is None or not concerned or not (moved or before[reservation.id] != reservation):
                continue
            same = demand == self._demand(before[reservation.id])
            if same and lease.spec.start <= self._spec.start and self._spec.end <= lease.spec.end:
                allocation = seen.hosts  # a shorter time on the same hosts always fits, also if they have failed since
            else:
                allocation = self._search_change(reservation, seen, demand, same=same)
            plan[reservation.id] = self._hold_tentatively(reservation, demand, allocation)
        return plan

    def allocate_replacements(self, lease: Lease, lacking: Mapping[str, int], avoid: Collection[str]) -> AllocationPlan:
        """Return as many further hosts for the reservations as they lack, or as there are."""
        plan: AllocationPlan = {}
        for reservation, seen in lease.reservations():
            demand, count = self._demand(reservation), lacking.get(reservation.id, 0)
            if demand is not None and count > 0:
                wanted = replace(demand, min_count=0, max_count=count, affinity=False)
                booking = demand.booking(self._lease, reservation.id, self._spec.window, 1)
                allocation = self._pool.search(wanted, booking, avoid={*avoid, *seen.hosts}) or {}
                plan[reservation.id] = self._hold_tentatively(reservation, demand, allocation)
        return plan

    def _check_change(self, before: ReservationSpec, after: ReservationSpec, seen: ReservationSeen) -> None:
        """Refuse to shrink or replace resources in use, and to change a reservation that failed or was released."""
        was, wanted = self._demand(before), self._demand(after)
        if seen.status in (ReservationState.ERROR, ReservationState.DELETED):
            raise ReservationNotChangeable(after.id, seen.status, "it cannot be changed any more")
        if seen.status is not ReservationState.ACTIVE or was is None or wanted is None:
            return
        has = sum(seen.hosts.values())
        if wanted.max_count < has:
            raise ReservationNotChangeable(
                after.id, seen.status, f"it has {has} already, and can only grow, not shrink to {wanted.max_count}"
            )
        if was.share is not None and replace(was, min_count=0, max_count=0) != replace(
            wanted, min_count=0, max_count=0
        ):
            raise ReservationNotChangeable(
                after.id, seen.status, "of its instances only the amount can change, and it can only grow"
            )

    def drop(self) -> None:
        """Drop the tentative bookings."""
        for reservation, allocation in self._tentative.items():
            self._pool.remove_tentative(allocation, reservation)

    def _demand(self, spec: ReservationSpec) -> Demand | None:
        return self._resources[spec.resource_type].demand(spec.details)

    def _search(self, spec: ReservationSpec, demand: Demand) -> Allocation:
        booking = demand.booking(self._lease, spec.id, self._spec.window, 1)
        allocation = self._pool.search(demand, booking)
        if allocation is None:
            raise NotEnoughHosts(spec.resource_type, demand.min_count)
        return allocation

    def _search_change(self, spec: ReservationSpec, seen: ReservationSeen, demand: Demand, *, same: bool) -> Allocation:
        """Keep the hosts that still fit and search for the rest; hosts in use are never exchanged."""
        kept: Allocation = {}
        for name, count in seen.hosts.items():
            each = min(count, demand.max_count - sum(kept.values()))
            host = self._pool.get_usable(name, demand)
            if host is None or each <= 0:
                continue
            if booking_fits(
                host.spec, host.seen.bookings, demand.booking(self._lease, spec.id, self._spec.window, each)
            ):
                kept[name] = each
        active = seen.status is ReservationState.ACTIVE
        has = min(sum(seen.hosts.values()), demand.max_count)
        if active and sum(kept.values()) < has:
            raise NotEnoughHosts(spec.resource_type, has, sum(kept.values()))
        goal = has if same else demand.max_count
        lacking = goal - sum(kept.values())
        if lacking <= 0:
            return kept
        wanted = replace(
            demand,
            min_count=max(0, min(demand.min_count, goal) - sum(kept.values())),
            max_count=lacking,
            affinity=False,
        )
        booking = demand.booking(self._lease, spec.id, self._spec.window, 1)
        allocation = self._pool.search(wanted, booking, avoid=kept)
        if allocation is None or (demand.affinity and kept and allocation):
            raise NotEnoughHosts(spec.resource_type, demand.min_count)
        return kept | allocation

    def _hold_tentatively(self, spec: ReservationSpec, demand: Demand, allocation: Allocation) -> Allocation:
        window = self._spec.window
        self._pool.add_tentative(allocation, lambda count: demand.booking(self._lease, spec.id, window, count))
        self._tentative[spec.id] = allocation
        return allocation


@contextmanager
def host_allocator(pool: HostPool, resources: ResourcePlugins, lease: str, spec: LeaseSpec) -> Iterator[HostAllocator]:
    """Yield an allocator; its tentative bookings are dropped if the block fails."""
    allocator = HostAllocator(pool, resources, lease, spec)
    try:
        yield allocator
    except BaseException:
        allocator.drop()
        raise
