"""The errors of the leases domain: denials of the guards, failures of actions, and bad input.

`BlazarBadInput` carries the sentences by which clients of OpenStack Blazar know bad input: programs look for them in
`error_message`, and Blazar's own API tests do too. Its fields are those of any bad input: field, value, allowed.
"""

from stateward.domains.leases.lifecycle import LeaseState
from stateward.engine import Denied
from stateward.engine.errors import Occupied
from stateward.errors import BadInput
from stateward.lifecycle import Refusal
from stateward.lifecycle.rollup import CombinationViolation
from stateward.store.records import Operation


class BlazarBadInput(BadInput):
    """Bad input, worded by Blazar's own sentence."""

    def __init__(self, sentence: str, field: str, value: object, allowed: str, *, state: str | None = None) -> None:
        super().__init__(field, value, allowed, state=state)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


class HostsTaken(Denied, code="hosts_taken", retry=True):
    """Hosts cannot be booked: another lease booked them first, or they failed."""

    hosts: tuple[str, ...]
    text = "hosts not available in that period: {hosts}"


class HostHeld(Denied, code="host_held", retry=True):
    """A host cannot be handed over while another reservation holds it."""

    host: str
    lease: str
    reservation: str
    text = "host {host} is still held by lease {lease}"


class HostNotFree(Denied, code="not_ready", retry=True):
    """A lease cannot start while an earlier lease still has one of its hosts."""

    after = 0.5

    host: str
    lease: str
    text = "host {host} is not free before lease {lease} is over"


class NotPlanned(Denied, code="not_planned"):
    """A lease cannot be created or updated by a generic request: hosts must be allocated first."""

    text = "leases are made and changed over /blazar/v1, or with `stateward lease`"


class NotRecoverable(Denied, code="not_recoverable"):
    """The lease cannot leave ERROR: its parts do not derive the wanted status."""

    derived: LeaseState
    text = "its reservations and events say that it is {derived}: delete it"


class LeaseBeingDeleted(Occupied):
    """The lease is being deleted already."""

    code = "being_deleted"


class HostStillBooked(Denied, code="still_booked"):
    """A host cannot be removed or shrink while leases have booked it."""

    host: str
    leases: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.leases) - 3} more" if len(self.leases) > 3 else ""
        return f"host {self.host} is promised to {', '.join(self.leases[:3])}{more}"


class TooEarly(Denied):
    """The timer fired too early: it is rescheduled."""

    code = "not_yet"
    retry = True

    def __init__(self, due: float, now: float) -> None:
        super().__init__(due, now)
        self.due, self.after = due, due - now

    def __str__(self) -> str:
        return f"it is {self.after:.1f} s too early"

    @classmethod
    def unless_due(cls, due: float, now: float) -> None:
        """Raise if it is not due yet."""
        if now < due:
            raise cls(due, now)


class NotEnoughHosts(Denied, code="not_enough"):
    """There are not enough free hosts that match."""

    resource_type: str
    wanted: int
    kept: int | None = None

    def __str__(self) -> str:
        if self.kept is not None:
            return f"not all hosts in use can be kept for that: {self.kept} of {self.wanted} are free at that time"
        return f"not enough resources of type {self.resource_type} are free at that time: {self.wanted} are wanted"


class ReservationNotChangeable(Denied, code="not_changeable"):
    """A reservation cannot be changed like that: its resources are in use, or failed."""

    reservation: str
    status: str
    why: str
    text = "reservation {reservation} is {status}: {why}"


class InvalidCombination(Denied):
    """The lease cannot have this status while its reservations and events have theirs."""

    code = "combination"

    def __init__(self, violations: tuple[CombinationViolation, ...]) -> None:
        super().__init__(violations)
        self.violations = tuple(str(violation) for violation in violations)

    def __str__(self) -> str:
        return "; ".join(self.violations)


class PartRefused(Denied, code="part"):
    """The table of a reservation or an event does not have this move."""

    part: str
    refusal: Refusal
    text = "{part}: {refusal}"


class DeniedByPolicy(Denied, code="not_allowed"):
    """A policy does not allow the lease."""

    policy: str
    why: str
    text = "{policy}: {why}"


class NoticeUndelivered(Denied, code="undelivered"):
    """The policy service did not accept a notice."""

    why: str
    text = "the policy service has not taken it: {why}"


class LeaseActionFailed(Denied):
    """The action was accepted, and failed."""

    code = "failed"

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation.id)
        self.op, self.action, self.error = operation.id, operation.action, operation.error

    def __str__(self) -> str:
        return f"{self.action} failed: {self.error or 'it was given up'}"
