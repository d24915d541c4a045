"""A store that checks every lease and every host that is written, in the transaction that writes it."""

from collections.abc import Callable
from itertools import combinations
from typing import Any, TypeVar, cast

from stateward.domains.leases.bookings import booking_fits
from stateward.domains.leases.combination import violations
from stateward.domains.leases.lifecycle import HOST, LEASE
from stateward.domains.leases.model import EventType, LeaseHost, read_host, read_lease, status_of
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
            raise Forbidden(f"{host.spec.name} cannot keep {one} beside {bookings}")
    for first, second in combinations(held, 2):
        if first.reservation == second.reservation or first.whole or second.whole:
            raise Forbidden(f"{host.spec.name} is held by {first} and {second}")


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
