"""Specs of leases read from clients' bodies, and the rules of what an update may change. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stateward.domains.leases.errors import BlazarBadInput
from stateward.domains.leases.lifecycle import EventState, LeaseState
from stateward.domains.leases.model import EventType, Lease, LeaseSpec, ReservationSpec, status_of
from stateward.domains.leases.resources import ResourcePlugin, ResourcePlugins
from stateward.domains.leases.wire_values import NOW, read_time
from stateward.errors import BadInput, UnknownField
from stateward.naming import check_text

Given = Mapping[str, Any]

START_GRACE_S = 60.0
"""Seconds in the past that still count as now: clients give times to the minute."""

STARTS_IN_THE_PAST = "Start date must be later than current date"
ENDS_BEFORE_START = "End date must be later than start date."
ENDS_TOO_EARLY = "End date must be later than current and start date"
HAS_STARTED = "Cannot modify the start date of already started leases"
ONLY_THE_NAME = "Terminated leases can only be renamed"
"""Blazar's sentences about dates, by which clients know what is wrong."""

CHANGEABLE = ("name", "start_date", "end_date", "before_end_date", "reservations")
EVENT_FIELDS = ("event_type", "event_date")
MAX_RESERVATIONS = 100
MAX_NAME_LENGTH = 255


def read_new_spec(
    given: Given, resources: ResourcePlugins, new_id: Callable[[], str], now: float, before_end: float
) -> LeaseSpec:
    """Read the spec of a new lease."""
    start = read_time("start_date", given.get("start_date", "now"), now)
    if start < now - START_GRACE_S:
        raise BlazarBadInput(STARTS_IN_THE_PAST, "start_date", given.get("start_date"), "now or later")
    start = max(start, now)
    end = _end(given.get("end_date"), start, now, ENDS_BEFORE_START)
    items = _list("reservations", given.get("reservations"))
    return LeaseSpec(
        name=_name(given.get("name")),
        start=start,
        end=end,
        before_end=_before_end(_warning_time(given), start, end, now, before_end),
        reservations=tuple(_reservation(item, resources, new_id()) for item in items),
    )


def read_changed_spec(
    lease: Lease, given: Given, resources: ResourcePlugins, now: float, before_end: float
) -> LeaseSpec:
    """Read the spec of a lease after an update; fields that may not change any more are refused."""
    _refuse_unknown(given, CHANGEABLE, "")
    spec = lease.spec
    name = _name(given["name"]) if given.get("name") is not None else spec.name
    started = lease.seen.events[EventType.START] is not EventState.UNDONE
    over = lease.seen.events[EventType.END] is not EventState.UNDONE or status_of(lease.object) is LeaseState.TERMINATED
    start = _changed_start(lease, given, now, started=started)
    end = spec.end if given.get("end_date") is None else _changed_end(lease, given["end_date"], start, now)
    warning = given.get("before_end_date")
    moved = warning is not None or (start, end) != (spec.start, spec.end)
    warned = (
        _before_end(warning, start, end, now, before_end if spec.before_end is None else spec.end - spec.before_end)
        if moved
        else spec.before_end
    )
    reservations = _changed_reservations(spec, _list("reservations", given.get("reservations")), resources)
    after = replace(spec, name=name, start=start, end=end, before_end=warned, reservations=reservations)
    if over and replace(after, name=spec.name) != spec:
        allowed = "one that is not over yet: of this one only the name can change"
        raise BlazarBadInput(ONLY_THE_NAME, "lease", lease.object.id, allowed, state=lease.object.state)
    return after


def _changed_start(lease: Lease, given: Given, now: float, *, started: bool) -> float:
    asked = given.get("start_date")
    start = lease.spec.start if asked is None else read_time("start_date", asked, now)
    if start == lease.spec.start:
        return start
    if started:
        raise BlazarBadInput(
            HAS_STARTED, "start_date", asked, "left as it is: the lease has started", state=lease.object.state
        )
    if start < now - START_GRACE_S:
        raise BlazarBadInput(STARTS_IN_THE_PAST, "start_date", asked, "now or later", state=lease.object.state)
    return max(start, now)


