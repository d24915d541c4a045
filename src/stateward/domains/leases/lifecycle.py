"""The state machines of the leases domain: lease, reservation, event, and the host that leases are made of.

Which states the three may be in together is a table of its own (`combination`), checked wherever one of them changes.
Delete always wins: it is allowed in every status, also in one that hangs, and again where a delete was left half done.
"""

from stateward.lifecycle import (
    AGENT,
    BACK,
    CLOCK,
    CONTROLLER,
    FINAL,
    GONE,
    HEALER,
    HOUR,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    WORKER,
    State,
    action,
    declare,
    every,
    failure,
    request,
    step,
    success,
    timeout,
)


class LeaseState(State):
    """The statuses of a lease."""

    CREATING = "CREATING", TRANSITIONAL, "resources are being reserved"
    PENDING = "PENDING", STABLE, "reserved, waits for its start"
    STARTING = "STARTING", TRANSITIONAL, "its resources are being handed over"
    ACTIVE = "ACTIVE", STABLE, "its resources are in use"
    UPDATING = "UPDATING", TRANSITIONAL, "being changed"
    TERMINATING = "TERMINATING", TRANSITIONAL, "its resources are being taken back"
    TERMINATED = "TERMINATED", STABLE, "over"
    DELETING = "DELETING", TRANSITIONAL, "being deleted, from whatever it was"
    ERROR = "ERROR", STABLE, "something failed that a retry did not cure"


L = LeaseState

LEASE_ROWS = (
    #      from                                           event         by     through        to            on error  within
    action(NEW, "create", USER, L.CREATING, L.PENDING, L.ERROR, 5 * MINUTE),
    action(L.PENDING, "start", CLOCK, L.STARTING, L.ACTIVE, L.ERROR, 15 * MINUTE),
    action(L.ACTIVE | L.ERROR, "end", CLOCK, L.TERMINATING, L.TERMINATED, L.ERROR, 15 * MINUTE),
    action(L.PENDING | L.ACTIVE | L.TERMINATED | L.ERROR, "update", USER, L.UPDATING, BACK, L.ERROR, 5 * MINUTE),
    action(every(L), "delete", USER, L.DELETING, GONE, L.ERROR, 15 * MINUTE),
    # what has ended is not kept for ever, if a setting says so
    action(L.TERMINATED | L.ERROR, "forget", CLOCK, L.DELETING, GONE, L.ERROR, 15 * MINUTE),
    step(L.ACTIVE, "before end", CLOCK, L.ACTIVE),
    # a host has failed, or has come back
    action(L.PENDING | L.ACTIVE, "heal", CLOCK, L.UPDATING, BACK, L.ERROR, 5 * MINUTE),
    # an error is left on request only, to what reservations and events say
    step(L.ERROR, "recover", USER, L.PENDING, needs="derived=PENDING"),
    step(L.ERROR, "recover", USER, L.ACTIVE, needs="derived=ACTIVE"),
    step(L.ERROR, "recover", USER, L.TERMINATED, needs="derived=TERMINATED"),
)


class ReservationState(State):
    """The statuses of a reservation; small letters, as its clients know them."""

    PENDING = "pending", STABLE, "reserved, waits for the lease's start"
    ACTIVE = "active", STABLE, "handed over"
    DELETED = "deleted", FINAL, "released"
    ERROR = "error", STABLE, "its resources failed"


R = ReservationState

RESERVATION_ROWS = (
    #    from                            event      by          to
    step(NEW, "reserve", CONTROLLER, R.PENDING),
    step(R.PENDING, "start", CONTROLLER, R.ACTIVE),
    step(R.PENDING | R.ACTIVE, "fail", CONTROLLER, R.ERROR),
    step(R.PENDING | R.ACTIVE | R.ERROR, "release", CONTROLLER, R.DELETED),
)


class EventState(State):
    """The statuses of an event: something to be done for a lease at a certain time."""

    UNDONE = "UNDONE", STABLE, "waits for its time"
    IN_PROGRESS = "IN_PROGRESS", TRANSITIONAL, "being done"
    DONE = "DONE", STABLE, "done"
    ERROR = "ERROR", FINAL, "failed for good"


