"""Evidence: what a look at a provider proves about a VM. It is three-valued, and silence proves nothing.

    present(state)   the provider shows the VM
    absent           complete listings do not have it, seen twice, some time apart
    unknown          anything else: no answer, half a listing, absent once

A VM of which nothing is known for a while (`silent`) is Undefined, and follows what is shown as soon as anything is.

Terminated needs positive evidence: the provider shows the terminated state, or the VM is absent after a terminate that
was accepted. A VM that disappears without one is Undefined, not Terminated: somebody has to say what happened.
"""

from enum import StrEnum

from msgspec import Struct

from stateward.domains.mci.lifecycle import VmState
from stateward.drivers import MachineState, Observation
from stateward.engine import ObservedOutcome

V, M = VmState, MachineState


class Existence(StrEnum):
    """What a look has shown of one VM."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Evidence(Struct, frozen=True):
    """What a look has shown of one VM, with the VM if it was there."""

    existence: Existence
    observation: Observation | None = None
    problem: str = ""
    requested_at: float = 0.0  # when the provider was asked, by the clock of who did
    silent_s: float = (
        0.0  # for how many seconds nothing was shown, if that is so long that what was known counts no more
    )


ONE_TIME_ACTIONS = ("create", "terminate", "delete")
"""What is done once: what such an action shows cannot have been so before."""

GOAL_STATES: dict[str, tuple[MachineState, ...]] = {
    "create": (M.RUNNING,),
    "suspend": (M.SUSPENDED,),
    "resume": (M.RUNNING,),
    "reboot": (M.RUNNING,),
    "terminate": (M.TERMINATED,),
    "delete": (M.TERMINATED,),
}
"""What a VM is when an action has reached its end."""

HOPELESS_STATES: dict[str, tuple[MachineState, ...]] = {
    "create": (M.FAILED, M.TERMINATED, M.TERMINATING),
    "suspend": (M.FAILED, M.TERMINATED, M.TERMINATING),
    "resume": (M.FAILED, M.TERMINATED, M.TERMINATING),
    "reboot": (M.FAILED, M.TERMINATED, M.TERMINATING, M.SUSPENDED),
    "terminate": (),
    "delete": (),
}
"""What it cannot come back from by itself: the action has failed."""

DRIFT_EVENTS = {
    M.RUNNING: "shows running",
    M.SUSPENDED: "shows suspended",
    M.TERMINATED: "shows terminated",
    M.FAILED: "shows failed",
}
"""What a provider's word means for a VM at rest; words of passing states mean nothing yet."""

EVENT_STATES = {"shows running": V.RUNNING, "shows suspended": V.SUSPENDED, "shows terminated": V.TERMINATED}
EVENT_STATES["shows failed"] = V.FAILED

CANNOT_SAY = "cannot say"


def if_recent(look: Evidence, since: float) -> Evidence:
    """Return what a look tells, if the provider was asked late enough: what is older than an action proves nothing."""
    return (
        look
        if look.requested_at >= since
        else Evidence(Existence.UNKNOWN, problem="what is shown may be older than the action")
    )


def conclusive(action: str, look: Evidence, since: float) -> Evidence:
    """Return what a look tells of an action that was begun some time before `since`.

    What an action shows that is done once cannot have been so before it. Absence can: a machine may have been made a
    moment ago, and not be shown yet.
    """
    return look if action in ONE_TIME_ACTIONS and look.existence is not Existence.ABSENT else if_recent(look, since)


def is_reached(action: str, look: Evidence) -> bool:
    """Tell whether an action has reached its end."""
    if look.existence is Existence.ABSENT:
        return action in ("terminate", "delete")
    return look.observation is not None and look.observation.state in GOAL_STATES[action]


def is_hopeless(action: str, look: Evidence) -> bool:
    """Tell whether an action will never reach its end."""
    return look.observation is not None and look.observation.state in HOPELESS_STATES[action]


def conclude(
    action: str, token: str, look: Evidence, since: float, *, is_accepted: bool, shows_tokens: bool
) -> ObservedOutcome:
    """Return what a look proves about an action that ends now, cancelled or overdue; UNKNOWN may become clear later.

    `taken` says that the provider has accepted the action: then it is under way until its end is shown. `shows_tokens`
    says that listings show the tokens of reboots.
    """
    look = conclusive(action, look, since)
    if look.existence is Existence.UNKNOWN:
        return ObservedOutcome.UNKNOWN
    if action == "reboot":
        return _conclude_reboot(token, look.observation, taken=is_accepted, shows_tokens=shows_tokens)
    if is_reached(action, look):
        return ObservedOutcome.DONE
    if is_accepted:
        return ObservedOutcome.UNKNOWN
    if action == "create":  # a machine that is there, in whatever state, must keep its record
        return ObservedOutcome.NOT_DONE if look.existence is Existence.ABSENT else ObservedOutcome.UNKNOWN
    at_rest = look.observation is not None and look.observation.state in DRIFT_EVENTS
    return ObservedOutcome.NOT_DONE if at_rest else ObservedOutcome.UNKNOWN


def _conclude_reboot(token: str, shown: Observation | None, *, taken: bool, shows_tokens: bool) -> ObservedOutcome:
    if shown is None:
        return ObservedOutcome.UNKNOWN
    if taken or token in shown.reboot_tokens:
        return ObservedOutcome.DONE if shown.state is M.RUNNING else ObservedOutcome.UNKNOWN
    return (
        ObservedOutcome.NOT_DONE if shows_tokens and shown.unconfirmed_reboot != token else ObservedOutcome.REPEATABLE
    )


def drift_event(state: str, look: Evidence) -> str | None:
    """Return what a VM at rest is to be told, if it is not what the provider shows."""
    if look.existence is Existence.ABSENT or look.silent_s:
        return CANNOT_SAY if state in (V.RUNNING, V.SUSPENDED) else None
    if look.observation is None:
        return None
    event = DRIFT_EVENTS.get(look.observation.state)
    if event is None or EVENT_STATES[event] == state or state in (V.TERMINATED, V.FAILED):
        return None
    return event
