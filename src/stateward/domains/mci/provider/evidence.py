"""Evidence about VMs: what an observation at the provider proves. Silence proves nothing.

    present(state)   the provider shows the VM
    absent           two complete listings, some time apart, do not contain the VM
    unknown          anything else: no answer, an incomplete listing, absent once

A VM about which nothing is known for a while (`silent_s`) becomes Undefined. It leaves Undefined with the next
observation.

Evidence has a time. A listing may show machines as they were before it was requested, by up to the provider's lag
(`as_of`). So it is evidence about a call only if `as_of` is not before that call. This holds everywhere: for actions,
drift, removals, adoptions and orphans. Absence dates from the first of its two listings.

Terminated needs positive evidence: the provider shows the terminated state, or the VM is absent after a terminate call
that the provider accepted. A VM that disappears without such a call is Undefined, not Terminated.
"""

from enum import StrEnum

from msgspec import Struct

from stateward.domains.mci.lifecycle import VmState
from stateward.drivers import MachineState, Observation
from stateward.engine import ObservedOutcome

V, M = VmState, MachineState


class Existence(StrEnum):
    """Whether a VM exists at its provider."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Evidence(Struct, frozen=True):
    """The result of one observation of a VM, with the machine if the provider shows it."""

    existence: Existence
    observation: Observation | None = None
    problem: str = ""
    requested_at: float = 0.0  # start of the provider call, by the client's clock; of the first one, for an absence
    lag_s: float = 0.0  # how old the data of the provider's listings can be
    silent_s: float = 0.0  # how long nothing is known, if that is so long that the last known state no longer counts

    @property
    def as_of(self) -> float:
        """The time, by the client's clock, before which the evidence cannot date from."""
        return self.requested_at - self.lag_s


APPEARS_WITHIN_S = 30.0
"""How long after a call that may have created a machine its absence proves nothing.

New machines are listed late, sometimes later than the lag of their driver: hardly any provider guarantees a limit.
"""


ONE_TIME_ACTIONS = ("create", "terminate", "delete")
"""Actions whose result cannot be older than the action itself."""

GOAL_STATES: dict[str, tuple[MachineState, ...]] = {
    "create": (M.RUNNING,),
    "adopt": (M.RUNNING, M.SUSPENDED),
    "suspend": (M.SUSPENDED,),
    "resume": (M.RUNNING,),
    "reboot": (M.RUNNING,),
    "terminate": (M.TERMINATED,),
    "delete": (M.TERMINATED,),
}
"""The machine states in which an action has succeeded."""

HOPELESS_STATES: dict[str, tuple[MachineState, ...]] = {
    "create": (M.FAILED, M.TERMINATED, M.TERMINATING),
    "adopt": (M.FAILED, M.TERMINATED, M.TERMINATING),
    "suspend": (M.FAILED, M.TERMINATED, M.TERMINATING),
    "resume": (M.FAILED, M.TERMINATED, M.TERMINATING),
    "reboot": (M.FAILED, M.TERMINATED, M.TERMINATING, M.SUSPENDED),
    "terminate": (),
    "delete": (),
}
"""The machine states in which an action can no longer succeed."""

DRIFT_EVENTS = {
    M.RUNNING: "shows running",
    M.SUSPENDED: "shows suspended",
    M.TERMINATED: "shows terminated",
    M.FAILED: "shows failed",
}
"""The drift event of each stable machine state; transitional states cause no event."""

EVENT_STATES = {event: V[state.name] for state, event in DRIFT_EVENTS.items()}

CANNOT_SAY = "cannot say"


def may_appear(evidence: Evidence, created: float) -> bool:
    """Tell whether a machine that listings do not contain may still appear: `created` is the last call to create it."""
    return evidence.existence is Existence.ABSENT and evidence.as_of < created + APPEARS_WITHIN_S


def if_recent(evidence: Evidence, since: float) -> Evidence:
    """Return evidence that is newer than a call at `since`; older evidence proves nothing about it."""
    if evidence.as_of >= since:
        return evidence
    return Evidence(Existence.UNKNOWN, problem="what is shown may be older than the action")


def conclusive(action: str, evidence: Evidence, since: float) -> Evidence:
    """Return what evidence proves about an action that was called at `since`, or began then.

    The result of a one-time action cannot be older than the action. Absence can be older: a new machine may not be
    listed yet.
    """
    if action in ONE_TIME_ACTIONS and evidence.existence is not Existence.ABSENT:
        return evidence
    return if_recent(evidence, since)


def is_reached(action: str, evidence: Evidence) -> bool:
    """Tell whether an action has succeeded."""
    if evidence.existence is Existence.ABSENT:
        return action in ("terminate", "delete")
    return evidence.observation is not None and evidence.observation.state in GOAL_STATES[action]


def is_hopeless(action: str, evidence: Evidence) -> bool:
    """Tell whether an action can no longer succeed."""
    return evidence.observation is not None and evidence.observation.state in HOPELESS_STATES[action]


def conclude(
    action: str, token: str, evidence: Evidence, since: float, *, is_accepted: bool, shows_tokens: bool
) -> ObservedOutcome:
    """Return what evidence proves about an action that ends now, cancelled or overdue; UNKNOWN may become clear later.

    `is_accepted`: the provider has accepted the action, so it goes on until its result is shown.
    `shows_tokens`: listings show the tokens of reboots.
    """
    evidence = conclusive(action, evidence, since)
    if evidence.existence is Existence.UNKNOWN:
        return ObservedOutcome.UNKNOWN
    if action == "reboot":
        return _conclude_reboot(token, evidence.observation, taken=is_accepted, shows_tokens=shows_tokens)
    if is_reached(action, evidence):
        return ObservedOutcome.DONE
    if is_accepted:
        return ObservedOutcome.UNKNOWN
    if action == "create":  # a machine that exists, in whatever state, must keep its record
        return ObservedOutcome.NOT_DONE if evidence.existence is Existence.ABSENT else ObservedOutcome.UNKNOWN
    at_rest = evidence.observation is not None and evidence.observation.state in DRIFT_EVENTS
    return ObservedOutcome.NOT_DONE if at_rest else ObservedOutcome.UNKNOWN


def _conclude_reboot(token: str, shown: Observation | None, *, taken: bool, shows_tokens: bool) -> ObservedOutcome:
    if shown is None:
        return ObservedOutcome.UNKNOWN
    if taken or token in shown.reboot_tokens:
        return ObservedOutcome.DONE if shown.state is M.RUNNING else ObservedOutcome.UNKNOWN
    return (
        ObservedOutcome.NOT_DONE if shows_tokens and shown.unconfirmed_reboot != token else ObservedOutcome.REPEATABLE
    )


def drift_event(state: str, evidence: Evidence) -> str | None:
    """Return the drift event of a VM without an operation, if the VM's state differs from the provider's."""
    if evidence.existence is Existence.ABSENT or evidence.silent_s:
        return CANNOT_SAY if state in (V.RUNNING, V.SUSPENDED) else None
    if evidence.observation is None:
        return None
    event = DRIFT_EVENTS.get(evidence.observation.state)
    if event is None or EVENT_STATES[event] == state or state in (V.TERMINATED, V.FAILED):
        return None
    return event
