"""Guards of leases and hosts: rules that are checked, and parts that are moved, inside the accepting transaction.

The guard completes a request about a lease. The `start` of a timer only says that it is time: the guard moves the event
to IN_PROGRESS, sets the timers of the next events, and refuses while a host is not free yet. A timer may fire early;
the guard compares the lease's own times with the clock.

The guard of hosts keeps bookings valid (a host with bookings cannot shrink or go) and starts the replacement of a
failed host in the leases that have it.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stateward.domains.leases import errors, lease_parts, model, timers
from stateward.domains.leases.booking_writer import write_host_changes
from stateward.domains.leases.bookings import (
    BookHost,
    HandOverHost,
    HostChange,
    TakeBackHost,
    blocking_holder,
    book_hosts,
    booking_fits,
    earlier_bookings,
    release_proposed,
)
from stateward.domains.leases.combination import derived_status
from stateward.domains.leases.ended_leases import EndedLeases
from stateward.domains.leases.lifecycle import LEASE, EventState, HostState, LeaseState, ReservationState
from stateward.domains.leases.notices import notice_key, queue_notice
from stateward.domains.leases.part_history import append_part_history
from stateward.domains.leases.resources import ResourcePlugins
from stateward.domains.leases.resources.port import RemovesObjects
from stateward.domains.leases.wire_values import MAX_CLEANING_MINUTES, MAX_SIZE, check_host_name, read_whole_number
from stateward.engine import NothingToDo, Request
from stateward.engine.errors import blocker_of
from stateward.engine.kind_types import require_known_fields
from stateward.engine.protection import PEOPLE, require_no_flag, require_parts_unprotected
from stateward.engine.requests import EMPTY
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.records import Key, Object, to_json
from stateward.validation_texts import bad_input

L = LeaseState
FINISHED = frozenset({L.ERROR, L.TERMINATED})
"""The statuses of a lease that does not keep a later lease waiting."""


class GuardCall(NamedTuple):
    """A request about a lease that the guard checks, with its unit of work and the object as it was found."""

    uow: UnitOfWork
    request: Request
    found: Object

    @property
    def lease(self) -> model.Lease:
        """The lease as it was found."""
        return model.read_lease(self.found)


class LeaseGuard:
    """The guard of leases; `notifies`: a policy service is told of the ends of leases."""

    def __init__(self, resources: ResourcePlugins, ended: EndedLeases, *, notifies: bool = False) -> None:
        self._resources, self._ended = resources, ended
        self._notifies = notifies
        self._rules = {
            "create": self._create,
            "start": self._start,
            "before end": self._before_end,
            "end": self._end,
            "update": self._update,
            "heal": self._heal,
            "delete": self._delete,
            "forget": self._forget,
            "recover": self._recover,
        }

    def lock_set(self, request: Request, record: Object | None) -> Iterable[Key]:
        """Return the keys of the hosts that a request books or takes over, and of the notice that it queues."""
        if request.action in ("end", "delete", "forget"):
            return [notice_key(request.ns, request.object)] if self._notifies else ()
        seen = [request.seen] if request.action in ("create", "update") else []
        seen += [record.seen] if request.action in ("start", "recover", "update") and record is not None else []
        booked = {name for text in seen if text is not None for name in model.read_lease_seen(text).booked}
        return [model.host_key(request.ns, name) for name in booked]

    async def __call__(self, uow: UnitOfWork, request: Request, record: Object) -> Request | None:
        """Check a request, and complete it."""
        seen = await self._rules[request.action](GuardCall(uow, request, record))
        if seen is None:
            return None
        return replace(request, seen=to_json(append_part_history(uow, record.key, seen, request.op, request.who)))

    # --- users -------------------------------------------------------------------------------------------------------

    async def _create(self, call: GuardCall) -> model.LeaseSeen | None:
        if call.request.spec is None or call.request.seen is None:
            raise errors.NotPlanned
        lease = model.Lease(
            call.found, model.read_lease_spec(call.request.spec), model.read_lease_seen(call.request.seen)
        )
        lease_parts.require_valid(L.CREATING, lease.seen)
        lease_parts.require_valid(L.PENDING, lease.seen)
        self._book_hosts(call, lease, {id_: seen.hosts for id_, seen in lease.seen.reservations.items()})
        call.uow.changes.timers += timers.pending_timers(lease, model.EventType.START)
        return lease.seen

    async def _update(self, call: GuardCall) -> model.LeaseSeen | None:
        """Accept a new allocation; it was made for the version that the request names, so it fits the lease.

        Nobody brings the end of a protected lease forward: that would take its resources back.
        """
        if call.request.version is None or call.request.seen is None:
            raise errors.NotPlanned
        before = call.lease
        spec = before.spec if call.request.spec is None else model.read_lease_spec(call.request.spec)
        if spec.end < before.spec.end and call.request.actor in PEOPLE:
            await require_no_flag(call.uow, call.request.action, call.found)
            await self._require_resources_unprotected(call)
        lease = model.Lease(
            call.found, spec, lease_parts.reset_interrupted_events(model.read_lease_seen(call.request.seen))
        )
        lease_parts.require_valid(L.UPDATING, lease.seen)
        lease_parts.require_valid(model.status_of(call.found), lease.seen)
        planned = {id_: seen.proposed for id_, seen in lease.seen.reservations.items() if seen.proposed is not None}
        left = [change for id_, seen in before.seen.reservations.items() for change in release_proposed(id_, seen)]
        self._book_hosts(call, lease, planned, left)
        call.uow.changes.timers += timers.rescheduled_timers(lease, before)
        return lease.seen

    async def _delete(self, call: GuardCall) -> model.LeaseSeen | None:
        """Begin to delete a lease; a second delete is refused, because it would end the resources once more."""
        if model.status_of(call.found) is L.DELETING and call.found.op is not None:
            raise errors.LeaseBeingDeleted("delete", blocker_of(call.uow.operations[Key(call.found.ns, call.found.op)]))
        await self._require_resources_unprotected(call)
        call.uow.changes.timers_gone += timers.timer_keys(call.request.ns, call.request.object)
        return self._queue_end_notice(call, call.lease.seen, L.DELETING)

    async def _require_resources_unprotected(self, call: GuardCall) -> None:
        for spec in call.lease.spec.reservations:
            resource = self._resources[spec.resource_type]
            if isinstance(resource, RemovesObjects):
                removed = await resource.removed_objects(call.uow, call.found, spec)
                await require_parts_unprotected(call.uow, call.request, call.found, removed)

    async def _recover(self, call: GuardCall) -> model.LeaseSeen | None:
        """Leave ERROR for the status that the parts derive, if the request names the same status.

        The operation that failed may have left other bookings and holdings than the lease says. They are restored here;
        if hosts were taken or are held by another lease, the lease stays in ERROR. Timers of `heal` that fired in ERROR
        are lost, so another is set if there is anything to heal.
        """
        lease = call.lease
        seen = lease_parts.reset_interrupted_events(lease.seen)
        status = derived_status(seen.events.get(model.EventType.START), seen.events.get(model.EventType.END))
        if f"derived={status}" not in call.request.facts or not lease_parts.is_valid(status, seen):
            raise errors.NotRecoverable(status)
        changes = [change for spec, mine in lease.reservations() for change in self._restored_hosts(lease, spec, mine)]
        write_host_changes(call.uow, call.request.ns, changes, call.request.op, call.request.object)
        for id_ in seen.reservations:
            seen = lease_parts.update_reservation(seen, id_, proposed=None)
        call.uow.changes.timers += timers.pending_timers(
            replace(lease, seen=seen), *timers.PENDING_EVENTS.get(status, ())
        )
        if any(
            reservation.lost or reservation.missing_resources or _has_failed_host(call, reservation)
            for reservation in seen.reservations.values()
        ):
            call.uow.changes.timers.append(timers.heal_timer(*call.found.key, "", call.uow.now))
        rested = replace(call.found, state=status.word, since=call.uow.now)
        call.uow.changes.timers += self._ended.timers(replace(lease, object=rested))
        return seen

    def _restored_hosts(
        self, lease: model.Lease, spec: model.ReservationSpec, seen: model.ReservationSeen
    ) -> Iterable[tuple[str, HostChange]]:
        """Return the changes after which hosts have the bookings and holdings that the lease says."""
        demand = self._resources[spec.resource_type].demand(spec.details)
        if demand is None:
            return
        yield from release_proposed(spec.id, seen)
        yield from book_hosts(lease, spec.id, seen, demand)
        is_active = seen.status is ReservationState.ACTIVE
        holding = HandOverHost(model.Holding(lease.object.id, spec.id, demand.share is None))
        yield from ((name, holding if is_active else TakeBackHost(spec.id)) for name in seen.hosts)

    def _book_hosts(
        self,
        call: GuardCall,
        lease: model.Lease,
        plan: dict[str, dict[str, int]],
        left: Iterable[tuple[str, HostChange]] = (),
    ) -> None:
        """Book the hosts of an allocation, after changes that are left to do; raises HostsTaken if one does not fit."""
        changes = [*left]
        for reservation in lease.spec.reservations:
            demand = self._resources[reservation.resource_type].demand(reservation.details)
            if demand is None:
                continue
            for name, count in plan.get(reservation.id, {}).items():
                changes.append(
                    (name, BookHost(demand.booking(call.request.object, reservation.id, lease.spec.window, count)))
                )
        write_host_changes(call.uow, call.request.ns, changes, call.request.op, call.request.object)

    # --- the clock ---------------------------------------------------------------------------------------------------

    async def _start(self, call: GuardCall) -> model.LeaseSeen | None:
        lease = call.lease
        errors.TooEarly.unless_due(lease.spec.start, call.uow.now)
        # Refuse while an unfinished lease holds a host, or has booked it for an earlier time. After a downtime all
        # leases are late. None waits for ever: the unfinished one has a deadline or a timer.
        for reservation, seen in lease.reservations():
            for name in seen.hosts:
                await self._wait_for_host(call.uow, lease, reservation.id, name)
        call.uow.changes.timers += timers.pending_timers(lease, model.EventType.BEFORE_END, model.EventType.END)
        return lease_parts.require_valid(L.STARTING, lease_parts.fire_event(lease.seen, model.EventType.START))

    async def _before_end(self, call: GuardCall) -> model.LeaseSeen | None:
        lease = call.lease
        if lease.spec.before_end is not None:
            errors.TooEarly.unless_due(lease.spec.before_end, call.uow.now)
        fired = lease_parts.fire_event(lease.seen, model.EventType.BEFORE_END)
        return lease_parts.require_valid(L.ACTIVE, lease_parts.complete_event(fired, model.EventType.BEFORE_END))

    async def _end(self, call: GuardCall) -> model.LeaseSeen | None:
        """Begin the end, also of a lease whose start failed: resources that were handed over must be taken back."""
        lease = call.lease
        errors.TooEarly.unless_due(lease.spec.end, call.uow.now)
        seen = lease_parts.give_up_event(lease.seen, model.EventType.START)
        if seen.events[model.EventType.END] is EventState.IN_PROGRESS:  # an earlier end timed out
            seen = lease_parts.reset_interrupted_events(seen)
        for reservation in lease.spec.reservations:
            if seen.reservations[reservation.id].status is ReservationState.PENDING:
                seen = lease_parts.fail_reservation(seen, reservation.id, "the lease never started")
        call.uow.changes.timers_gone += timers.timer_keys(call.request.ns, call.request.object)
        ending = lease_parts.require_valid(L.TERMINATING, lease_parts.fire_event(seen, model.EventType.END))
        return self._queue_end_notice(call, ending, L.TERMINATING)

    def _queue_end_notice(self, call: GuardCall, seen: model.LeaseSeen, status: LeaseState) -> model.LeaseSeen:
        """Queue the notice of the lease's end, if there is a policy service."""
        return queue_notice(call.uow, call.found, seen, status, call.request.op) if self._notifies else seen

    async def _forget(self, call: GuardCall) -> model.LeaseSeen | None:
        if not self._ended.keep_s:  # the setting was taken back since the timer was set
            raise NothingToDo
        errors.TooEarly.unless_due(self._ended.due(call.lease), call.uow.now)
        return await self._delete(call)

    async def _heal(self, call: GuardCall) -> model.LeaseSeen | None:
        return lease_parts.require_valid(L.UPDATING, call.lease.seen)

    async def _wait_for_host(self, uow: UnitOfWork, lease: model.Lease, id_: str, name: str) -> None:
        host, mine = _find_booking(uow, lease, id_, name)
        if host is None or mine is None:
            return
        holder = blocking_holder(host.seen, id_, whole=mine.share is None)
        before = [booking.lease for booking in earlier_bookings(host.seen, mine)] + (
            [holder.lease] if holder is not None else []
        )
        await uow.load({Key(lease.object.ns, lease_id) for lease_id in before})
        for lease_id in before:
            other = uow.objects.get(Key(lease.object.ns, lease_id))
            if other is not None and not other.removed and other.kind == LEASE.kind and other.state not in FINISHED:
                raise errors.HostNotFree(name, lease_id)


