"""What is done when a host of a lease has failed, or has come back: another takes its place for the rest of the time.

Where none is free the lease goes on with what it has, says so by its flags, and looks again from time to time. All
flags are reset when nothing of it is broken any more.
"""

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases import lease_parts
from stateward.domains.leases.bookings import Book, Change, Demand, GiveBack, HandOver, Miss, Release
from stateward.domains.leases.context import Workshop
from stateward.domains.leases.errors import Held, Taken
from stateward.domains.leases.handlers import ending
from stateward.domains.leases.host_pool import Pool
from stateward.domains.leases.lifecycle import HostState, ReservationState
from stateward.domains.leases.model import (
    Allocation,
    Holding,
    Lease,
    ReservationSeen,
    ReservationSpec,
    lease_of,
    status_named,
)
from stateward.domains.leases.timers import heal_at
from stateward.engine import Ending, Job, Temporary

R = ReservationState

AGAIN = 30.0
"""How many seconds pass before a lease that lacks something looks for it again."""


class Patient(Struct, frozen=True):
    """A reservation that is looked after."""

    lease: Lease
    spec: ReservationSpec
    seen: ReservationSeen
    demand: Demand
    pool: Pool

    def well(self, name: str) -> bool:
        """Tell whether a host is in order."""
        host = self.pool.get(name)
        return host is not None and host.object.state == HostState.UP

    @property
    def bad(self) -> list[str]:
        """The hosts that failed."""
        return [name for name in self.seen.hosts if not self.well(name)]

    @property
    def good(self) -> Allocation:
        """The hosts that did not."""
        return {name: count for name, count in self.seen.hosts.items() if self.well(name)}

    @property
    def active(self) -> bool:
        """Whether its hosts were handed over."""
        return self.seen.status is R.ACTIVE


async def heal(shop: Workshop, job: Job) -> Ending:
    """Replace hosts that failed, as far as others are free; take note of those that are back."""
    lease, pool = lease_of(job.claim.object), await shop.pools.of(job.ns)
    seen = lease.seen
    for spec, mine in lease.reservations():
        demand = shop.resources[spec.resource_type].demand(spec.details)
        if demand is not None and mine.status in (R.PENDING, R.ACTIVE):
            healed = await _healed(shop, job, Patient(lease, spec, mine, demand, pool))
            seen = lease_parts.rehoused(seen, spec.id, "heal", healed)
    if any(one.missing_resources for one in seen.reservations.values()):
        due = await shop.engine.store.reader.time() + AGAIN
        await shop.engine.set_timer(heal_at(job.ns, job.object, "", due))
    return ending(status_named(job.origin), seen)


async def _healed(shop: Workshop, job: Job, patient: Patient) -> ReservationSeen:
    lacking = max(sum(patient.seen.hosts.values()), patient.demand.least) - sum(patient.good.values())
    new = _replacement(patient, lacking) if lacking > 0 else {}
    try:
        await shop.books.change(job, _changes(patient, new))
    except (Taken, Held) as busy:
        await shop.pools.look_again(job.ns, new)
        raise Temporary(str(busy), after=0.2) from busy
    return healed(patient, new)


def healed(patient: Patient, new: Allocation) -> ReservationSeen:
    """Return what a reservation is when hosts were replaced."""
    has = patient.good | new
    missing = sum(has.values()) < patient.demand.least
    lost = [name for name in patient.seen.lost if not patient.well(name)]
    lost += patient.bad if patient.active or missing else []
    changed = patient.active and bool(lost) and (patient.seen.resources_changed or bool(new))
    return replace(
        patient.seen,
        hosts=has,
        missing_resources=missing,
        resources_changed=changed,
        lost=tuple(dict.fromkeys(lost)),
    )


def _replacement(patient: Patient, lacking: int) -> Allocation:
    """Return hosts in the place of those that failed: those that an earlier attempt has booked already come first."""
    known = sorted(patient.pool.hosts_of(patient.lease.object.id) - set(patient.seen.hosts))
    mine = [name for name in known if patient.well(name) and _promised(patient, name)]
    if mine and patient.demand.share is None:
        return dict.fromkeys(mine[:lacking], 1)
    booking = patient.demand.booking(patient.lease.object.id, patient.spec.id, patient.lease.spec.window, 1)
    wanted = replace(patient.demand, least=1, most=lacking, together=False)
    return patient.pool.search(wanted, booking, avoid=patient.seen.hosts) or {}


def _promised(patient: Patient, name: str) -> bool:
    host = patient.pool.get(name)
    return host is not None and any(one.reservation == patient.spec.id for one in host.seen.bookings)


def _changes(patient: Patient, new: Allocation) -> list[tuple[str, Change]]:
    lease, spec, demand = patient.lease, patient.spec, patient.demand
    holding = HandOver(Holding(lease.object.id, spec.id, demand.share is None))
    changes: list[tuple[str, Change]] = []
    for name, count in new.items():
        changes.append((name, Book(demand.booking(lease.object.id, spec.id, lease.spec.window, count))))
        changes += [(name, holding)] if patient.active else []
    for name in patient.bad:
        changes += [(name, GiveBack(spec.id)), (name, Release(spec.id)), (name, Miss(lease.object.id, misses=True))]
    return changes
