"""The records of the leases domain: what the objects of leases and hosts hold.

A lease is one object with its reservations and events inside, so that no commit shows one of them without the others.
Its `spec` is what the client asked for, its `seen` what has become of it. A host is an object too: its `seen` has its
bookings and holdings, so a transaction that locks the host's row knows all of them.
"""

from enum import StrEnum
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct, field

from stateward.domains.leases.lifecycle import EventState, LeaseState, ReservationState
from stateward.store.records import Key, Object

MIN_BOOKING_S = 60.0
"""Shortest booking of a host, in seconds: clients give times to the minute."""


class EventType(StrEnum):
    """The events of a lease, by the names that clients use."""

    START = "start_lease"
    BEFORE_END = "before_end_lease"
    END = "end_lease"


ACTIONS = {EventType.START: "start", EventType.BEFORE_END: "before end", EventType.END: "end"}


class LeaseWindow(Struct, frozen=True):
    """A span of time; the end is not part of it."""

    start: float
    end: float


class ReservationSpec(Struct, frozen=True):
    """A reservation as it was asked for: a type of resource, and the details that its plug-in has read."""

    id: str
    resource_type: str
    details: dict[str, Any]


class LeaseSpec(Struct, frozen=True):
    """A lease as it was asked for."""

    name: str
    start: float
    end: float
    before_end: float | None
    reservations: tuple[ReservationSpec, ...]
    user: str = ""
    project: str = ""

    @property
    def window(self) -> LeaseWindow:
        """The time of the lease."""
        return LeaseWindow(self.start, self.end)

    def time_of(self, event: EventType) -> float | None:
        """Return when an event is to happen."""
        return {EventType.START: self.start, EventType.BEFORE_END: self.before_end, EventType.END: self.end}[event]


Allocation = dict[str, int]
"""Number of instances by the name of the host; 1 for a host that is reserved as a whole."""


class ReservationSeen(Struct, frozen=True, omit_defaults=True):
    """The state of a reservation.

    `proposed` are the hosts that an update under way has booked in addition; `lost` are hosts that failed.
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
        """Every host that may have a booking for it."""
        return frozenset({*self.hosts, *(self.proposed or ())})


class PartMove(Struct, frozen=True, array_like=True):
    """A move of a reservation (by its id) or of an event (by its type), and its reason."""

    part: str
    event: str
    actor: str
    why: str


class LeaseSeen(Struct, frozen=True, omit_defaults=True):
    """The state of a lease: its reservations by id, its events by type.

    `moves` are not in the journal yet; the commit that writes them journals them (`part_history`).
    `notified` says that the notice of the lease's end was queued for the policy service (`notices`).
    """

    reservations: dict[str, ReservationSeen]
    events: dict[EventType, EventState]
    moves: tuple[PartMove, ...] = ()
    notified: bool = False

    @property
    def degraded(self) -> bool:
        """Whether a reservation has missing or replaced resources."""
        return any(
            reservation.missing_resources or reservation.resources_changed for reservation in self.reservations.values()
        )

    @property
    def booked(self) -> frozenset[str]:
        """Every host that may have a booking for it."""
        return frozenset(host for reservation in self.reservations.values() for host in reservation.booked)


class Share(Struct, frozen=True, array_like=True):
    """A share of a host, or the size of one."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0

    def times(self, count: int) -> "Share":
        """Return the share multiplied by a count."""
        return Share(self.vcpus * count, self.memory_mb * count, self.disk_gb * count)

    def plus(self, other: "Share") -> "Share":
        """Return the sum of two shares."""
        return Share(self.vcpus + other.vcpus, self.memory_mb + other.memory_mb, self.disk_gb + other.disk_gb)

    def within(self, other: "Share") -> bool:
        """Tell whether the share is at most as large as another."""
        return self.vcpus <= other.vcpus and self.memory_mb <= other.memory_mb and self.disk_gb <= other.disk_gb


class Booking(Struct, frozen=True, array_like=True):
    """A host, or a share of it, booked for a reservation."""

    lease: str
    reservation: str
    start: float
    end: float
    share: Share | None = None

    @property
    def until(self) -> float:
        """The end of the booked time, at least MIN_BOOKING_S after the start."""
        return max(self.end, self.start + MIN_BOOKING_S)


class Holding(Struct, frozen=True, array_like=True):
    """A reservation that has a host in use."""

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
"""The properties that are a host's size, in the order of the fields of Share."""


class PropertySpec(Struct, frozen=True):
    """The spec of a property, which has no fields: the state of the object says whether the property is shown."""


class Property(Struct, frozen=True):
    """A property that hosts have, and its values."""

    name: str
    private: bool
    values: tuple[str, ...]


class HostSeen(Struct, frozen=True, omit_defaults=True):
    """The bookings and holdings of a host, and the leases that lost it when it failed."""

    bookings: tuple[Booking, ...] = ()
    held: tuple[Holding, ...] = ()
    missed: tuple[str, ...] = ()


class LeaseHost(Struct, frozen=True):
    """A host: its object with spec and seen decoded."""

    object: Object
    spec: HostSpec
    seen: HostSeen


class Lease(Struct, frozen=True):
    """A lease: its object with spec and seen decoded."""

    object: Object
    spec: LeaseSpec
    seen: LeaseSeen

    def reservations(self) -> list[tuple[ReservationSpec, ReservationSeen]]:
        """Return the reservations, each as its spec and its state."""
        return [(reservation, self.seen.reservations[reservation.id]) for reservation in self.spec.reservations]


_LEASE_SPEC, _LEASE_SEEN = msgspec.json.Decoder(LeaseSpec), msgspec.json.Decoder(LeaseSeen)
_HOST_SPEC, _HOST_SEEN = msgspec.json.Decoder(HostSpec), msgspec.json.Decoder(HostSeen)


def read_lease(record: Object) -> Lease:
    """Decode the object of a lease."""
    return Lease(record, _LEASE_SPEC.decode(record.spec), read_lease_seen(record.seen))


def read_host(record: Object) -> LeaseHost:
    """Decode the object of a host."""
    return LeaseHost(record, _HOST_SPEC.decode(record.spec), _HOST_SEEN.decode(record.seen))


_STATUSES = {state.word: state for state in LeaseState}


def status_of(record: Object) -> LeaseState:
    """Return the status of a lease."""
    return _STATUSES[record.state]


def read_lease_spec(text: str) -> LeaseSpec:
    """Decode the spec of a lease."""
    return _LEASE_SPEC.decode(text)


def read_lease_seen(text: str) -> LeaseSeen:
    """Decode the state of a lease; empty for an object that was not created as a lease."""
    return _LEASE_SEEN.decode(text) if text != "{}" else LeaseSeen({}, {})


def describe_reservation_errors(lease: Object) -> str:
    """Return why reservations of a lease have failed."""
    reservations = read_lease_seen(lease.seen).reservations
    return "; ".join(
        f"reservation {id_}: {reservation.error}" for id_, reservation in reservations.items() if reservation.error
    )


def host_key(ns: str, name: str) -> Key:
    """Return the key of a host's object."""
    return Key(ns, f"host-{name}")


def event_id(lease: str, event: EventType) -> str:
    """Return the id by which clients know an event of a lease."""
    return str(uuid5(NAMESPACE_URL, f"{lease}/{event}"))
