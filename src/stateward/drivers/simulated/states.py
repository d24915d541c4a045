"""The providers' own names of machine states, and the observations of simulated machines."""

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
            yield _observation(machine, state, native_states, known if tokens else ())


def _observation(
    machine: SimulatedMachine, state: MachineState, native_states: Mapping[MachineState, str], tokens: tuple[str, ...]
) -> Observation:
    return Observation(
        machine.key,
        machine.native_id,
        state,
        native_states[state],
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
