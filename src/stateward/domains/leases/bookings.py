"""What a host has promised: whether one more promise can be kept, and how they are written down. All of it is pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases.errors import HostHeld, HostsTaken
from stateward.domains.leases.lifecycle import HostState
from stateward.domains.leases.model import Booking, Holding, HostSeen, HostSpec, LeaseHost, LeaseWindow, Share
from stateward.domains.leases.wire_values import format_minute


class Demand(Struct, frozen=True):
    """So many hosts, or so many shares on hosts, from `least` to `most`.

    `apart` says that no two shares may be on one host, `together` that all must be.
    """

    min_count: int
    max_count: int
    share: Share | None = None
    properties: tuple[str, ...] = ()
    anti_affinity: bool = False
    affinity: bool = False

    def booking(self, lease: str, reservation: str, window: LeaseWindow, count: int) -> Booking:
        """Return what a host is asked to promise."""
        share = None if self.share is None else self.share.times(count)
        return Booking(lease, reservation, window.start, window.end, share)


class OccupiedSpan(NamedTuple):
    """A time in which a host is taken, in whole or in part."""

    start: float
    end: float
    whole: bool


def occupied_spans(spec: HostSpec, bookings: Iterable[Booking]) -> Iterator[OccupiedSpan]:
    """Return the times that nobody else's booking may fall into: with the cleaning before and after each."""
    return (OccupiedSpan(one.start - spec.cleaning, one.until + spec.cleaning, one.share is None) for one in bookings)


def booking_fits(spec: HostSpec, bookings: Iterable[Booking], wanted: Booking) -> bool:
    """Tell whether a booking can be kept beside the others; one of the same reservation is replaced by it."""
    other = [one for one in bookings if one.reservation != wanted.reservation and _overlap(spec, one, wanted)]
    if wanted.share is None:
        return not other
    if any(one.share is None for one in other):
        return False
    return all(_load(spec, other, at).plus(wanted.share).within(spec.size) for at in _peak_candidates(other, wanted))


def _overlap(spec: HostSpec, one: Booking, other: Booking) -> bool:
    return one.start < other.until + spec.cleaning and other.start < one.until + spec.cleaning


def _peak_candidates(others: Iterable[Booking], wanted: Booking) -> Iterator[float]:
    """Return the moments at which the load may be highest: when one begins."""
    yield wanted.start
    yield from (one.start for one in others if one.start > wanted.start)


def _load(spec: HostSpec, bookings: Iterable[Booking], at: float) -> Share:
    load = Share()
    for one in bookings:
        if one.share is not None and one.start <= at < one.until + spec.cleaning:
            load = load.plus(one.share)
    return load


def add_booking(seen: HostSeen, wanted: Booking) -> HostSeen:
    """Write a booking down, in the place of the reservation's former one; in the order of their beginnings."""
    others = [one for one in seen.bookings if one.reservation != wanted.reservation]
    return replace(seen, bookings=tuple(sorted([*others, wanted], key=lambda one: (one.start, one.end))))


def remove_booking(seen: HostSeen, reservation: str) -> HostSeen:
    """Take a reservation's booking back, and the host with it."""
    kept = tuple(one for one in seen.bookings if one.reservation != reservation)
    return replace(remove_holding(seen, reservation), bookings=kept)


def blocking_holder(seen: HostSeen, reservation: str, *, whole: bool) -> Holding | None:
    """Return who holds a host, if that keeps it from being handed over."""
    others = (one for one in seen.held if one.reservation != reservation)
    return next((one for one in others if whole or one.whole), None)


def add_holding(seen: HostSeen, holding: Holding) -> HostSeen:
    """Hand a host over to a reservation."""
    return replace(seen, held=(*remove_holding(seen, holding.reservation).held, holding))


def remove_holding(seen: HostSeen, reservation: str) -> HostSeen:
    """Take a host back from a reservation."""
    return replace(seen, held=tuple(one for one in seen.held if one.reservation != reservation))


def earlier_bookings(seen: HostSeen, wanted: Booking) -> list[Booking]:
    """Return what was to be over when a booking begins, and is still written down."""
    others = (one for one in seen.bookings if one.lease != wanted.lease)
    return [one for one in others if one.start < wanted.start and (one.share is None or wanted.share is None)]


class BookHost(Struct, frozen=True):
    """Promise a host to a reservation."""

    booking: Booking

    def apply_to(self, host: LeaseHost) -> HostSeen:
        """Return what the host says then; raises if it cannot."""
        usable = not host.object.removed and host.object.state == HostState.UP and host.spec.reservable
        has = next((one for one in host.seen.bookings if one.reservation == self.booking.reservation), None)
        if has == self.booking:
            return host.seen
        narrower = has is not None and has.start <= self.booking.start and has.end >= self.booking.end
        if not (usable or narrower) or not booking_fits(host.spec, host.seen.bookings, self.booking):
            raise HostsTaken([host.spec.name])
        return add_booking(host.seen, self.booking)

    def __str__(self) -> str:
        return f"booked from {format_minute(self.booking.start)} to {format_minute(self.booking.end)}"


class ReleaseHost(Struct, frozen=True):
    """Take back what was promised to a reservation."""

    reservation: str

    def apply_to(self, host: LeaseHost) -> HostSeen:
        """Return what the host says then."""
        return remove_booking(host.seen, self.reservation)

    def __str__(self) -> str:
        return "released"


class HandOverHost(Struct, frozen=True):
    """Hand a host over to a reservation."""

    holding: Holding

    def apply_to(self, host: LeaseHost) -> HostSeen:
        """Return what the host says then; raises while another holds it."""
        holder = blocking_holder(host.seen, self.holding.reservation, whole=self.holding.whole)
        if holder is not None:
            raise HostHeld(host.spec.name, holder)
        return add_holding(host.seen, self.holding)

    def __str__(self) -> str:
        return "handed over"


class TakeBackHost(Struct, frozen=True):
    """Take a host back from a reservation."""

    reservation: str

    def apply_to(self, host: LeaseHost) -> HostSeen:
        """Return what the host says then."""
        return remove_holding(host.seen, self.reservation)

    def __str__(self) -> str:
        return "given back"


class MarkMissed(Struct, frozen=True):
    """Remember that a lease has lost a host, or forget it."""

    lease: str
    misses: bool

    def apply_to(self, host: LeaseHost) -> HostSeen:
        """Return what the host says then."""
        others = tuple(one for one in host.seen.missed if one != self.lease)
        return replace(host.seen, missed=(*others, self.lease) if self.misses else others)

    def __str__(self) -> str:
        return "missed" if self.misses else "missed no more"


HostChange: TypeAlias = BookHost | ReleaseHost | HandOverHost | TakeBackHost | MarkMissed
