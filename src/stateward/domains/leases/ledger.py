"""Writing on the hosts, inside a transaction: who has booked them, and who holds them.

A set of changes is looked at as a whole, on what the hosts say under their locks, and written only if all of it can be
kept. That is what makes double booking impossible, however many search and write at the same time.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases import bookings
from stateward.domains.leases.lifecycle import HOST, HostState
from stateward.domains.leases.model import Booking, Holding, Host, HostSeen, host_key, host_of, written
from stateward.domains.leases.wire_values import short_time
from stateward.engine import Denied
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER
from stateward.store.records import Key


class Taken(Denied):
    """Hosts cannot promise what is wanted: another was faster, or they are out of order."""

    code = "hosts_taken"
    retry = True

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = tuple(hosts)
        super().__init__(self.hosts)

    def __str__(self) -> str:
        return f"not to be had at that time: {', '.join(self.hosts)}"


class Held(Denied):
    """A host cannot be handed over while another reservation holds it."""

    code = "host_held"
    retry = True

    def __init__(self, host: str, holder: Holding) -> None:
        super().__init__(host, holder)
        self.host, self.lease, self.reservation = host, holder.lease, holder.reservation

    def __str__(self) -> str:
        return f"host {self.host} is still held by lease {self.lease}"


class Book(Struct, frozen=True):
    """Promise a host to a reservation."""

    booking: Booking

    def on(self, host: Host) -> HostSeen:
        """Return what the host says then; raises if it cannot."""
        usable = not host.object.removed and host.object.state == HostState.UP and host.spec.reservable
        has = next((one for one in host.seen.bookings if one.reservation == self.booking.reservation), None)
        if has == self.booking:
            return host.seen
        narrower = has is not None and has.start <= self.booking.start and has.end >= self.booking.end
        if not (usable or narrower) or not bookings.fits(host.spec, host.seen.bookings, self.booking):
            raise Taken([host.spec.name])
        return bookings.book(host.seen, self.booking)

    def __str__(self) -> str:
        return f"booked from {short_time(self.booking.start)} to {short_time(self.booking.end)}"


class Release(Struct, frozen=True):
    """Take back what was promised to a reservation."""

    reservation: str

    def on(self, host: Host) -> HostSeen:
        """Return what the host says then."""
        return bookings.release(host.seen, self.reservation)

    def __str__(self) -> str:
        return "released"


class HandOver(Struct, frozen=True):
    """Hand a host over to a reservation."""

    holding: Holding

    def on(self, host: Host) -> HostSeen:
        """Return what the host says then; raises while another holds it."""
        holder = bookings.holder_in_the_way(host.seen, self.holding.reservation, whole=self.holding.whole)
        if holder is not None:
            raise Held(host.spec.name, holder)
        return bookings.hand_over(host.seen, self.holding)

    def __str__(self) -> str:
        return "handed over"


class GiveBack(Struct, frozen=True):
    """Take a host back from a reservation."""

    reservation: str

    def on(self, host: Host) -> HostSeen:
        """Return what the host says then."""
        return bookings.give_back(host.seen, self.reservation)

    def __str__(self) -> str:
        return "given back"


class Miss(Struct, frozen=True):
    """Remember that a lease has lost a host, or forget it."""

    lease: str
    misses: bool

    def on(self, host: Host) -> HostSeen:
        """Return what the host says then."""
        others = tuple(one for one in host.seen.missed if one != self.lease)
        return replace(host.seen, missed=(*others, self.lease) if self.misses else others)

    def __str__(self) -> str:
        return "missed" if self.misses else "missed no more"


Change: TypeAlias = Book | Release | HandOver | GiveBack | Miss
Changes: TypeAlias = Sequence[tuple[str, Change]]
"""Hosts by name, and what is to be done to each, in turn."""


def write(uow: UnitOfWork, ns: str, changes: Changes, op: str | None, lease: str) -> None:
    """Write changes of loaded hosts, all of them or none; a host that is gone gives nothing back."""
    hosts: dict[str, Host | None] = {name: _host(uow, ns, name) for name, _ in changes}
    said: dict[str, list[str]] = {}
    lacking: list[str] = []
    for name, change in changes:
        host = hosts[name]
        if host is None:
            lacking += [name] if isinstance(change, Book | HandOver) else []
            continue
        try:
            seen = change.on(host)
        except Taken:
            lacking.append(name)
            continue
        if seen != host.seen:
            hosts[name] = replace(host, seen=seen)
            said.setdefault(name, []).append(str(change))
    if lacking:
        raise Taken(dict.fromkeys(lacking))
    for name, events in said.items():
        found = hosts[name]
        assert found is not None
        _put(uow, found, ", ".join(events), op, lease)


def _host(uow: UnitOfWork, ns: str, name: str) -> Host | None:
    found = uow.objects.get(host_key(ns, name))
    return None if found is None or found.removed or found.kind != HOST.kind else host_of(found)


def _put(uow: UnitOfWork, host: Host, event: str, op: str | None, lease: str) -> None:
    key: Key = host.object.key
    uow.save_object(key, replace(host.object, seen=written(host.seen), version=uow.next_version(key)))
    journal(uow, host.object, op, CONTROLLER, f"lease {lease}", event)
