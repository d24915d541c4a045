"""Two actions in every order: a planted race is found at its await, and the fixed form passes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stateward.engine import Engine, Handler, Job, Kind
from stateward.errors import BadInput
from stateward.lifecycle import BACK, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.testing import InterleavingRun, RaceFound, interleave_everywhere
from stateward.testing.interleaving_world import Way


class Account:
    """A balance that is read and written with an await in between."""

    def __init__(self, _: InterleavingRun) -> None:
        self.balance = 100
        self.paid = 0
        self.lock = asyncio.Lock()

    async def withdraw(self) -> None:
        balance = self.balance
        await asyncio.sleep(0)  # the race
        self.balance = balance - 10
        self.paid += 10

    async def withdraw_alone(self) -> None:
        async with self.lock:
            await self.withdraw()


def nothing_is_lost(account: Account) -> None:
    assert account.balance + account.paid == 100


@pytest.mark.parametrize("way", ["switch", "pause"])
def test_lost_update_is_found_at_its_await(way: Way) -> None:
    with pytest.raises(RaceFound, match="nothing_is_lost does not hold") as found:
        interleave_everywhere(Account.withdraw, Account.withdraw, [nothing_is_lost], setup=Account, ways=[way])
    assert found.value.line is not None
    assert (found.value.line.file, found.value.line.text) == (__file__, "await asyncio.sleep(0)  # the race")
    assert f"{Path(__file__)}:{found.value.line.line}" in str(found.value)


def test_trace_has_the_steps_of_both_actions_in_order() -> None:
    with pytest.raises(RaceFound) as found:
        interleave_everywhere(Account.withdraw, Account.withdraw, [nothing_is_lost], setup=Account, ways=["pause"])
    events = [line.split(maxsplit=1)[1] for line in found.value.trace]
    assert [event.partition(":")[0].partition(" at ")[0] for event in events] == [
        "first begins", "first waits", "SWITCH", "second begins", "second waits", "second ends", "first ends",
        "WRONG",
    ]  # fmt: skip


def test_update_under_a_lock_passes() -> None:
    report = interleave_everywhere(Account.withdraw_alone, Account.withdraw_alone, [nothing_is_lost], setup=Account)
    assert (report.points, report.runs) == (1, 2)


class Lamp(State):
    MAKING = "making", TRANSITIONAL
    OFF = "off", STABLE
    LIGHTING = "lighting", TRANSITIONAL
    ON = "on", STABLE


LAMP = declare(
    "lamp",
    Lamp,
    [
        action(NEW, "make", USER, Lamp.MAKING, Lamp.OFF, Lamp.OFF, MINUTE),
        action(Lamp.OFF, "light", USER, Lamp.LIGHTING, Lamp.ON, BACK, MINUTE),
    ],
    by=USER,
)


class House:
    """Two servers on one store, and a fuse that bears one lamp."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines

    async def states(self) -> list[str]:
        return [(await self.engines[0].get("n", name)).state for name in ("a", "b")]


async def at_most_one_lamp_is_on(house: House) -> None:
    assert (await house.states()).count(Lamp.ON) <= 1


def house_of(lamp: Kind) -> Callable[[InterleavingRun], Awaitable[House]]:
    async def setup(run: InterleavingRun) -> House:
        house = House([await run.start(lambda: lamp) for _ in range(2)])
        for name in ("a", "b"):
            await house.engines[0].run("n", name, "make", kind="lamp")
        return house

    return setup


async def succeed(job: Job) -> None:
    await asyncio.sleep(1.0)


HANDLERS = {"make": Handler(succeed), "light": Handler(succeed)}


def light_after_reading(number: int, name: str) -> Callable[[House], Awaitable[None]]:
    async def light(house: House) -> None:
        if Lamp.ON not in await house.states() and Lamp.LIGHTING not in await house.states():
            await house.engines[number].run("n", name, "light")

    return light


def test_check_before_the_request_races_with_another_server() -> None:
    with pytest.raises(RaceFound, match="at_most_one_lamp_is_on does not hold") as found:
        interleave_everywhere(
            light_after_reading(0, "a"),
            light_after_reading(1, "b"),
            [at_most_one_lamp_is_on],
            setup=house_of(Kind(LAMP, HANDLERS)),
        )
    trace = "\n".join(found.value.trace)
    assert "(light a), takes" in trace
    assert "(light b), takes" in trace


def test_points_are_the_same_each_time() -> None:
    def explore() -> object:
        return interleave_everywhere(
            light_after_reading(0, "a"), light_after_reading(1, "a"), setup=house_of(Kind(LAMP, HANDLERS)), most=3
        )

    assert explore() == explore()


def test_so_many_points_are_tried_as_are_asked_for() -> None:
    report = interleave_everywhere(
        light_after_reading(0, "a"), light_after_reading(1, "a"), setup=house_of(Kind(LAMP, HANDLERS)), most=3
    )
    assert report.points > 3
    assert report.runs == 6


async def fails(account: Account) -> None:
    await asyncio.sleep(0)
    raise KeyError(account.balance)


def test_action_that_fails_with_an_unexpected_error_is_reported() -> None:
    with pytest.raises(RaceFound, match="the second action failed: KeyError: 90"):
        interleave_everywhere(Account.withdraw, fails, setup=Account)


async def asks_for_nothing(house: House) -> None:
    await house.engines[0].act("n", "nobody", "light")


def test_first_action_that_is_refused_explores_nothing() -> None:
    with pytest.raises(BadInput, match="nobody"):
        interleave_everywhere(asks_for_nothing, asks_for_nothing, setup=house_of(Kind(LAMP, HANDLERS)))
