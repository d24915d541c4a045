"""The records of the domain: what a lease and a host are, as their objects hold them.

A lease is one object, with its reservations and events inside it: its row says what all of them are, so no commit can
ever show one of them without the others. What was asked for is its `spec`; what has become of it is its `seen`. A host
is an object too, and who has booked it, and holds it, stands on the host itself: whoever locks its row knows all that
there is to know about it.
"""

from enum import StrEnum
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct, field

from stateward.domains.leases.lifecycle import EventState, LeaseState, ReservationState
from stateward.store.records import Key, Object

MIN_BOOKING_S = 60.0
"""How many seconds a host is booked for at least: the clients' clock has minutes only."""


class EventType(StrEnum):
    """What is done for a lease at a certain time; each is an event of its table, in the clients' words."""

    START = "start_lease"
    BEFORE_END = "before_end_lease"
    END = "end_lease"


ACTIONS = {EventType.START: "start", EventType.BEFORE_END: "before end", EventType.END: "end"}


class LeaseWindow(Struct, frozen=True):
    """A span of time: the end is not in it."""

    start: float
    end: float


class ReservationSpec(Struct, frozen=True):
    """What a lease wants: a type of resource, and what its plug-in made of the rest."""

    id: str
    resource_type: str
    details: dict[str, Any]


class LeaseSpec(Struct, frozen=True):
    """What was asked for."""

    name: str
    start: float
    end: float
    before_end: float | None
    reservations: tuple[ReservationSpec, ...]
    user: str = ""
    project: str = ""

    @property
    def window(self) -> LeaseWindow:
        """The time that the lease is for."""
        return LeaseWindow(self.start, self.end)

    def time_of(self, event: EventType) -> float | None:
        """Return when an event is to happen."""
        return {EventType.START: self.start, EventType.BEFORE_END: self.before_end, EventType.END: self.end}[event]


Allocation = dict[str, int]
"""Hosts by name, and how many instances each is to carry; a host that is reserved as a whole carries one."""


class ReservationSeen(Struct, frozen=True, omit_defaults=True):
    """What has become of a reservation.

    `proposed` is what an update under way has booked besides; `lost` are hosts that failed under it.
    """

    status: ReservationState = ReservationState.PENDING
    hosts: Allocation = field(default_factory=dict)
    proposed: Allocation | None = None
    missing_resources: bool = False
    resources_changed: bool = False
    lost: tuple[str, ...] = ()
    error: str | None = None

    @property
    def booked(self) -> frozenset[str]:
        """Every host that may have been booked for it."""
        return frozenset({*self.hosts, *(self.proposed or ())})


class PartMove(Struct, frozen=True, array_like=True):
    """Something that has happened to a reservation (by its id) or an event (by its type), and why."""

    part: str
    event: str
    actor: str
    why: str


class LeaseSeen(Struct, frozen=True, omit_defaults=True):
    """What has become of a lease: its reservations by id, its events by type.

    `moves` is what the journal is still to be told of; it is told by the commit that writes it (`chronicle`).
    `notified` says that the notice of the lease's end was queued for the policy service (`notices`).
    """

    reservations: dict[str, ReservationSeen]
    events: dict[EventType, EventState]
    moves: tuple[PartMove, ...] = ()
    notified: bool = False

    @property
    def degraded(self) -> bool:
        """Whether one of the reservations is not what it was promised to be."""
        return any(one.missing_resources or one.resources_changed for one in self.reservations.values())

    @property
    def booked(self) -> frozenset[str]:
        """Every host that may have been booked for it."""
        return frozenset(host for one in self.reservations.values() for host in one.booked)


class Share(Struct, frozen=True, array_like=True):
    """A part of a host."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0

    def times(self, count: int) -> "Share":
        """Return so many of it."""
        return Share(self.vcpus * count, self.memory_mb * count, self.disk_gb * count)

    def plus(self, other: "Share") -> "Share":
        """Return both together."""
        return Share(self.vcpus + other.vcpus, self.memory_mb + other.memory_mb, self.disk_gb + other.disk_gb)

    def within(self, other: "Share") -> bool:
        """Tell whether it is no more than another."""
        return self.vcpus <= other.vcpus and self.memory_mb <= other.memory_mb and self.disk_gb <= other.disk_gb


class Booking(Struct, frozen=True, array_like=True):
    """A host's promise to a reservation; without a share it is the whole host's."""

    lease: str
    reservation: str
    start: float
    end: float
    share: Share | None = None

    @property
    def until(self) -> float:
        """The end of the time that it takes."""
        return max(self.end, self.start + MIN_BOOKING_S)


class Holding(Struct, frozen=True, array_like=True):
    """A reservation that a host was handed over to."""

    lease: str
    reservation: str
    whole: bool


class HostSpec(Struct, frozen=True):
    """A host as it was registered."""

    name: str
    size: Share = Share()
    properties: dict[str, str] = field(default_factory=dict)
    cleaning: float = 0.0  # how many seconds must pass between two leases
    reservable: bool = True


SIZES = ("vcpus", "memory_mb", "local_gb")
"""The properties of a host that are its size, in the order of a share's fields."""


class Property(Struct, frozen=True):
    """A property that hosts have, and its values."""

    name: str
    private: bool
    values: tuple[str, ...]


class HostSeen(Struct, frozen=True, omit_defaults=True):
    """Who has booked a host, who holds it, and which leases lost it when it failed."""

    bookings: tuple[Booking, ...] = ()
    held: tuple[Holding, ...] = ()
    missed: tuple[str, ...] = ()


class LeaseHost(Struct, frozen=True):
    """A host: its object, read."""

    object: Object
    spec: HostSpec
    seen: HostSeen


class Lease(Struct, frozen=True):
    """A lease: its object, read."""

    object: Object
    spec: LeaseSpec
    seen: LeaseSeen

    def reservations(self) -> list[tuple[ReservationSpec, ReservationSeen]]:
        """Return the reservations, what was wanted beside what became of it."""
        return [(one, self.seen.reservations[one.id]) for one in self.spec.reservations]


_LEASE_SPEC, _LEASE_SEEN = msgspec.json.Decoder(LeaseSpec), msgspec.json.Decoder(LeaseSeen)
_HOST_SPEC, _HOST_SEEN = msgspec.json.Decoder(HostSpec), msgspec.json.Decoder(HostSeen)


def read_lease(found: Object) -> Lease:
    """Read a lease."""
    return Lease(found, _LEASE_SPEC.decode(found.spec), read_lease_seen(found.seen))


def read_host(found: Object) -> LeaseHost:
    """Read a host."""
    return LeaseHost(found, _HOST_SPEC.decode(found.spec), _HOST_SEEN.decode(found.seen))


_STATUSES = {one.word: one for one in LeaseState}


def status_of(found: Object) -> LeaseState:
    """Return the status of a lease."""
    return _STATUSES[found.state]


def status_from_word(word: str) -> LeaseState:
    """Return the status that a word stands for."""
    return _STATUSES[word]


def read_lease_spec(text: str) -> LeaseSpec:
    """Read what was asked for."""
    return _LEASE_SPEC.decode(text)


def read_lease_seen(text: str) -> LeaseSeen:
    """Read what has become of a lease; of one that was made by other means, nothing has."""
    return _LEASE_SEEN.decode(text) if text != "{}" else LeaseSeen({}, {})


def host_key(ns: str, name: str) -> Key:
    """Return the object that a host is."""
    return Key(ns, f"host-{name}")


def event_id(lease: str, event: EventType) -> str:
    """Return the id by which clients know an event of a lease."""
    return str(uuid5(NAMESPACE_URL, f"{lease}/{event}"))
