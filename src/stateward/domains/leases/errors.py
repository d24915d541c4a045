"""The errors of the leases domain: denials of the guards, failures of actions, and bad input.

`BlazarBadInput` carries the sentences by which clients of OpenStack Blazar know bad input: programs look for them in
`error_message`, and Blazar's own API tests do too. Its fields are those of any bad input: field, value, allowed.
"""

from collections.abc import Iterable

from stateward.domains.leases.lifecycle import LeaseState
from stateward.domains.leases.model import (
    Holding,
)  # fmt: skip
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


class HostsTaken(Denied):
    """Hosts cannot be booked: another lease booked them first, or they failed."""

    code = "hosts_taken"
    retry = True

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = tuple(hosts)
        super().__init__(self.hosts)

    def __str__(self) -> str:
        return f"hosts not available in that period: {', '.join(self.hosts)}"


class HostHeld(Denied):
    """A host cannot be handed over while another reservation holds it."""

    code = "host_held"
    retry = True

    def __init__(self, host: str, holder: Holding) -> None:
        super().__init__(host, holder)
        self.host, self.lease, self.reservation = host, holder.lease, holder.reservation

    def __str__(self) -> str:
        return f"host {self.host} is still held by lease {self.lease}"


class HostNotFree(Denied):
    """A lease cannot start while an earlier lease still has one of its hosts."""

    code = "not_ready"
    retry = True
    after = 0.5

    def __init__(self, host: str, lease: str) -> None:
        super().__init__(host, lease)
        self.host, self.lease = host, lease

    def __str__(self) -> str:
        return f"host {self.host} is not free before lease {self.lease} is over"


class NotPlanned(Denied):
    """A lease cannot be created or updated by a generic request: hosts must be allocated first."""

    code = "not_planned"

    def __str__(self) -> str:
        return "leases are made and changed over /blazar/v1, or with `stateward lease`"


class NotRecoverable(Denied):
    """The lease cannot leave ERROR: its parts do not derive the wanted status."""

    code = "not_recoverable"

    def __init__(self, derived: LeaseState) -> None:
        super().__init__(derived)
        self.derived = derived

    def __str__(self) -> str:
        return f"its reservations and events say that it is {self.derived}: delete it"


class LeaseBeingDeleted(Occupied):
    """The lease is being deleted already."""

    code = "being_deleted"


class HostStillBooked(Denied):
    """A host cannot be removed or shrink while leases have booked it."""

    code = "still_booked"

    def __init__(self, host: str, leases: tuple[str, ...]) -> None:
        super().__init__(host, leases)
        self.host, self.leases = host, leases

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


class NotEnoughHosts(Denied):
    """There are not enough free hosts that match."""

    code = "not_enough"

    def __init__(self, resource_type: str, wanted: int, kept: int | None = None) -> None:
        super().__init__(resource_type, wanted)
        self.resource_type, self.wanted, self.kept = resource_type, wanted, kept

    def __str__(self) -> str:
        if self.kept is not None:
            return f"not all hosts in use can be kept for that: {self.kept} of {self.wanted} are free at that time"
        return f"not enough resources of type {self.resource_type} are free at that time: {self.wanted} are wanted"


class ReservationNotChangeable(Denied):
    """A reservation cannot be changed like that: its resources are in use, or failed."""

    code = "not_changeable"

    def __init__(self, reservation: str, status: str, why: str) -> None:
        super().__init__(reservation, status, why)
        self.reservation, self.status, self.why = reservation, status, why

    def __str__(self) -> str:
        return f"reservation {self.reservation} is {self.status}: {self.why}"


class InvalidCombination(Denied):
    """The lease cannot have this status while its reservations and events have theirs."""

    code = "combination"

    def __init__(self, found: tuple[CombinationViolation, ...]) -> None:
        super().__init__(found)
        self.violations = tuple(str(one) for one in found)

    def __str__(self) -> str:
        return "; ".join(self.violations)


class PartRefused(Denied):
    """The table of a reservation or an event does not have this move."""

    code = "part"

    def __init__(self, part: str, refusal: Refusal) -> None:
        super().__init__(part, refusal)
        self.part, self.refusal = part, refusal

    def __str__(self) -> str:
        return f"{self.part}: {self.refusal}"


class DeniedByPolicy(Denied):
    """A policy does not allow the lease."""

    code = "not_allowed"

    def __init__(self, policy: str, why: str) -> None:
        super().__init__(policy, why)
        self.policy, self.why = policy, why

    def __str__(self) -> str:
        return f"{self.policy}: {self.why}"


class NoticeUndelivered(Denied):
    """The policy service did not accept a notice."""

    code = "undelivered"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the policy service has not taken it: {self.why}"


class LeaseActionFailed(Denied):
    """The action was accepted, and failed."""

    code = "failed"

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation.id)
        self.op, self.action, self.error = operation.id, operation.action, operation.error

    def __str__(self) -> str:
        return f"{self.action} failed: {self.error or 'it was given up'}"