def _changed_end(lease: Lease, given: object, start: float, now: float) -> float:
    """Read an end; a lease that has not started cannot end now, because its resources were never handed over."""
    state = status_of(lease.object)
    if given == NOW and state is LeaseState.PENDING and now < start - START_GRACE_S:
        allowed = "a time after the start: the lease is PENDING, so delete it, or change start_date with it"
        raise BlazarBadInput(
            f"{ENDS_TOO_EARLY}. A lease that has not started is deleted", "end_date", given, allowed, state=state
        )
    return _end(given, start, now, ENDS_TOO_EARLY, state)


def _changed_reservations(
    spec: LeaseSpec, given: Sequence[Any], resources: ResourcePlugins
) -> tuple[ReservationSpec, ...]:
    changes: dict[str, Given] = {}
    for change in given:
        id_ = change.get("id") if isinstance(change, dict) else None
        if id_ not in {known.id for known in spec.reservations}:
            raise BadInput("reservations", id_, "the id of a reservation of this lease")
        changes[str(id_)] = change
    return tuple(
        _changed(reservation, changes[reservation.id], resources) if reservation.id in changes else reservation
        for reservation in spec.reservations
    )


def _changed(spec: ReservationSpec, given: Given, resources: ResourcePlugins) -> ReservationSpec:
    if given.get("resource_type", spec.resource_type) != spec.resource_type:
        raise BadInput("resource_type", given["resource_type"], f"what it was: {spec.resource_type}")
    return replace(spec, details=_details(given, resources[spec.resource_type], spec.details))


def _reservation(given: object, resources: ResourcePlugins, id_: str) -> ReservationSpec:
    if not isinstance(given, dict):
        raise BadInput("reservations", given, "a list of objects")
    resource = resources.get_by_name(given.get("resource_type"))
    return ReservationSpec(id_, resource.name, _details(given, resource, None))


def _details(given: Given, resource: ResourcePlugin, before: Given | None) -> dict[str, Any]:
    """Read the details of a reservation. A field that is none of them is refused: it may be a mistyped condition.

    Blazar's clients can name what happens before the end; only its default is offered.
    """
    details = resource.read_details(given, before)
    known = {*details, "id", "resource_type"} | ({"before_end"} if given.get("before_end") == "default" else set())
    _refuse_unknown(given, known, "reservations.")
    return details


def _refuse_unknown(given: Given, known: Collection[str], place: str) -> None:
    for name in given:
        if name not in known:
            raise UnknownField(f"{place}{name}", sorted(known))


def _list(field: str, given: object) -> Sequence[Any]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_RESERVATIONS:
        raise BadInput(field, given, f"a list of at most {MAX_RESERVATIONS} objects")
    return given


def _name(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise BadInput("name", given, f"a name of 1 to {MAX_NAME_LENGTH} characters")
    return check_text("name", given, 1, MAX_NAME_LENGTH)


def _end(given: object, start: float, now: float, sentence: str, state: str | None = None) -> float:
    """Read an end: now or later, and not before the start."""
    end = read_time("end_date", given, now)
    if end < start - START_GRACE_S or end < now - START_GRACE_S:
        raise BlazarBadInput(sentence, "end_date", given, "a time after the start, and not in the past", state=state)
    return max(end, start)


def _warning_time(given: Given) -> object:
    """Return the time of the warning, from the field or from an event of that type; other events are refused."""
    events = _list("events", given.get("events"))
    for event in events:
        named = isinstance(event, dict) and event.get("event_type") in (EventType.BEFORE_END, "before_end")
        if not named or not event.get("event_date"):
            raise BadInput("events", event, f"an object with the event_type {EventType.BEFORE_END} and an event_date")
        _refuse_unknown(event, EVENT_FIELDS, "events.")
    if len(events) > 1:
        raise BadInput(
            "events", [event.get("event_date") for event in events], f"a list with at most one {EventType.BEFORE_END}"
        )
    return events[0].get("event_date") if events else given.get("before_end_date")


def _before_end(given: object, start: float, end: float, now: float, default: float) -> float | None:
    if given in (None, ""):
        return max(start, end - default) if default > 0 else None
    time = read_time("before_end_date", given, now)
    if time > end or time < start - START_GRACE_S:
        raise BadInput("before_end_date", given, "a time between the start and the end")
    return max(time, start)
