"""The fixture that puts a driver under the contract tests: a driver, in a fresh region, with a size and an image.

A driver's test file has a subclass of `DriverCase`, and a class that inherits the contract and creates one case for
each test:

    class TestMyDriver(Conformance):
        @pytest.fixture
        async def case(self, tmp_path: Path) -> AsyncIterator[DriverCase]:
            case = MyCase(tmp_path)
            yield case
            await case.close()

The tests also call what the capabilities exclude: it must be refused. `FaultContract` (in `fault_contract.py`) has the
tests for providers that can be broken on purpose; inherit it too if yours can.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import count

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    Driver,
    MachineHandle,
    MachineListing,
    MachineSpec,
    MachineState,
    Observation,
    Outcome,
    RefusalReason,
    TransientFailure,
)

MAX_LISTINGS = 2000
"""How many listings a test waits for, with the case's `pause` in between, before it fails."""


class DriverCase(ABC):
    """One driver in a fresh region."""

    spec = ""
    """A size of machine that exists there, and is small."""

    image = ""
    """An image that exists there."""

    ssh_port = 22
    """The SSH port of its machines; 0: none."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._drivers: list[Driver] = []
        self._numbers = count(1)

    @abstractmethod
    def make(self) -> Driver:
        """Create a driver for this case's region, with `self.count` as its meter."""

    def count(self, call: str) -> None:
        """Count a call: the meter of the drivers."""
        self.calls[call] += 1

    def driver(self) -> Driver:
        """Return a new driver for the same region, as a restarted server would create it."""
        driver = self.make()
        self._drivers.append(driver)
        return driver

    def machine_spec(self, key: str = "") -> MachineSpec:
        """Return a spec that can be created, with a new key unless one is given."""
        number = next(self._numbers)
        return MachineSpec(key or f"key-{number}", f"machine-{number}", self.spec, self.image)

    def login_spec(self, keys: Sequence[str]) -> MachineSpec | None:
        """Return a spec whose machine these public keys can log in to from here; None if that cannot be tried."""
        return None

    async def pause(self) -> None:
        """Wait between two listings; a case with its own clock advances it here."""
        # real time: between two listings of a loop
        await asyncio.sleep(0.01)

    def reboots(self, seen: Observation) -> int | None:
        """Return how often a machine was rebooted, or None if that is unknown."""
        return None

    async def close(self) -> None:
        """Close the drivers; a subclass also removes the machines."""
        for driver in self._drivers:
            await driver.close()


async def list_machines(driver: Driver, case: DriverCase, keys: Collection[str] | None = None) -> MachineListing:
    """List machines until a listing is complete."""
    for _ in range(MAX_LISTINGS):
        listing = await driver.observe(keys)
        if listing.complete:
            return listing
        await case.pause()
    raise AssertionError(f"no listing was ever complete: {listing.problem}")


async def find(driver: Driver, case: DriverCase, key: str) -> Observation | None:
    """Return a machine as it is listed, or None."""
    return next((one for one in (await list_machines(driver, case, [key])).machines if one.key == key), None)


async def wait_for_state(driver: Driver, case: DriverCase, key: str, *states: MachineState) -> Observation:
    """Wait until a machine is in one of some states."""
    for _ in range(MAX_LISTINGS):
        seen = await find(driver, case, key)
        if seen is not None and seen.state in states:
            return seen
        await case.pause()
    raise AssertionError(f"{key} never became {' or '.join(states)}: last seen as {seen}")


async def wait_until_gone(driver: Driver, case: DriverCase, key: str) -> None:
    """Wait until a machine is terminated, or no longer listed."""
    for _ in range(MAX_LISTINGS):
        seen = await find(driver, case, key)
        if seen is None or seen.state is MachineState.TERMINATED:
            return
        await case.pause()
    raise AssertionError(f"{key} never went: last seen as {seen}")


async def start_machine(driver: Driver, case: DriverCase) -> MachineHandle:
    """Create a machine, and wait until it runs."""
    machine_spec = case.machine_spec()
    native_id = accepted(await driver.create([machine_spec]))
    await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
    return MachineHandle(machine_spec.key, native_id)


def accepted(outcomes: Collection[Outcome]) -> str:
    """Return the native id of the only outcome, which must be `CallAccepted`."""
    (outcome,) = outcomes
    assert isinstance(outcome, CallAccepted), outcome
    return outcome.native_id


def is_done(outcome: Outcome) -> bool:
    """Tell whether the call was accepted, or was done already."""
    return isinstance(outcome, (CallAccepted, AlreadyDone))


def refused(outcome: Outcome | None, *reasons: RefusalReason) -> bool:
    """Tell whether the call was refused for one of some reasons."""
    return isinstance(outcome, CallRefused) and outcome.why in reasons


def is_not_done(outcome: Outcome) -> bool:
    """Tell whether the outcome proves that nothing was done."""
    return isinstance(outcome, (CallRefused, CallThrottled, TransientFailure))
