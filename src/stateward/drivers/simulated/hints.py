"""Hints of change: since nothing in a region moves by itself, who listens waits for the moments that are known."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from heapq import heappop, heappush

from stateward.drivers.simulated.region import Region

SHORTEST = 0.001
"""How long to wait at least, should a sleep end a little before its time."""

Sleep = Callable[[float], Awaitable[None]]


async def hints(region: Region, clock: Callable[[], float], sleep: Sleep) -> AsyncGenerator[str, None]:
    """Yield the key of each machine whenever it changes its state."""
    due: list[tuple[float, str]] = []
    news = asyncio.Event()

    def told(key: str, when: float) -> None:
        heappush(due, (when, key))
        news.set()

    region.ears.append(told)
    try:
        while True:
            while due and due[0][0] <= clock():
                yield heappop(due)[1]
            news.clear()
            await _wait(news, sleep, due[0][0] - clock() if due else None)
    finally:
        region.ears.remove(told)


async def _wait(news: asyncio.Event, sleep: Sleep, seconds: float | None) -> None:
    """Wait for news, or until the next moment that is known."""
    if seconds is None:
        await news.wait()
        return
    waits = [asyncio.ensure_future(news.wait()), asyncio.ensure_future(sleep(max(seconds, SHORTEST)))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
