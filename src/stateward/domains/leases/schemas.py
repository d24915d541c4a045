"""The wire format: bodies and answers as the clients of OpenStack Blazar's v1 API send and read them."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from stateward.domains.leases import model
from stateward.domains.leases.lifecycle import EventState
from stateward.domains.leases.wire_values import format_time


class NewLease(Struct, frozen=True, forbid_unknown_fields=True):
    """A new lease. Times are UTC: `2030-01-31 14:00`, or `now`."""

    name: str
    end_date: str
    reservations: list[dict[str, Any]] = []
    start_date: str = "now"
    before_end_date: str | None = None
    events: list[dict[str, Any]] | None = None


class LeaseChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a lease that an update changes."""

    name: str | UnsetType | None = UNSET
    start_date: str | UnsetType | None = UNSET
    end_date: str | UnsetType | None = UNSET
    before_end_date: str | UnsetType | None = UNSET
    reservations: list[dict[str, Any]] | UnsetType | None = UNSET


class LeaseAnswer(Struct, frozen=True):
    """A lease."""

    lease: dict[str, Any]


class NextLink(Struct, frozen=True):
    """The link to the next page of a list that was cut."""

    href: str
    rel: str = "next"


class LeaseList(Struct, frozen=True):
    """Leases."""

    leases: list[dict[str, Any]]
    leases_links: list[NextLink] | UnsetType = UNSET


class HostAnswer(Struct, frozen=True):
    """A host."""

    host: dict[str, Any]


class HostList(Struct, frozen=True):
    """Hosts."""

    hosts: list[dict[str, Any]]
    hosts_links: list[NextLink] | UnsetType = UNSET


class AllocationAnswer(Struct, frozen=True):
    """The bookings of a host."""

    allocation: dict[str, Any]


class AllocationList(Struct, frozen=True):
    """The bookings of hosts."""

    allocations: list[dict[str, Any]]
    allocations_links: list[NextLink] | UnsetType = UNSET


class PropertyChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a property is private."""

    private: bool


class PropertyAnswer(Struct, frozen=True):
    """A property that hosts have."""

    resource_property: dict[str, Any]


class PropertyList(Struct, frozen=True):
    """The properties that hosts have."""

    resource_properties: list[dict[str, Any]]


class PluginList(Struct, frozen=True):
    """The types of resources that can be reserved."""

    plugins: list[str]


class VersionList(Struct, frozen=True):
    """The versions of the API."""

    versions: list[dict[str, Any]]


def version_view(href: str, version: str) -> dict[str, Any]:
    """Return a version of the API as clients look for it."""
    return {
        "id": f"v{version}",
        "status": "CURRENT",
        "links": [{"href": href, "rel": "self"}],
        "min_version": version,
        "max_version": version,
    }


def lease_view(lease: model.Lease) -> dict[str, Any]:
    """Return a lease as clients read it."""
    record, spec, seen = lease.object, lease.spec, lease.seen
    return {
        "id": record.id,
        "name": spec.name,
        "status": record.state,
        "status_reason": record.error,
        "degraded": seen.degraded,
        "start_date": format_time(spec.start),
        "end_date": format_time(spec.end),
        "before_end_date": format_time(spec.before_end),
        "user_id": spec.user,
        "project_id": spec.project,
        "trust_id": None,
        "created_at": format_time(record.created),
        "updated_at": format_time(record.since),
        "reservations": [reservation_view(lease, reservation, mine) for reservation, mine in lease.reservations()],
        "events": [
            event_view(lease, event, status) for event, status in seen.events.items() if spec.time_of(event) is not None
        ],
    }


def reservation_view(lease: model.Lease, spec: model.ReservationSpec, seen: model.ReservationSeen) -> dict[str, Any]:
    """Return a reservation as clients read it."""
    return spec.details | {
        "id": spec.id,
        "lease_id": lease.object.id,
        "resource_id": spec.id,
        "resource_type": spec.resource_type,
        "status": seen.status,
        "missing_resources": seen.missing_resources,
        "resources_changed": seen.resources_changed,
        "hosts": sorted(seen.hosts),
        "error": seen.error,
        "created_at": format_time(lease.object.created),
        "updated_at": format_time(lease.object.since),
    }


def event_view(lease: model.Lease, event: model.EventType, status: EventState) -> dict[str, Any]:
    """Return an event as clients read it."""
    return {
        "id": model.event_id(lease.object.id, event),
        "lease_id": lease.object.id,
        "event_type": event,
        "status": status,
        "time": format_time(lease.spec.time_of(event)),
        "created_at": format_time(lease.object.created),
        "updated_at": format_time(lease.object.since),
    }


NAME_FIELDS = ("id", "name", "hypervisor_hostname", "service_name")
GIVEN_BY_SERVER = ("status", "trust_id", "created_at", "updated_at")
"""The fields of a host that are no properties: its name, and what the server says about it."""


def shown_fields(host: model.LeaseHost) -> dict[str, str | None]:
    """Return the fields of a host that clients read and cannot change."""
    shown = (host.object.state, None, format_time(host.object.created), format_time(host.object.since))
    return dict.fromkeys(NAME_FIELDS, host.spec.name) | dict(zip(GIVEN_BY_SERVER, shown, strict=True))


def host_view(host: model.LeaseHost) -> dict[str, Any]:
    """Return a host as clients read it: its properties among its own fields."""
    size = dict(zip(model.SIZES, (host.spec.size.vcpus, host.spec.size.memory_mb, host.spec.size.disk_gb), strict=True))
    return host.spec.properties | {
        **shown_fields(host),
        "hypervisor_type": host.spec.properties.get("hypervisor_type", "stateward"),
        "hypervisor_version": host.spec.properties.get("hypervisor_version", "1"),
        "cpu_info": host.spec.properties.get("cpu_info", ""),
        "reservable": host.spec.reservable,
        **size,
    }


def allocation_view(host: model.LeaseHost, lease: str | None = None, reservation: str | None = None) -> dict[str, Any]:
    """Return the bookings of a host: all of them, or those of one lease or reservation."""
    return {
        "resource_id": host.spec.name,
        "reservations": [
            {
                "id": booking.reservation,
                "lease_id": booking.lease,
                "start_date": format_time(booking.start),
                "end_date": format_time(booking.end),
            }
            for booking in host.seen.bookings
            if lease in (None, booking.lease) and reservation in (None, booking.reservation)
        ],
    }


def property_view(prop: model.Property, *, detail: bool) -> dict[str, Any]:
    """Return a property of hosts; with `detail` also its values."""
    return {"property": prop.name, "private": prop.private} | ({"values": list(prop.values)} if detail else {})