def _find_booking(
    uow: UnitOfWork, lease: model.Lease, id_: str, name: str
) -> tuple[model.LeaseHost | None, model.Booking | None]:
    """Return a host, and its booking for a reservation; None if there is none."""
    record = uow.objects.get(model.host_key(lease.object.ns, name))
    if record is None or record.removed:
        return None, None
    host = model.read_host(record)
    return host, next((booking for booking in host.seen.bookings if booking.reservation == id_), None)


def _has_failed_host(call: GuardCall, seen: model.ReservationSeen) -> bool:
    hosts = (call.uow.objects.get(model.host_key(call.request.ns, name)) for name in seen.hosts)
    return any(host is None or host.state != HostState.UP for host in hosts)


class HostGuard:
    """The guard of hosts; leases replace a host that has failed for `replace_after` seconds."""

    def __init__(self, replace_after: float) -> None:
        self._replace_after = replace_after

    async def __call__(self, uow: UnitOfWork, request: Request, record: Object) -> Request | None:
        """Check a request about a host, and complete it."""
        if request.creates is not None or request.spec is not None:
            _check_spec(request, record)
        if request.creates is not None:
            return None
        host = model.read_host(record)
        match request.action:
            case "update":
                spec = host.spec if request.spec is None else msgspec.json.decode(request.spec, type=model.HostSpec)
                broken = [
                    booking for booking in host.seen.bookings if not booking_fits(spec, host.seen.bookings, booking)
                ]
                if broken and broken != [
                    booking
                    for booking in host.seen.bookings
                    if not booking_fits(host.spec, host.seen.bookings, booking)
                ]:
                    raise errors.HostStillBooked(host.spec.name, _leases(broken))
            case "remove":
                ahead = [booking for booking in host.seen.bookings if booking.until > uow.now]
                if ahead or host.seen.held:
                    raise errors.HostStillBooked(
                        host.spec.name, _leases(ahead) or tuple(holding.lease for holding in host.seen.held)
                    )
            case "fail":
                due = uow.now + self._replace_after
                uow.changes.timers += timers.heal_timers(
                    request.ns, concerned_leases(host, uow.now), host.spec.name, due
                )
            case "recover":
                uow.changes.timers += timers.heal_timers(request.ns, host.seen.missed, host.spec.name, uow.now)
                return replace(request, seen=to_json(replace(host.seen, missed=())))
        return None


