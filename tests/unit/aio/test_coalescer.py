"""The coalescer: many callers share one call, and a cancelled caller leaves no call behind."""

import asyncio
from collections.abc import Sequence

import pytest

from stateward.aio.coalescer import CallCoalescer


class Provider:
    """Answers with the square of each number, when it is allowed to."""

    def __init__(self, *, quick: bool = True) -> None:
        self.calls: list[list[int]] = []
        self.open = asyncio.Event()
        if quick:
            self.open.set()

    async def squares(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append(list(numbers))
        await self.open.wait()
        return [number * number for number in numbers]


async def test_those_who_ask_in_the_same_turn_share_a_call() -> None:
    provider = Provider()
    coalescer = CallCoalescer(provider.squares, 100)
    assert await asyncio.gather(*map(coalescer.ask, range(10))) == [number * number for number in range(10)]
    assert provider.calls == [list(range(10))]


async def test_those_who_were_answered_together_ask_together_again() -> None:
    provider = Provider()
    coalescer = CallCoalescer(provider.squares, 100)

    async def twice(number: int) -> int:
        return await coalescer.ask(await coalescer.ask(number))

    assert await asyncio.gather(*map(twice, range(3))) == [0, 1, 16]
    assert provider.calls == [[0, 1, 2], [0, 1, 4]]


async def test_a_call_holds_no_more_than_it_may() -> None:
    provider = Provider()
    coalescer = CallCoalescer(provider.squares, 3)
    await asyncio.gather(*map(coalescer.ask, range(7)))
    assert [len(call) for call in provider.calls] == [3, 3, 1]


async def test_who_leaves_before_the_call_takes_the_question_back() -> None:
    provider = Provider()
    coalescer = CallCoalescer(provider.squares, 100)
    leaving, staying = (asyncio.create_task(coalescer.ask(number)) for number in (1, 2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 4
    assert (leaving.cancelled(), provider.calls) == (True, [[2]])


async def test_who_leaves_after_the_call_went_out_waits_until_it_has_arrived() -> None:
    provider = Provider(quick=False)
    coalescer = CallCoalescer(provider.squares, 100)
    leaving, staying = (asyncio.create_task(coalescer.ask(number)) for number in (1, 2))
    while not provider.calls:
        await asyncio.sleep(0)
    leaving.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not leaving.done()
    provider.open.set()
    assert await staying == 4
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_call_that_fails_fails_for_all_who_asked() -> None:
    async def broken(_: Sequence[int]) -> list[int]:
        raise OSError("no route")

    coalescer = CallCoalescer(broken, 100)
    answers = await asyncio.gather(coalescer.ask(1), coalescer.ask(2), return_exceptions=True)
    assert [str(one) for one in answers] == ["no route", "no route"]


async def test_a_provider_that_answers_too_little_keeps_nobody_waiting() -> None:
    async def short(numbers: Sequence[int]) -> list[int]:
        return list(numbers)[:1]

    coalescer = CallCoalescer(short, 100)
    first, second = await asyncio.gather(coalescer.ask(1), coalescer.ask(2), return_exceptions=True)
    assert (first, type(second)) == (1, ValueError)
