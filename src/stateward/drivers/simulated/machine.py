"""Simulated machines and the provider's rules for their states (pure).

The state of a machine is a function of time. Each action stores a timed transition: the state before, the transitional
state, the state after, and the two times between them. So 100,000 machines need no timers, and a listing can show an
older state as easily as the present one.
"""

from collections.abc import Collection, Mapping
from enum import Enum, auto
from functools import cache
from types import MappingProxyType

from msgspec import Struct, field

from stateward.drivers.port import MachineAction, MachineState

PENDING, RUNNING, FAILED = MachineState.PENDING, MachineState.RUNNING, MachineState.FAILED
SUSPENDING, SUSPENDED, RESUMING = MachineState.SUSPENDING, MachineState.SUSPENDED, MachineState.RESUMING
REBOOTING, TERMINATING, TERMINATED = MachineState.REBOOTING, MachineState.TERMINATING, MachineState.TERMINATED

MAX_TOKENS = 8
"""How many action tokens a machine remembers."""


class TimedTransition(Struct, frozen=True, gc=False):
    """The states before, during and after an action; None before the machine existed."""

    was: MachineState | None
    by: MachineState
    then: MachineState


@cache
def shared_transition(was: MachineState | None, by: MachineState, then: MachineState) -> TimedTransition:
    """Return a transition; machines share equal ones."""
    return TimedTransition(was, by, then)


class MachineTemplate(Struct, frozen=True):
    """Spec, image and resources; equal machines share one template."""

    spec: str
    image: str
    parts: tuple[str, ...] = ()  # the ids of their resources

    @property
    def details(self) -> Mapping[str, str]:
        """The details that a listing shows."""
        return _details(self.spec, self.image)


@cache
def _details(spec: str, image: str) -> Mapping[str, str]:
    return MappingProxyType({"spec": spec, "image": image})


class SimulatedMachine(Struct, gc=False):
    """One machine. `gc=False`: it refers to nothing that could refer back."""

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
        """The provider's id."""
        return native_id(self.number)


def native_id(number: int) -> str:
    """Return the provider's id of a machine number."""
    return f"i-{number:017x}"


def state_at(machine: SimulatedMachine, moment: float) -> MachineState | None:
    """Return the state of a machine at a time; None before it existed."""
    if moment >= machine.until:
        return machine.passage.then
    return machine.passage.by if moment >= machine.since else machine.passage.was


class ActionVerdict(Enum):
    """The provider's answer to an action."""

    GO = auto()
    ALREADY = auto()
    CONFLICT = auto()


class ActionRule(Struct, frozen=True):
    """The transitional state and the end state of an action, and the states that accept it or have it done already."""

    during: MachineState
    then: MachineState
    accepts: Collection[MachineState]
    done: Collection[MachineState]


LIVE = (PENDING, RUNNING, SUSPENDING, SUSPENDED, RESUMING, REBOOTING, FAILED)
ACTION_RULES: Mapping[MachineAction, ActionRule] = {
    #                                   during       then        accepts       done
    MachineAction.SUSPEND:   ActionRule(SUSPENDING,  SUSPENDED,  (RUNNING,),   (SUSPENDING, SUSPENDED)),
    MachineAction.RESUME:    ActionRule(RESUMING,    RUNNING,    (SUSPENDED,), (RESUMING, RUNNING)),
    MachineAction.REBOOT:    ActionRule(REBOOTING,   RUNNING,    (RUNNING,),   ()),
    MachineAction.TERMINATE: ActionRule(TERMINATING, TERMINATED, LIVE,         (TERMINATING, TERMINATED)),
}  # fmt: skip


def judge_action(action: MachineAction, state: MachineState) -> ActionVerdict:
    """Return the provider's answer to an action in a state."""
    rule = ACTION_RULES[action]
    if state in rule.accepts:
        return ActionVerdict.GO
    return ActionVerdict.ALREADY if state in rule.done else ActionVerdict.CONFLICT


def with_token(tokens: tuple[str, ...], token: str) -> tuple[str, ...]:
    """Return the remembered tokens with another one added."""
    return (*tokens, token)[-MAX_TOKENS:] if token else tokens
