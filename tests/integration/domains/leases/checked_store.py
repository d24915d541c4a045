"""A store that checks every lease and every host that is written, in the transaction that writes it."""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any, TypeVar, cast

from stateward.domains.leases.bookings import booking_fits
from stateward.domains.leases.combination import violations
from stateward.domains.leases.lifecycle import HOST, LEASE, LeaseState, ReservationState
from stateward.domains.leases.model import (
    Booking,
    EventType,
    Lease,
    LeaseHost,
    ReservationSeen,
    ReservationSpec,
    read_host,
    read_lease,
    status_of,
)
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx, TxFunction
from stateward.store.records import Object

T = TypeVar("T")


class Forbidden(AssertionError):
    """A record that breaks an invariant is about to be written."""


def check(found: Object) -> None:
    """Raise if an object breaks an invariant."""
    if found.kind == LEASE.kind and not found.removed:
        seen = read_lease(found).seen
        statuses = [one.status for one in seen.reservations.values()]
        events = seen.events[EventType.START], seen.events[EventType.END]
        wrong = violations(status_of(found), statuses, *events)
        if wrong:
            raise Forbidden(f"{found.id}: {'; '.join(map(str, wrong))}")
    if found.kind == HOST.kind:
        check_host(read_host(found))


def check_host(host: LeaseHost) -> None:
    """Raise if a host is booked twice, or held by two reservations."""
    bookings, held = host.seen.bookings, host.seen.held
    for one in bookings:
        if not booking_fits(host.spec, bookings, one):
            raise Forbidden(f"{host.spec.name} cannot keep {one} with {bookings}")
    for first, second in combinations(held, 2):
        if first.reservation == second.reservation or first.whole or second.whole:
            raise Forbidden(f"{host.spec.name} is held by {first} and {second}")


def check_bookings(objects: Iterable[Object]) -> None:
    """Raise if the hosts of leases, the bookings and the holdings do not agree; `objects` are all of a namespace.

    A lease at rest has exactly the hosts that are booked for it, and an active one holds them all. While an operation
    runs, or after one has failed, hosts may lack bookings or holdings, but no host has any that its lease doesn't list.
    """
    found = [one for one in objects if not one.removed]
    hosts = {host.spec.name: host for one in found if one.kind == HOST.kind for host in [read_host(one)]}
    leases = {one.id: read_lease(one) for one in found if one.kind == LEASE.kind and one.seen != "{}"}
    booked: dict[str, dict[str, Booking]] = {}
    held: dict[str, set[str]] = {}
    owners: dict[str, str] = {}
    for name, host in hosts.items():
        for booking in host.seen.bookings:
            booked.setdefault(booking.reservation, {})[name] = booking
            owners[booking.reservation] = booking.lease
        for holding in host.seen.held:
            held.setdefault(holding.reservation, set()).add(name)
            owners[holding.reservation] = holding.lease
    for id_, owner in owners.items():
        if owner not in leases or id_ not in leases[owner].seen.reservations:
            raise Forbidden(f"hosts are booked or held for reservation {id_} of lease {owner}, which does not exist")
    for lease in leases.values():
        for spec, mine in lease.reservations():
            _check_reservation(lease, spec, mine, booked.get(spec.id, {}), held.get(spec.id, set()))


def _check_reservation(
    lease: Lease, spec: ReservationSpec, mine: ReservationSeen, booked: dict[str, Booking], held: set[str]
) -> None:
    who = f"{lease.object.id} in {lease.object.state}: reservation {spec.id} ({mine.status}) has {dict(mine.hosts)}"
    if not (booked.keys() | held) <= mine.booked:
        raise Forbidden(f"{who}, but {sorted(booked)} are booked and {sorted(held)} held")
    status = status_of(lease.object)
    if status in (LeaseState.PENDING, LeaseState.ACTIVE, LeaseState.TERMINATED):
        if booked.keys() != mine.hosts.keys() or mine.proposed is not None:
            raise Forbidden(f"{who} and proposed {mine.proposed}, but {sorted(booked)} are booked")
        if held != (mine.hosts.keys() if mine.status is ReservationState.ACTIVE else set()):
            raise Forbidden(f"{who}, but {sorted(held)} are held")
        wrong = [one for one in booked.values() if (one.start, one.end) != (lease.spec.start, lease.spec.end)]
        if wrong:
            raise Forbidden(f"{who} from {lease.spec.start} to {lease.spec.end}, but the bookings are {wrong}")


class _CheckedTx:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def apply(self, changes: Changes) -> None:
        for found in changes.objects:
            check(found)
        await self._tx.apply(changes)


class CheckedStore:
    """A store that refuses records that break an invariant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transact(self, program: TxFunction[T]) -> T:
        async def checked(tx: Tx) -> T:
            return await program(cast("Tx", _CheckedTx(tx)))

        return await self._store.transact(checked)

    def subscribe(self, listener: Callable[..., None]) -> Callable[[], None]:
        return self._store.subscribe(listener)