def _check_spec(request: Request, record: Object) -> None:
    """Refuse an invalid spec of a host, also one that comes over the generic API."""
    text = request.spec or EMPTY
    try:
        spec = msgspec.json.decode(text, type=model.HostSpec)
    except msgspec.ValidationError as error:
        raise bad_input(error, model.HostSpec, "spec") from error
    require_known_fields(msgspec.json.decode(text), spec, request, record.state)
    if model.host_key(record.ns, spec.name) != record.key:
        raise BadInput("spec.name", spec.name, f"the name by which the host goes: its id is {record.id!r}")
    if request.creates is not None:
        check_host_name("spec.name", spec.name)
    if not 0 <= spec.cleaning <= MAX_CLEANING_MINUTES * 60.0:
        raise BadInput("spec.cleaning", spec.cleaning, f"a number from 0 to {MAX_CLEANING_MINUTES * 60}")
    for field in model.Share.__struct_fields__:
        read_whole_number(f"spec.size.{field}", getattr(spec.size, field), 0, MAX_SIZE)


def concerned_leases(host: model.LeaseHost, now: float) -> tuple[str, ...]:
    """Return the leases that have booked a host or hold it."""
    ahead = [booking for booking in host.seen.bookings if booking.until > now]
    return tuple(dict.fromkeys([*_leases(ahead), *(holding.lease for holding in host.seen.held)]))


def _leases(booked: list[model.Booking]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(booking.lease for booking in booked))
