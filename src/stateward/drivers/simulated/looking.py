"""How machines look in a listing: as they were at a moment, in the provider's own words."""

from collections.abc import Iterable, Iterator, Mapping

from stateward.drivers.port import MachineState, Observation
from stateward.drivers.simulated.machine import Machine, state_at
from stateward.drivers.simulated.words import private_ip, public_ip

REACHABLE = frozenset({MachineState.RUNNING, MachineState.REBOOTING})


def shown(
    machines: Iterable[Machine], moment: float, words: Mapping[MachineState, str], *, tokens: bool = True
) -> Iterator[Observation]:
    """Yield machines as they were at a moment; what was not there yet is not shown."""
    for machine in machines:
        state = state_at(machine, moment)
        if state is not None:
            known = machine.tokens if moment >= machine.since else machine.tokens[:-1]
            yield _observation(machine, state, words, known if tokens else ())


def _observation(
    machine: Machine, state: MachineState, words: Mapping[MachineState, str], tokens: tuple[str, ...]
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


def _details(machine: Machine) -> Mapping[str, str]:
    if not machine.reboots and not machine.trouble:
        return machine.build.details
    details = {**machine.build.details, "reboots": str(machine.reboots)}
    return {**details, "trouble": machine.trouble} if machine.trouble else details
