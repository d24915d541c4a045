"""The loop in virtual time: it does not wait, it can stop a party at any await, and it notices when nothing moves."""

import asyncio
from collections.abc import Iterator
from contextvars import Context, copy_context

import pytest

from stateward.testing.virtual_loop import PARTY, LoopParty, Spinning, Stuck, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def context_of(party: LoopParty) -> Context:
    context = copy_context()
    context.run(PARTY.set, party)
    return context


async def count(ticks: list[float], loop: VirtualLoop) -> None:
    for _ in range(10):
        await asyncio.sleep(1.0)
        ticks.append(loop.time())


def test_a_year_passes_at_once(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(365 * 24 * 3600))
    assert loop.time() == 365 * 24 * 3600


def test_things_happen_in_the_order_of_their_times(loop: VirtualLoop) -> None:
    order: list[str] = []
    for when, name in ((3.0, "third"), (1.0, "first"), (2.0, "second")):
        loop.call_later(when, order.append, name)
    loop.run_until_complete(asyncio.sleep(5.0))
    assert order == ["first", "second", "third"]


def test_a_stopped_party_goes_on_where_it_was_when_it_is_resumed(loop: VirtualLoop) -> None:
    party, ticks = LoopParty("p"), list[float]()
    task = loop.create_task(count(ticks, loop), context=context_of(party))
    loop.call_later(2.5, setattr, party, "stopped", True)
    loop.call_later(7.2, loop.resume, party)
    loop.run_until_complete(task)
    assert ticks == [1.0, 2.0, 7.2, 8.2, 9.2, 10.2, 11.2, 12.2, 13.2, 14.2]


def test_a_party_that_is_never_resumed_does_nothing_more_not_even_its_last_rites(loop: VirtualLoop) -> None:
    party, rites = LoopParty("p"), list[str]()

    async def live() -> None:
        try:
            await asyncio.sleep(10.0)
        finally:
            rites.append("last")

    task = loop.create_task(live(), context=context_of(party))
    loop.call_later(1.0, setattr, party, "stopped", True)
    loop.run_until_complete(asyncio.sleep(60.0))
    assert rites == []
    loop.resume(party)
    loop.run_until_complete(task)


def test_other_parties_do_not_notice(loop: VirtualLoop) -> None:
    stopped, ticks = LoopParty("p"), list[float]()
    stopped.stopped = True
    frozen = loop.create_task(count([], loop), context=context_of(stopped))
    loop.run_until_complete(loop.create_task(count(ticks, loop), context=context_of(LoopParty("q"))))
    assert ticks == [float(second) for second in range(1, 11)]
    loop.resume(stopped)
    loop.run_until_complete(frozen)


def test_waiting_for_what_can_never_happen_is_noticed(loop: VirtualLoop) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    task = loop.create_task(wait())
    with pytest.raises(Stuck):
        loop.run_until_complete(task)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))


def test_turning_without_time_going_on_is_noticed(loop: VirtualLoop) -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    task = loop.create_task(spin())
    with pytest.raises(Spinning):
        loop.run_until_complete(task)
    task.cancel()
    loop.forgive()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
