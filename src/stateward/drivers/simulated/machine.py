"""Simulated machines, the provider's rules for their states, and their observations: pure functions.

The state of a machine is a function of time. Each action stores a timed transition: the state before, the transitional
state, the state after, and the two times between them. So 100,000 machines need no timers, and a listing can show an
older state as easily as the present one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cache
from types import MappingProxyType

from msgspec import Struct, field

from stateward.drivers.port import MachineAction, MachineState, Observation

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


@cache  # bounded by: the states
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


@cache  # bounded by: the registered sizes and images
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


UNMARKED = "(unmarked) "
"""The prefix of the keys under which a region holds machines that carry no key of ours."""


def unmarked_key(native: str) -> str:
    """Return the key under which a region holds a machine that carries no key."""
    return f"{UNMARKED}{native}"


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


STATES = tuple(state for state in MachineState if state is not MachineState.OTHER)

# In the order of STATES.
_NATIVE_TABLE: Mapping[str, str] = {
    "aws":       "pending      running stopping     stopped     pending   running    shutting-down terminated failed",
    "azure":     "creating     running deallocating deallocated starting  restarting deleting      deleted    failed",
    "gcp":       "PROVISIONING RUNNING SUSPENDING   SUSPENDED   STAGING   REPAIRING  STOPPING      TERMINATED FAILED",
    "alibaba":   "Pending      Running Stopping     Stopped     Starting  Running    Releasing     Released   Failed",
    "ncp":       "INIT         RUN     NSTOPPING    NSTOP       NSTARTING RSTRT      TERMTING      TERMT      FSTOP",
    "openstack": "BUILD        ACTIVE  SUSPENDING   SUSPENDED   RESUMING  REBOOT     DELETING      DELETED    ERROR",
}  # fmt: skip

NATIVE_STATES: Mapping[str, Mapping[MachineState, str]] = {
    provider: dict(zip(STATES, words.split(), strict=True)) for provider, words in _NATIVE_TABLE.items()
}
"""The states of the providers that have their own names for them."""

OWN_STATES: Mapping[MachineState, str] = {state: state.value for state in STATES}
"""The states of any other provider: our names."""


def private_ip(number: int) -> str:
    """Return the private address of a machine."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def public_ip(number: int) -> str:
    """Return the public address of a machine, from the range that is reserved for tests (RFC 2544)."""
    return f"198.{18 + (number >> 16 & 1)}.{number >> 8 & 255}.{number & 255}"


REACHABLE = frozenset({MachineState.RUNNING, MachineState.REBOOTING})


def observations_at(
    machines: Iterable[SimulatedMachine],
    moment: float,
    native_states: Mapping[MachineState, str],
    *,
    tokens: bool = True,
) -> Iterator[Observation]:
    """Yield the observations of machines at a time; a machine that did not exist yet has none."""
    for machine in machines:
        state = state_at(machine, moment)
        if state is not None:
            known = machine.tokens if moment >= machine.since else machine.tokens[:-1]
            yield Observation(
                machine.key,
                machine.native_id,
                state,
                native_states[state],
                machine.name,
                public_ip(machine.number) if state in REACHABLE else "",
                private_ip(machine.number),
                ssh_port=0,  # nobody answers there
                details=_observed_details(machine),
                reboot_tokens=known if tokens else (),
            )


def _observed_details(machine: SimulatedMachine) -> Mapping[str, str]:
    if not machine.reboots and not machine.trouble:
        return machine.build.details
    details = {**machine.build.details, "reboots": str(machine.reboots)}
    return {**details, "trouble": machine.trouble} if machine.trouble else details
