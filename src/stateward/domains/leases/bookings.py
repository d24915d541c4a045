"""Bookings of hosts: demands, the check for double booking, and the changes that a lease makes to a host. Pure.

A booking promises a host, or a share of it, to a reservation for a time. A holding says that the host was handed over
to the reservation. Two bookings of a host never exceed its size at any moment, cleaning times included.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases import model
from stateward.domains.leases.errors import HostHeld, HostsTaken
from stateward.domains.leases.lifecycle import HostState
from stateward.domains.leases.wire_values import format_minute


class Demand(Struct, frozen=True):
    """A number of hosts, or of shares of hosts, from `min_count` to `max_count`.

    With `anti_affinity` no two shares may be on one host, with `affinity` all shares must be.
    """

    min_count: int
    max_count: int
    share: model.Share | None = None
    properties: tuple[str, ...] = ()
    anti_affinity: bool = False
    affinity: bool = False

    def booking(self, lease: str, reservation: str, window: model.LeaseWindow, count: int) -> model.Booking:
        """Return the booking that this demand asks of one host."""
        share = None if self.share is None else self.share.times(count)
        return model.Booking(lease, reservation, window.start, window.end, share)


class OccupiedSpan(NamedTuple):
    """A span of time in which a host is booked, as a whole or in part."""

    start: float
    end: float
    whole: bool


def occupied_spans(spec: model.HostSpec, bookings: Iterable[model.Booking]) -> Iterator[OccupiedSpan]:
    """Return the spans of time that are blocked for others: each booking with the cleaning time before and after it."""
    return (
        OccupiedSpan(booking.start - spec.cleaning, booking.until + spec.cleaning, booking.share is None)
        for booking in bookings
    )


def booking_fits(spec: model.HostSpec, bookings: Iterable[model.Booking], wanted: model.Booking) -> bool:
    """Tell whether a booking fits beside the others; an earlier booking of the same reservation does not count."""
    other = [
        booking
        for booking in bookings
        if booking.reservation != wanted.reservation
        and booking.start < wanted.until + spec.cleaning
        and wanted.start < booking.until + spec.cleaning
    ]
    if wanted.share is None:
        return not other
    if any(booking.share is None for booking in other):
        return False
    return all(_load(spec, other, at).plus(wanted.share).within(spec.size) for at in _peak_candidates(other, wanted))


def _peak_candidates(others: Iterable[model.Booking], wanted: model.Booking) -> Iterator[float]:
    """Return the moments at which the load may be highest: the start of each booking."""
    yield wanted.start
    yield from (booking.start for booking in others if booking.start > wanted.start)


def _load(spec: model.HostSpec, bookings: Iterable[model.Booking], at: float) -> model.Share:
    load = model.Share()
    for booking in bookings:
        if booking.share is not None and booking.start <= at < booking.until + spec.cleaning:
            load = load.plus(booking.share)
    return load


def add_booking(seen: model.HostSeen, wanted: model.Booking) -> model.HostSeen:
    """Add a booking in the order of the starts; it replaces the earlier booking of its reservation."""
    others = [booking for booking in seen.bookings if booking.reservation != wanted.reservation]
    return replace(seen, bookings=tuple(sorted([*others, wanted], key=lambda booking: (booking.start, booking.end))))


def remove_booking(seen: model.HostSeen, reservation: str) -> model.HostSeen:
    """Remove the booking and the holding of a reservation."""
    kept = tuple(booking for booking in seen.bookings if booking.reservation != reservation)
    return replace(remove_holding(seen, reservation), bookings=kept)


def blocking_holder(seen: model.HostSeen, reservation: str, *, whole: bool) -> model.Holding | None:
    """Return the holding that keeps a host from being handed over to a reservation, if there is one."""
    others = (holding for holding in seen.held if holding.reservation != reservation)
    return next((holding for holding in others if whole or holding.whole), None)


def add_holding(seen: model.HostSeen, holding: model.Holding) -> model.HostSeen:
    """Add a holding; it replaces the earlier holding of its reservation."""
    return replace(seen, held=(*remove_holding(seen, holding.reservation).held, holding))


def remove_holding(seen: model.HostSeen, reservation: str) -> model.HostSeen:
    """Remove the holding of a reservation."""
    return replace(seen, held=tuple(holding for holding in seen.held if holding.reservation != reservation))


def earlier_bookings(seen: model.HostSeen, wanted: model.Booking) -> list[model.Booking]:
    """Return the bookings of other leases that should have ended before this one starts, and are still there."""
    others = (booking for booking in seen.bookings if booking.lease != wanted.lease)
    return [
        booking
        for booking in others
        if booking.start < wanted.start and (booking.share is None or wanted.share is None)
    ]


class BookHost(Struct, frozen=True):
    """Book a host for a reservation."""

    booking: model.Booking

    def apply_to(self, host: model.LeaseHost) -> model.HostSeen:
        """Return the host's record with the booking; raises HostsTaken if the booking does not fit."""
        usable = not host.object.removed and host.object.state == HostState.UP and host.spec.reservable
        has = next((booking for booking in host.seen.bookings if booking.reservation == self.booking.reservation), None)
        if has == self.booking:
            return host.seen
        narrower = has is not None and has.start <= self.booking.start and has.end >= self.booking.end
        if not (usable or narrower) or not booking_fits(host.spec, host.seen.bookings, self.booking):
            raise HostsTaken((host.spec.name,))
        return add_booking(host.seen, self.booking)

    def __str__(self) -> str:
        return f"booked from {format_minute(self.booking.start)} to {format_minute(self.booking.end)}"