E = EventState

EVENT_ROWS = (
    #       from           event      by               through        to        on error  within
    step(NEW, "arm", CONTROLLER, E.UNDONE),
    request(E.UNDONE, "fire", CLOCK, E.IN_PROGRESS, E.DONE, E.ERROR, 15 * MINUTE),
    success(E.IN_PROGRESS, "done", WORKER | HEALER, E.DONE),
    failure(E.IN_PROGRESS, "failed", WORKER | HEALER, E.ERROR),
    step(E.IN_PROGRESS, "retry", WORKER | HEALER, E.UNDONE),
    timeout(E.IN_PROGRESS, E.UNDONE),
    step(E.DONE, "re-arm", CONTROLLER, E.UNDONE),
)


class HostState(State):
    """The states of a host that can be reserved."""

    UP = "up", STABLE, "can be reserved"
    FAILED = "failed", STABLE, "out of order: leases are to do without it"


H = HostState
WATCHERS = USER | CONTROLLER | AGENT

HOST_ROWS = (
    #    from             event       by        to
    step(NEW, "register", USER, H.UP),
    step(H.UP, "update", USER, H.UP),
    step(H.FAILED, "update", USER, H.FAILED),
    step(H.UP, "fail", WATCHERS, H.FAILED),
    step(H.FAILED, "recover", WATCHERS, H.UP),
    step(H.UP | H.FAILED, "remove", USER, GONE),
)


class PropertyState(State):
    """Whether a property of hosts is shown to everybody; one of which nothing was said is."""

    PUBLIC = "public", STABLE, "listed"
    PRIVATE = "private", STABLE, "listed only where all are asked for"


P = PropertyState

PROPERTY_ROWS = (
    #    from                   event      by    to
    step(NEW, "publish", USER, P.PUBLIC),
    step(NEW, "hide", USER, P.PRIVATE),
    step(P.PUBLIC | P.PRIVATE, "publish", USER, P.PUBLIC),
    step(P.PUBLIC | P.PRIVATE, "hide", USER, P.PRIVATE),
)


class NoticeState(State):
    """The states of a notice to the policy service."""

    QUEUED = "queued", STABLE, "waits to be delivered"
    DELIVERING = "delivering", TRANSITIONAL, "being delivered, again and again until the service has taken it"
    UNDELIVERED = "undelivered", STABLE, "given up: the service has not taken it for a day"


N = NoticeState

NOTICE_ROWS = (
    #      from                       event      by            through       to        on error       within
    step(NEW, "queue", CONTROLLER, N.QUEUED),
    action(N.QUEUED | N.UNDELIVERED, "deliver", CLOCK | USER, N.DELIVERING, GONE, N.UNDELIVERED, 24 * HOUR),
    step(N.QUEUED | N.UNDELIVERED, "discard", USER, GONE),
)

LEASE = declare("leases.lease", LeaseState, LEASE_ROWS, USER | CLOCK, about="resources for a span of time")
RESERVATION = declare(
    "leases.reservation", ReservationState, RESERVATION_ROWS, CONTROLLER, about="what a lease has reserved"
)
EVENT = declare(
    "leases.event",
    EventState,
    EVENT_ROWS,
    CONTROLLER | CLOCK | WORKER | HEALER,
    about="what is to be done for a lease, and when",
)
HOST = declare("leases.host", HostState, HOST_ROWS, WATCHERS, about="a machine that can be reserved")
PROPERTY = declare("leases.property", PropertyState, PROPERTY_ROWS, USER, about="a property that hosts are chosen by")

NOTICE = declare(
    "leases.notice",
    NoticeState,
    NOTICE_ROWS,
    CONTROLLER | CLOCK | USER,
    about="what the policy service is to be told of a lease",
)

LIFECYCLES = (LEASE, RESERVATION, EVENT, HOST, PROPERTY, NOTICE)
