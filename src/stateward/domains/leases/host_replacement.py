"""The handler `heal` of leases: it replaces failed hosts by free ones for the rest of the lease.

If no host is free, the lease goes on with the hosts that it has, sets its flags, and tries again after HEAL_RETRY_S.
The flags are reset when no host is missing or lost any more.
"""

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases import lease_parts
from stateward.domains.leases.bookings import (
    BookHost,
    Demand,
    HandOverHost,
    HostChange,
    MarkMissed,
    ReleaseHost,
    TakeBackHost,
)
from stateward.domains.leases.context import LeaseContext
from stateward.domains.leases.errors import HostHeld, HostsTaken
from stateward.domains.leases.handlers import lease_ending
from stateward.domains.leases.host_pool import HostPool
from stateward.domains.leases.lifecycle import HostState, ReservationState
from stateward.domains.leases.model import (
    Allocation,
    Holding,
    Lease,
    ReservationSeen,
    ReservationSpec,
    read_lease,
    status_from_word,
)
from stateward.domains.leases.timers import heal_timer
from stateward.engine import Ending, Job, Temporary

R = ReservationState

HEAL_RETRY_S = 30.0
"""Seconds before a lease with missing hosts searches again."""


class DegradedReservation(Struct, frozen=True):
    """A reservation that may have failed hosts, with the pool in which replacements are searched."""

    lease: Lease
    spec: ReservationSpec
    seen: ReservationSeen
    demand: Demand
    pool: HostPool

    def is_up(self, name: str) -> bool:
        """Tell whether a host is up."""
        host = self.pool.get(name)
        return host is not None and host.object.state == HostState.UP

    @property
    def failed_hosts(self) -> list[str]:
        """The hosts of the reservation that failed."""
        return [name for name in self.seen.hosts if not self.is_up(name)]

    @property
    def healthy_hosts(self) -> Allocation:
        """The hosts of the reservation that are up."""
        return {name: count for name, count in self.seen.hosts.items() if self.is_up(name)}

    @property
    def is_active(self) -> bool:
        """Whether the hosts were handed over."""
        return self.seen.status is R.ACTIVE


async def heal(ctx: LeaseContext, job: Job) -> Ending:
    """Replace failed hosts as far as others are free, and record which hosts are up again."""
    lease, pool = read_lease(job.claim.object), await ctx.pools.get(job.ns)
    seen = lease.seen
    for spec, mine in lease.reservations():
        demand = ctx.resources[spec.resource_type].demand(spec.details)
        if demand is not None and mine.status in (R.PENDING, R.ACTIVE):
            healed = await _heal_reservation(ctx, job, DegradedReservation(lease, spec, mine, demand, pool))
            seen = lease_parts.reassign_hosts(seen, spec.id, "heal", healed)
    if any(one.missing_resources for one in seen.reservations.values()):
        due = await ctx.engine.store.reader.time() + HEAL_RETRY_S
        await ctx.engine.set_timer(heal_timer(job.ns, job.object, "", due))
    return lease_ending(status_from_word(job.origin), seen)


async def _heal_reservation(ctx: LeaseContext, job: Job, degraded: DegradedReservation) -> ReservationSeen:
    lacking = max(sum(degraded.seen.hosts.values()), degraded.demand.min_count) - sum(degraded.healthy_hosts.values())
    new = _find_replacement(degraded, lacking) if lacking > 0 else {}
    try:
        await ctx.booking_writer.write(job, _replacement_changes(degraded, new))
    except (HostsTaken, HostHeld) as busy:
        await ctx.pools.refresh_hosts(job.ns, new)
        raise Temporary(str(busy), after=0.2) from busy
    return with_replacement(degraded, new)


def with_replacement(degraded: DegradedReservation, new: Allocation) -> ReservationSeen:
    """Return the reservation with its new hosts and flags."""
    has = degraded.healthy_hosts | new
    missing = sum(has.values()) < degraded.demand.min_count
    lost = [name for name in degraded.seen.lost if not degraded.is_up(name)]
    lost += degraded.failed_hosts if degraded.is_active or missing else []
    changed = degraded.is_active and bool(lost) and (degraded.seen.resources_changed or bool(new))
    return replace(
        degraded.seen,
        hosts=has,
        missing_resources=missing,
        resources_changed=changed,
        lost=tuple(dict.fromkeys(lost)),
    )


def _find_replacement(degraded: DegradedReservation, lacking: int) -> Allocation:
    """Return hosts that replace the failed ones; hosts that an earlier attempt has booked already come first."""
    known = sorted(degraded.pool.hosts_of(degraded.lease.object.id) - set(degraded.seen.hosts))
    mine = [name for name in known if degraded.is_up(name) and _is_booked(degraded, name)]
    if mine and degraded.demand.share is None:
        return dict.fromkeys(mine[:lacking], 1)
    booking = degraded.demand.booking(degraded.lease.object.id, degraded.spec.id, degraded.lease.spec.window, 1)
    wanted = replace(degraded.demand, min_count=1, max_count=lacking, affinity=False)
    return degraded.pool.search(wanted, booking, avoid=degraded.seen.hosts) or {}


def _is_booked(degraded: DegradedReservation, name: str) -> bool:
    host = degraded.pool.get(name)
    return host is not None and any(one.reservation == degraded.spec.id for one in host.seen.bookings)


def _replacement_changes(degraded: DegradedReservation, new: Allocation) -> list[tuple[str, HostChange]]:
    lease, spec, demand = degraded.lease, degraded.spec, degraded.demand
    holding = HandOverHost(Holding(lease.object.id, spec.id, demand.share is None))
    changes: list[tuple[str, HostChange]] = []
    for name, count in new.items():
        changes.append((name, BookHost(demand.booking(lease.object.id, spec.id, lease.spec.window, count))))
        changes += [(name, holding)] if degraded.is_active else []
    for name in degraded.failed_hosts:
        changes += [
            (name, TakeBackHost(spec.id)),
            (name, ReleaseHost(spec.id)),
            (name, MarkMissed(lease.object.id, misses=True)),
        ]
    return changes
