"""Waits of the tests: a check is repeated until its result is true, or fits. The limit only ends what would never end.

Each check costs processor time, of the test and of the server that it asks: in loops that ask another process, the
pauses between the checks grow.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import Any, TypeVar, overload

T = TypeVar("T")

PATIENT_S = 120.0
PAUSE_S = 0.01
GROWTH = 1.25


@overload
async def until(check: Callable[[], Awaitable[T]], fits: Callable[[T], object] = bool) -> T: ...


@overload
async def until(check: Callable[[], T], fits: Callable[[T], object] = bool) -> T: ...


async def until(check: Callable[[], Any], fits: Callable[[Any], object] = bool) -> Any:
    """Wait until the result of a check, which may be awaitable, fits; return it."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            result = check()
            if isawaitable(result):
                result = await result
            if fits(result):
                return result
            await asyncio.sleep(PAUSE_S)


def wait_until(
    check: Callable[[], T | None], fits: Callable[[T], object] = bool, explain: Callable[[], object] = str
) -> T:
    """Wait without an event loop until the result of a check fits; return it. None never fits."""
    end, pause_s = time.monotonic() + PATIENT_S, pauses()
    while (result := check()) is None or not fits(result):
        assert time.monotonic() < end, f"still {result!r} {explain()}"
        time.sleep(next(pause_s))
    return result


def pauses(first_s: float = 0.02, longest_s: float = 0.2) -> Iterator[float]:
    """Return the pauses between checks: short ones first, so that a wait is not much longer than it must be."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(pause_s * GROWTH, longest_s)
