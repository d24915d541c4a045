"""Bodies of requests to the policy service, in the form of Blazar's filter for external services.

`context` says on whose behalf a lease is, `lease` what is wanted, and `current_lease` what there is before a change.
Each reservation carries its `allocations`: the hosts that it has, or would get. Dates are in ISO 8601 and UTC.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from stateward.domains.leases.model import Allocation, Lease, LeaseHost, LeaseSpec
from stateward.domains.leases.schemas import event_view, host_view, reservation_view

Body = dict[str, Any]


class PolicyQuestion(Struct, frozen=True):
    """A new lease, or an update of the `current` one, with the hosts that each reservation would get."""

    wanted: LeaseSpec
    current: Lease | None = None
    plan: Mapping[str, Allocation] = {}
    hosts: Mapping[str, LeaseHost] = {}


def question_body(question: PolicyQuestion) -> Body:
    """Return the body that asks about a lease."""
    wanted, current = question.wanted, question.current
    body = {"context": _context(wanted), "lease": _values(wanted, question.plan, question.hosts)}
    if current is None:
        return body
    return body | {"current_lease": lease_values(current, question.hosts)}


def ending_body(lease: Lease, hosts: Mapping[str, LeaseHost]) -> Body:
    """Return the body that tells of the end of a lease."""
    return {"context": _context(lease.spec), "lease": lease_values(lease, hosts)}


def lease_values(lease: Lease, hosts: Mapping[str, LeaseHost]) -> Body:
    """Return a lease that there is."""
    record, plan = lease.object, {reservation.id: seen.hosts for reservation, seen in lease.reservations()}
    values = _values(lease.spec, plan, hosts)
    parts = {reservation.id: reservation_view(lease, reservation, seen) for reservation, seen in lease.reservations()}
    events = [(event, status) for event, status in lease.seen.events.items() if lease.spec.time_of(event) is not None]
    return values | {
        "id": record.id,
        "status": record.state,
        "degraded": lease.seen.degraded,
        "created_at": _iso(record.created),
        "updated_at": _iso(record.since),
        "events": [event_view(lease, event, status) for event, status in events],
        "reservations": [parts[reservation["id"]] | reservation for reservation in values["reservations"]],
    }


def _context(spec: LeaseSpec) -> Body:
    """Return on whose behalf a lease is; there is neither a Keystone nor a region to name."""
    return {"user_id": spec.user, "project_id": spec.project, "auth_url": None, "region_name": None}


def _values(spec: LeaseSpec, plan: Mapping[str, Allocation], hosts: Mapping[str, LeaseHost]) -> Body:
    return {
        "name": spec.name,
        "user_id": spec.user,
        "project_id": spec.project,
        "trust_id": None,
        "start_date": _iso(spec.start),
        "end_date": _iso(spec.end),
        "before_end_date": None if spec.before_end is None else _iso(spec.before_end),
        "reservations": [
            reservation.details
            | {
                "id": reservation.id,
                "resource_type": reservation.resource_type,
                "allocations": [
                    host_view(hosts[name]) if name in hosts else {"id": name}
                    for name in sorted(plan.get(reservation.id, {}))
                ],
            }
            for reservation in spec.reservations
        ],
    }


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat()
