"""A simulated machine and the provider's own rules (pure).

A machine does not change by itself: what it is follows from the time. Each deed leaves a passage, "it was, it goes
through, it will be", with the two moments between them, so that a hundred thousand machines need no timer, and an old
truth can be shown as easily as the new one.
"""

from collections.abc import Mapping
from enum import Enum, auto
from functools import cache
from types import MappingProxyType

from msgspec import Struct, field

from stateward.drivers.port import MachineAction, MachineState

PENDING, RUNNING, FAILED = MachineState.PENDING, MachineState.RUNNING, MachineState.FAILED
SUSPENDING, SUSPENDED, RESUMING = MachineState.SUSPENDING, MachineState.SUSPENDED, MachineState.RESUMING
REBOOTING, TERMINATING, TERMINATED = MachineState.REBOOTING, MachineState.TERMINATING, MachineState.TERMINATED

MAX_TOKENS = 8
"""How many tokens of deeds a machine remembers."""


class TimedTransition(Struct, frozen=True, gc=False):
    """What a machine was, goes through, and will be; one that was nothing was not there."""

    was: MachineState | None
    by: MachineState
    then: MachineState


@cache
def shared_transition(was: MachineState | None, by: MachineState, then: MachineState) -> TimedTransition:
    """Return a passage; machines share them."""
    return TimedTransition(was, by, then)


class MachineTemplate(Struct, frozen=True):
    """What machines of one sort have in common; they share it."""

    spec: str
    image: str
    parts: tuple[str, ...] = ()  # the ids of what they stand on

    @property
    def details(self) -> Mapping[str, str]:
        """Return what a listing tells of it."""
        return _details(self.spec, self.image)


@cache
def _details(spec: str, image: str) -> Mapping[str, str]:
    return MappingProxyType({"spec": spec, "image": image})


class SimulatedMachine(Struct, gc=False):
    """One machine. It is not seen by the garbage collector: it refers to nothing that could refer back."""

    key: str
    name: str
    number: int
    build: MachineTemplate
    passage: TimedTransition
    since: float
    until: float
    reboots: int = 0
    tokens: tuple[str, ...] = field(default=())
    trouble: str = ""

    @property
    def native_id(self) -> str:
        """The provider's own id."""
        return native_id(self.number)


def native_id(number: int) -> str:
    """Return the id of a machine with a number."""
    return f"i-{number:017x}"


def state_at(machine: SimulatedMachine, moment: float) -> MachineState | None:
    """Return what a machine is at a moment; nothing before it was made."""
    if moment >= machine.until:
        return machine.passage.then
    return machine.passage.by if moment >= machine.since else machine.passage.was


class Verdict(Enum):
    """What the provider says to a deed."""

    GO = auto()
    ALREADY = auto()
    CONFLICT = auto()


TRANSITIONS: Mapping[MachineAction, tuple[MachineState, MachineState]] = {
    MachineAction.SUSPEND:   (SUSPENDING,  SUSPENDED),
    MachineAction.RESUME:    (RESUMING,    RUNNING),
    MachineAction.REBOOT:    (REBOOTING,   RUNNING),
    MachineAction.TERMINATE: (TERMINATING, TERMINATED),
}  # fmt: skip
"""What each deed leads through, and to."""

ALLOWED_STATES: Mapping[MachineAction, frozenset[MachineState]] = {
    MachineAction.SUSPEND: frozenset({RUNNING}),
    MachineAction.RESUME: frozenset({SUSPENDED}),
    MachineAction.REBOOT: frozenset({RUNNING}),
    MachineAction.TERMINATE: frozenset({PENDING, RUNNING, SUSPENDING, SUSPENDED, RESUMING, REBOOTING, FAILED}),
}
"""In which states each deed can be done."""

DONE_STATES: Mapping[MachineAction, frozenset[MachineState]] = {
    MachineAction.SUSPEND: frozenset({SUSPENDING, SUSPENDED}),
    MachineAction.RESUME: frozenset({RESUMING, RUNNING}),
    MachineAction.REBOOT: frozenset(),
    MachineAction.TERMINATE: frozenset({TERMINATING, TERMINATED}),
}
"""In which states there is nothing left to do."""


def judge_action(action: MachineAction, state: MachineState) -> Verdict:
    """Say what the provider says to a deed on a machine in a state."""
    if state in ALLOWED_STATES[action]:
        return Verdict.GO
    return Verdict.ALREADY if state in DONE_STATES[action] else Verdict.CONFLICT


def with_token(tokens: tuple[str, ...], token: str) -> tuple[str, ...]:
    """Return the tokens that a machine remembers when another one comes."""
    return (*tokens, token)[-MAX_TOKENS:] if token else tokens
