"""The states of simulated machines in the providers' own words, and machines as a listing shows them."""

from collections.abc import Iterable, Iterator, Mapping

from stateward.drivers.port import MachineState, Observation
from stateward.drivers.simulated.machine import SimulatedMachine, state_at

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
"""The words of the providers that have some of their own."""

OWN_STATES: Mapping[MachineState, str] = {state: state.value for state in STATES}
"""The words of any other provider: ours."""


def private_ip(number: int) -> str:
    """Return a machine's address in its network."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def public_ip(number: int) -> str:
    """Return a machine's address outside: of the range that is set aside for trials."""
    return f"198.{18 + (number >> 16 & 1)}.{number >> 8 & 255}.{number & 255}"


REACHABLE = frozenset({MachineState.RUNNING, MachineState.REBOOTING})


def observations_at(
    machines: Iterable[SimulatedMachine], moment: float, words: Mapping[MachineState, str], *, tokens: bool = True
) -> Iterator[Observation]:
    """Yield machines as they were at a moment; what was not there yet is not shown."""
    for machine in machines:
        state = state_at(machine, moment)
        if state is not None:
            known = machine.tokens if moment >= machine.since else machine.tokens[:-1]
            yield _observation(machine, state, words, known if tokens else ())


def _observation(
    machine: SimulatedMachine, state: MachineState, words: Mapping[MachineState, str], tokens: tuple[str, ...]
) -> Observation:
    return Observation(
        machine.key,
        machine.native_id,
        state,
        words[state],
        machine.name,
        public_ip(machine.number) if state in REACHABLE else "",
        private_ip(machine.number),
        22,
        _details(machine),
        tokens,
    )


def _details(machine: SimulatedMachine) -> Mapping[str, str]:
    if not machine.reboots and not machine.trouble:
        return machine.build.details
    details = {**machine.build.details, "reboots": str(machine.reboots)}
    return {**details, "trouble": machine.trouble} if machine.trouble else details
