"""Concurrent requests over several engines on one store, with slow clouds."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import cycle
from typing import Any

from msgspec.structs import replace

from stateward.domains.mci.model import vm_of
from stateward.drivers import MachineState, ProviderRegion
from stateward.drivers.simulated.faults import CALM
from stateward.drivers.simulated.machine import state_at
from stateward.engine import Accepted, Refused
from stateward.engine.accept.groups import GroupVerdict
from stateward.errors import StatewardError
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness
from tests.waiting import until

SEOUL = ProviderRegion("aws", "ap-northeast-2")
SLOW = replace(CALM, pending=3600.0, suspending=3600.0, rebooting=3600.0, terminating=3600.0)

Racer = Callable[[MciHarness], Coroutine[Any, Any, Any]]


async def race(harnesses: Sequence[MciHarness], *racers: Racer) -> tuple[list[Any], list[StatewardError]]:
    """Send concurrent requests, over all engines in turn; returns the accepted ones, and the errors of the others."""
    ways = cycle(harnesses)
    answers = await asyncio.gather(*(racer(next(ways)) for racer in racers), return_exceptions=True)
    lost = [one for one in answers if isinstance(one, StatewardError)]
    broken = [one for one in answers if isinstance(one, BaseException) and not isinstance(one, StatewardError)]
    assert not broken
    return [one for one in answers if not isinstance(one, BaseException)], lost


def control(action: str, *, force: bool = False) -> Racer:
    return lambda harness: harness.service.control(NS, "m1", action, ANN, force=force)


def control_vm(action: str, *, force: bool = False) -> Racer:
    return lambda harness: harness.service.control_vm(NS, "m1", "g1-1", action, ANN, force=force)


def scale(count: int) -> Racer:
    return lambda harness: harness.service.scale(NS, "m1", "g1", count, ANN)


def delete(option: str) -> Racer:
    return lambda harness: harness.service.delete(NS, "m1", option, ANN)


def operation_id(won: Any) -> Accepted:
    """Return the MCI's own operation of an accepted request."""
    found = won[0] if isinstance(won, tuple) else won.whole if isinstance(won, GroupVerdict) else won
    assert isinstance(found, Accepted)
    return found


def names(refusal: StatewardError) -> str:
    """Return the blocking operation that a refusal names."""
    assert isinstance(refusal, Refused), repr(refusal)
    assert refusal.blocker is not None
    return refusal.blocker.op


async def states(harness: MciHarness, name: str = "m1") -> dict[str, str]:
    return {vm_of(one).name: one.state for one in await harness.service.vms(NS, name)}


def alive(harness: MciHarness, place: ProviderRegion = SEOUL) -> list[str]:
    """Return the keys of all machines at a provider that are not terminated."""
    now, machines = harness.cloud.clock(), harness.cloud.region(place).machines
    return [key for key, one in machines.items() if state_at(one, now) is not MachineState.TERMINATED]


def go_on(harness: MciHarness, place: ProviderRegion = SEOUL) -> None:
    """Complete all slow calls of a provider at once."""
    harness.cloud.set_profile(place, CALM)
    for machine in harness.cloud.region(place).machines.values():
        machine.until = min(machine.until, harness.cloud.clock())


async def quiet(harnesses: Sequence[MciHarness]) -> None:
    """Wait until no worker has an operation."""
    await until(lambda: not any(harness.engine.worker and harness.engine.worker.busy for harness in harnesses))
