"""Calls of an order to a container engine: patient with one that does not answer, and several at a time.

All calls of the engine's port are idempotent. So a call without an answer is made again, until the patience of the
order ends: an engine that restarts delays an order, and one that hangs fails it with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import ParamSpec, TypeVar

from stateward.agents.site import ReportProgress
from stateward.containers import EngineUnavailable

P = ParamSpec("P")
T = TypeVar("T")

ENGINE_PATIENCE_S = 60.0
"""Seconds that an order waits for an engine that does not answer."""

RETRY_AFTER_S, MAX_RETRY_S = 0.2, 5.0
PARALLEL_CALLS = 8
"""The number of containers that a site changes at once: engines get slower with more."""


class EngineCalls:
    """The calls of all orders of a site."""

    def __init__(self, patience_s: float = ENGINE_PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._gate = asyncio.Semaphore(PARALLEL_CALLS)

    async def ask(
        self, report_progress: ReportProgress, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the engine, again and again while it does not answer; raises `EngineUnavailable` in the end."""
        clock = asyncio.get_running_loop().time
        end, delay = clock() + self._patience_s, RETRY_AFTER_S
        while True:
            try:
                return await call(*args, **kwargs)
            except EngineUnavailable as error:
                if clock() >= end:
                    raise
                report_progress(f"waiting for the container engine: {error}")
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_S)

    async def for_each(self, work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
        """Do something for each item, several at a time; all have ended when the first error is raised."""

        async def do(item: T) -> None:
            async with self._gate:
                await work(item)

        for result in await asyncio.gather(*map(do, items), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
