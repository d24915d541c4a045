"""The handler `heal` of leases: it replaces failed hosts by free ones for the rest of the lease.

Which hosts have failed is decided under the locks of the lease and its hosts, and the commit that decides it also
writes the lease and all hosts concerned. So a lease always lists the hosts that are booked for it, and a host that has
recovered by then is kept. The pool only suggests replacements: a suggested host that cannot be had is left out of the
next search.

If no host is free, the lease continues with the hosts that it has, sets its flags, and tries again after HEAL_RETRY_S.
The flags are reset when no host is missing or lost any more.
"""

from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases import bookings, lease_parts, model
from stateward.domains.leases.allocation import AllocationPlan, host_allocator
from stateward.domains.leases.booking_writer import HostDecision, LockedLease
from stateward.domains.leases.context import LeaseContext
from stateward.domains.leases.errors import HostHeld, HostsTaken
from stateward.domains.leases.lifecycle import HostState, ReservationState
from stateward.domains.leases.timers import heal_timer
from stateward.engine import Job

R = ReservationState

HEAL_RETRY_S = 30.0
"""Seconds before a lease with missing hosts searches again."""

Counts = Mapping[str, int]
"""Numbers of hosts or shares by the id of the reservation."""


class DegradedReservation(Struct, frozen=True):
    """A reservation that may have failed hosts; hosts that failed less than `settle_s` seconds ago may recover."""

    locked: LockedLease
    spec: model.ReservationSpec
    seen: model.ReservationSeen
    demand: bookings.Demand
    settle_s: float

    @property
    def settling_hosts(self) -> dict[str, float]:
        """The hosts that failed a short time ago, and when each of them is replaced unless it recovers."""
        failed = (
            (name, self.locked.hosts[name].object.since)
            for name in self.seen.hosts
            if name in self.locked.hosts and not self.is_up(name)
        )
        return {name: due for name, since in failed if (due := since + self.settle_s) > self.locked.now}

    @property
    def failed_hosts(self) -> list[str]:
        """The hosts of the reservation that must be replaced."""
        return [name for name in self.seen.hosts if not self.is_up(name) and name not in self.settling_hosts]

    @property
    def healthy_hosts(self) -> model.Allocation:
        """The hosts of the reservation that it keeps."""
        failed = self.failed_hosts
        return {name: count for name, count in self.seen.hosts.items() if name not in failed}

    @property
    def lacking(self) -> int:
        """How many hosts, or shares of hosts, must be found in place of failed and missing ones."""
        wanted = max(sum(self.seen.hosts.values()), self.demand.min_count)
        return wanted - sum(self.healthy_hosts.values())

    @property
    def is_active(self) -> bool:
        """Whether the hosts were handed over."""
        return self.seen.status is R.ACTIVE

    def is_up(self, name: str) -> bool:
        """Tell whether a host is up."""
        host = self.locked.hosts.get(name)
        return host is not None and host.object.state == HostState.UP

    def with_replacement(self, new: model.Allocation) -> model.ReservationSeen:
        """Return the reservation with its new hosts and flags."""
        has = self.healthy_hosts | new
        missing = sum(has.values()) < self.demand.min_count
        lost = [name for name in self.seen.lost if not self.is_up(name)]
        lost += self.failed_hosts if self.is_active or missing else []
        return replace(
            self.seen,
            hosts=has,
            missing_resources=missing,
            resources_changed=self.is_active and bool(lost) and (self.seen.resources_changed or bool(new)),
            lost=tuple(dict.fromkeys(lost)),
        )

    def changes(self, new: model.Allocation) -> list[tuple[str, bookings.HostChange]]:
        """Return the changes of hosts that go with a replacement."""
        lease, id_ = self.locked.lease, self.spec.id
        holding = bookings.HandOverHost(model.Holding(lease.object.id, id_, self.demand.share is None))
        changes: list[tuple[str, bookings.HostChange]] = []
        for name, count in new.items():
            changes.append(
                (name, bookings.BookHost(self.demand.booking(lease.object.id, id_, lease.spec.window, count)))
            )
            changes += [(name, holding)] if self.is_active else []
        for name in self.failed_hosts:
            changes += [(name, bookings.ReleaseHost(id_)), (name, bookings.MarkMissed(lease.object.id))]
        return changes


async def heal(ctx: LeaseContext, job: Job) -> None:
    """Replace failed hosts as far as others are free, and record which hosts are up again."""
    lease = model.read_lease(job.claim.object)
    unavailable: set[str] = set()
    decision = await ctx.booking_writer.decide(job, (), partial(decide_replacement, ctx, {}, {}))
    while decision.lacking:
        pool, searched = await ctx.pools.get(job.ns), decision.lacking
        with host_allocator(pool, ctx.resources, lease.object.id, lease.spec) as allocator:
            plan = allocator.allocate_replacements(lease, searched, unavailable)
            names = {name for allocation in plan.values() for name in allocation}
            try:
                decision = await ctx.booking_writer.decide(job, names, partial(decide_replacement, ctx, searched, plan))
            except (HostsTaken, HostHeld) as error:
                unavailable.update(error.hosts if isinstance(error, HostsTaken) else [error.host])
                await ctx.pools.refresh_hosts(job.ns, names)
            finally:
                allocator.drop()  # the decision may have needed fewer hosts


def decide_replacement(ctx: LeaseContext, searched: Counts, plan: AllocationPlan, locked: LockedLease) -> HostDecision:
    """Decide which hosts a lease loses and gets.

    `plan` has hosts that may be free: the result of a search for `searched` hosts. If more are lacking, nothing is
    decided yet.
    """
    key, seen = locked.lease.object.key, locked.lease.seen
    changes: list[tuple[str, bookings.HostChange]] = []
    due: dict[str, float] = {}
    lacking: dict[str, int] = {}
    for spec, mine in locked.lease.reservations():
        demand = ctx.resources[spec.resource_type].demand(spec.details)
        if demand is None or mine.status not in (R.PENDING, R.ACTIVE):
            continue
        degraded = DegradedReservation(locked, spec, mine, demand, ctx.replace_after)
        if degraded.lacking > searched.get(spec.id, 0):
            lacking[spec.id] = degraded.lacking
        new: model.Allocation = {}
        for name, each in plan.get(spec.id, {}).items():
            if (left := degraded.lacking - sum(new.values())) > 0:
                new[name] = min(each, left)
        changes += degraded.changes(new)
        due |= degraded.settling_hosts
        seen = lease_parts.reassign_hosts(seen, spec.id, "heal", degraded.with_replacement(new))
    if any(reservation.missing_resources for reservation in seen.reservations.values()):
        due[""] = locked.now + HEAL_RETRY_S
    timers = [heal_timer(*key, host, at) for host, at in due.items()]
    return HostDecision(seen, changes, timers, {**searched, **lacking} if lacking else {})