class ReleaseHost(Struct, frozen=True):
    """Remove the booking and the holding of a reservation from a host."""

    reservation: str

    def apply_to(self, host: model.LeaseHost) -> model.HostSeen:
        """Return the host's record after the change."""
        return remove_booking(host.seen, self.reservation)

    def __str__(self) -> str:
        return "released"


class HandOverHost(Struct, frozen=True):
    """Hand a host over to a reservation."""

    holding: model.Holding

    def apply_to(self, host: model.LeaseHost) -> model.HostSeen:
        """Return the host's record with the holding; raises HostHeld while another reservation holds it."""
        holder = blocking_holder(host.seen, self.holding.reservation, whole=self.holding.whole)
        if holder is not None:
            raise HostHeld(host.spec.name, holder.lease, holder.reservation)
        return add_holding(host.seen, self.holding)

    def __str__(self) -> str:
        return "handed over"


class TakeBackHost(Struct, frozen=True):
    """Take a host back from a reservation."""

    reservation: str

    def apply_to(self, host: model.LeaseHost) -> model.HostSeen:
        """Return the host's record after the change."""
        return remove_holding(host.seen, self.reservation)

    def __str__(self) -> str:
        return "given back"


class MarkMissed(Struct, frozen=True):
    """Record that a lease lost a host when it failed, so that the lease is healed when the host recovers."""

    lease: str

    def apply_to(self, host: model.LeaseHost) -> model.HostSeen:
        """Return the host's record after the change."""
        others = tuple(lease for lease in host.seen.missed if lease != self.lease)
        return replace(host.seen, missed=(*others, self.lease))

    def __str__(self) -> str:
        return "missed"


HostChange: TypeAlias = BookHost | ReleaseHost | HandOverHost | TakeBackHost | MarkMissed

HostChanges: TypeAlias = Sequence[tuple[str, HostChange]]
"""Changes by the name of the host, in the order in which they are made."""


def release_proposed(id_: str, seen: model.ReservationSeen) -> list[tuple[str, HostChange]]:
    """Return the changes that release the hosts which only an update of a reservation has booked."""
    return [(name, ReleaseHost(id_)) for name in seen.proposed or () if name not in seen.hosts]


def book_hosts(
    lease: model.Lease, id_: str, seen: model.ReservationSeen, demand: Demand
) -> list[tuple[str, HostChange]]:
    """Return the changes that book the hosts of a reservation for the time of its lease."""
    window, of = lease.spec.window, lease.object.id
    return [(name, BookHost(demand.booking(of, id_, window, count))) for name, count in seen.hosts.items()]
