"""The hosts of a namespace in memory, to find free ones quickly.

The pool is a cache: bookings are checked again under the locks of the hosts when they are written. A stale pool costs
its caller another try, but never books a host twice. Bookings that are about to be written are tentative, so that
concurrent searches of the same process choose other hosts.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush

from msgspec import Struct

from stateward.domains.leases import property_expressions
from stateward.domains.leases.bookings import Demand, booking_fits, occupied_spans
from stateward.domains.leases.calendar import Calendar
from stateward.domains.leases.lifecycle import HostState
from stateward.domains.leases.model import Allocation, Booking, LeaseHost, LeaseWindow

MAX_PROBES = 8
"""Partly booked hosts that are checked one by one before the search takes empty ones."""

MAX_EXPRESSIONS = 256
"""Expressions whose matching hosts are kept; callers may use a new text for each reservation."""


class Matches(Struct):
    """The set of hosts that match an expression."""

    test: property_expressions.HostTest
    hosts: int


class HostPool:
    """Hosts by name and by number; the number is the host's bit in the sets of the calendars.

    A removed host's number is given to the next new host, so the sets have a bit for each host that exists.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._hosts: dict[int, LeaseHost] = {}
        self._free_numbers: list[int] = []  # a heap
        self._usable = 0
        self._whole_days, self._part_days = Calendar(), Calendar()  # taken as a whole, and in part
        self._matches: OrderedDict[str, Matches] = OrderedDict()  # by expression, the last used one last
        self._tentative: dict[str, list[Booking]] = defaultdict(list)
        self._by_lease: dict[str, set[str]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._hosts)

    def hosts(self) -> Iterator[LeaseHost]:
        """Iterate over the hosts."""
        return iter(self._hosts.values())

    def get(self, name: str) -> LeaseHost | None:
        """Return a host by its name."""
        return self._hosts.get(self._numbers.get(name, -1))

    def get_usable(self, name: str, demand: Demand) -> LeaseHost | None:
        """Return a host by its name, if it can be reserved and matches the demand."""
        host = self.get(name)
        return host if host is not None and self._eligible(demand, ()) >> self._numbers[name] & 1 else None

    # --- keeping up --------------------------------------------------------------------------------------------------

    def put(self, host: LeaseHost) -> None:
        """Update a host; a removed one is dropped. A version that is not newer is ignored."""
        known = self.get(host.spec.name)
        if known is not None and known.object.version >= host.object.version:
            return
        self._tentative.pop(host.spec.name, None)  # the tentative bookings are committed, or were refused
        before, after = _leases_of(known), frozenset() if host.object.removed else _leases_of(host)
        for lease in before - after:
            self._by_lease[lease].discard(host.spec.name)
            if not self._by_lease[lease]:
                del self._by_lease[lease]
        for lease in after - before:
            self._by_lease[lease].add(host.spec.name)
        if host.object.removed:
            if known is not None:
                number = self._numbers.pop(host.spec.name)
                heappush(self._free_numbers, number)
                del self._hosts[number]
                self._usable &= ~(1 << number)
                self._whole_days.write(number, ())
                self._part_days.write(number, ())
            return
        if known is None:
            free = heappop(self._free_numbers) if self._free_numbers else len(self._numbers)
            self._numbers[host.spec.name] = free
        number = self._numbers[host.spec.name]
        self._hosts[number] = host
        usable = host.object.state == HostState.UP and host.spec.reservable
        self._usable = self._usable | 1 << number if usable else self._usable & ~(1 << number)
        if known is None or known.spec.properties != host.spec.properties:
            bit = 1 << number
            for match in self._matches.values():
                match.hosts = match.hosts | bit if match.test(host.spec.properties) else match.hosts & ~bit
        self._update_calendar(number, host)

    def hosts_of(self, lease: str) -> frozenset[str]:
        """Return the hosts that are booked for a lease, or held by it."""
        return frozenset(self._by_lease.get(lease, ()))

    def add_tentative(self, allocation: Allocation, booking: Callable[[int], Booking]) -> None:
        """Add tentative bookings, so that the hosts are not chosen again while the bookings are written."""
        for name, each in allocation.items():
            self._tentative[name].append(booking(each))
            self._refresh_calendar(name)

    def remove_tentative(self, allocation: Allocation, reservation: str) -> None:
        """Remove the tentative bookings of a reservation; committed ones go with the next update of the host."""
        for name in allocation:
            known = self._tentative.get(name, [])
            left = [booking for booking in known if booking.reservation != reservation]
            if len(left) != len(known):
                self._tentative[name] = left
                self._refresh_calendar(name)

    def _refresh_calendar(self, name: str) -> None:
        number = self._numbers.get(name)
        if number is not None and number in self._hosts:
            self._update_calendar(number, self._hosts[number])

    def _update_calendar(self, number: int, host: LeaseHost) -> None:
        taken = list(occupied_spans(host.spec, self._bookings(host)))
        self._whole_days.write(number, [(booking.start, booking.end) for booking in taken if booking.whole])
        self._part_days.write(number, [(booking.start, booking.end) for booking in taken if not booking.whole])

    def _bookings(self, host: LeaseHost) -> list[Booking]:
        """Return the bookings of a host, and the tentative ones; one that is committed already counts once."""
        known = host.seen.bookings
        return [*known, *(booking for booking in self._tentative.get(host.spec.name, ()) if booking not in known)]

    # --- searching ---------------------------------------------------------------------------------------------------

    def search(self, demand: Demand, booking: Booking, avoid: Collection[str] = ()) -> Allocation | None:
        """Return as many matching free hosts as there are, up to the demand; None if there are too few."""
        allocation = (
            self._search_whole(demand, booking, avoid)
            if demand.share is None
            else self._search_shares(demand, booking, avoid)
        )
        return allocation if sum(allocation.values()) >= demand.min_count else None

    def _search_whole(self, demand: Demand, booking: Booking, avoid: Collection[str]) -> Allocation:
        """Find whole hosts: fill gaps between other leases first, then take hosts that are free for longer."""
        eligible = self._eligible(demand, avoid)
        whole = self._whole_days.busy(booking.start, booking.until)
        part = self._part_days.busy(booking.start, booking.until)
        eligible &= ~(whole.certain | part.certain)
        perhaps = whole.perhaps | part.perhaps
        free = eligible & ~perhaps
        gaps, rest = _split(eligible & perhaps, MAX_PROBES)
        allocation: Allocation = {}
        for some, certain in ((gaps, False), (free, True), (rest, False)):
            for host in self._iterate(some):
                if len(allocation) >= demand.max_count:
                    return allocation
                if certain or booking_fits(host.spec, self._bookings(host), booking):
                    allocation[host.spec.name] = 1
        return allocation

    def _search_shares(self, demand: Demand, booking: Booking, avoid: Collection[str]) -> Allocation:
        """Find shares: fill partly booked hosts first, then empty ones."""
        eligible = self._eligible(demand, avoid)
        whole = self._whole_days.busy(booking.start, booking.until)
        part = self._part_days.busy(booking.start, booking.until)
        eligible &= ~whole.certain
        begun = eligible & (whole.perhaps | part.certain | part.perhaps)
        first, rest = _split(begun, MAX_PROBES)
        allocation: Allocation = {}
        for host in (candidate for some in (first, eligible & ~begun, rest) for candidate in self._iterate(some)):
            left = demand.max_count - sum(allocation.values())
            if left <= 0:
                break
            room = self._free_shares(host, demand, booking, 1 if demand.anti_affinity else left)
            if demand.affinity:
                if room >= demand.min_count:
                    return {host.spec.name: room}
            elif room:
                allocation[host.spec.name] = room
        return allocation

    def _free_shares(self, host: LeaseHost, demand: Demand, booking: Booking, most: int) -> int:
        """Return how many shares fit on a host, up to `most`."""
        bookings = self._bookings(host)
        window = LeaseWindow(booking.start, booking.end)

        def fit(number: int) -> bool:
            wanted = demand.booking(booking.lease, booking.reservation, window, number)
            return booking_fits(host.spec, bookings, wanted)

        room = 0
        while room < most and fit(room + 1):
            room += 1
        return room

    def _eligible(self, demand: Demand, avoid: Collection[str]) -> int:
        eligible = self._usable
        for text in demand.properties:
            eligible &= self._matching_hosts(text)
        for name in avoid:
            eligible &= ~(1 << self._numbers[name]) if name in self._numbers else -1
        return eligible

    def _matching_hosts(self, text: str) -> int:
        known = self._matches.get(text)
        if known is None:
            test = property_expressions.parse_expression("resource_properties", text)
            matching = sum(1 << n for n, host in self._hosts.items() if test(host.spec.properties))
            known = self._matches[text] = Matches(test, matching)
            if len(self._matches) > MAX_EXPRESSIONS:
                self._matches.popitem(last=False)
        self._matches.move_to_end(text)
        return known.hosts

    def _iterate(self, hosts: int) -> Iterator[LeaseHost]:
        """Iterate over a set of hosts in the order of their numbers."""
        while hosts:
            low = hosts & -hosts
            yield self._hosts[low.bit_length() - 1]
            hosts ^= low


def _leases_of(host: LeaseHost | None) -> frozenset[str]:
    if host is None:
        return frozenset()
    return frozenset(
        [*(booking.lease for booking in host.seen.bookings), *(holding.lease for holding in host.seen.held)]
    )


def _split(hosts: int, number: int) -> tuple[int, int]:
    """Split a set of hosts: the first `number` of them, and the rest."""
    first = 0
    while hosts and number:
        low = hosts & -hosts
        first, hosts, number = first | low, hosts ^ low, number - 1
    return first, hosts
