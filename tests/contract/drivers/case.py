"""What a driver must bring along to be put under the suite.

A driver's test file is small: a subclass of `Case`, and a class that inherits the suite and makes one case for each
test, in a world of its own:

    class TestMyDriver(Conformance):
        @pytest.fixture
        async def case(self, tmp_path: Path) -> AsyncIterator[Case]:
            case = MyCase(tmp_path)
            yield case
            await case.close()

What a driver says that it cannot do is tried too: it has to be refused as such. `Breaking` (in `breaking.py`) holds
the tests for worlds that can be broken on purpose; inherit it as well where yours can.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection
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

LOOKS = 2000
"""How often a test looks before it gives up; with the case's `pause` in between."""


class Case(ABC):
    """One driver in a fresh world."""

    spec = ""
    """A size of machine that exists there, and is small."""

    image = ""
    """An image that exists there."""

    ssh_port = 22
    """Where its machines are logged in to; 0: nowhere."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._drivers: list[Driver] = []
        self._numbers = count(1)

    @abstractmethod
    def make(self) -> Driver:
        """Make a driver on this case's place, with `self.count` for its meter."""

    def count(self, call: str) -> None:
        """Be the meter."""
        self.calls[call] += 1

    def driver(self) -> Driver:
        """Give one more driver object on the same place, as a restarted server would make it."""
        driver = self.make()
        self._drivers.append(driver)
        return driver

    def want(self, key: str = "") -> MachineSpec:
        """Return a want that can be had: with another key each time, unless one is given."""
        number = next(self._numbers)
        return MachineSpec(key or f"key-{number}", f"machine-{number}", self.spec, self.image)

    async def pause(self) -> None:
        """Let a moment pass between two looks; a world with a clock of its own moves it here."""
        await asyncio.sleep(0.01)

    def reboots(self, seen: Observation) -> int | None:
        """Say how often a machine has been rebooted, where that can be told."""
        return None

    async def close(self) -> None:
        """Close what was given out; a subclass also takes the world down, machines and all."""
        for driver in self._drivers:
            await driver.close()


async def look(driver: Driver, case: Case, keys: Collection[str] | None = None) -> MachineListing:
    """Look until the listing is complete."""
    for _ in range(LOOKS):
        listing = await driver.observe(keys)
        if listing.complete:
            return listing
        await case.pause()
    raise AssertionError(f"no listing was ever complete: {listing.problem}")


async def find(driver: Driver, case: Case, key: str) -> Observation | None:
    """Return a machine as it is shown, if it is."""
    return next((one for one in (await look(driver, case, [key])).machines if one.key == key), None)


async def until(driver: Driver, case: Case, key: str, *states: MachineState) -> Observation:
    """Look until a machine is in one of some states."""
    for _ in range(LOOKS):
        seen = await find(driver, case, key)
        if seen is not None and seen.state in states:
            return seen
        await case.pause()
    raise AssertionError(f"{key} never became {' or '.join(states)}: last seen as {seen}")


async def until_gone(driver: Driver, case: Case, key: str) -> None:
    """Look until a machine is shown as terminated, or no longer."""
    for _ in range(LOOKS):
        seen = await find(driver, case, key)
        if seen is None or seen.state is MachineState.TERMINATED:
            return
        await case.pause()
    raise AssertionError(f"{key} never went: last seen as {seen}")


async def running(driver: Driver, case: Case) -> MachineHandle:
    """Make a machine and wait until it runs."""
    want = case.want()
    native_id = accepted(await driver.create([want]))
    await until(driver, case, want.key, MachineState.RUNNING)
    return MachineHandle(want.key, native_id)


def accepted(outcomes: Collection[Outcome]) -> str:
    """Return the native id of the only outcome, which must be that it was accepted."""
    (outcome,) = outcomes
    assert isinstance(outcome, CallAccepted), outcome
    return outcome.native_id


def agreed(outcome: Outcome) -> bool:
    """Tell whether it was done, or is so already."""
    return isinstance(outcome, (CallAccepted, AlreadyDone))


def refused(outcome: Outcome | None, *reasons: RefusalReason) -> bool:
    """Tell whether it was refused for one of some reasons."""
    return isinstance(outcome, CallRefused) and outcome.why in reasons


def undone(outcome: Outcome) -> bool:
    """Tell whether it is certain that nothing was done."""
    return isinstance(outcome, (CallRefused, CallThrottled, TransientFailure))
