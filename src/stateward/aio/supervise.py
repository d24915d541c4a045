"""Supervision of background loops: a loop that fails is logged and started again, and ends with its owner.

A loop that dies unnoticed is the worst failure of a long-lived process: it looks healthy and does nothing. So every
loop of a process runs under `supervise` or `repeat`, and inside `background`, which cancels it and waits for its end.
Helpers of such loops are here too: waiting for an event with a time-out, and closing several resources.
"""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

RESTART_DELAY_S = 1.0

Loop = Callable[[], Awaitable[None]]
Transient = type[Exception] | tuple[type[Exception], ...]
"""Errors that are expected to pass, such as those of an unreachable database; they are logged without a traceback."""


async def supervise(
    name: str, loop: Loop, log: logging.Logger, *, transient: Transient = (), delay_s: float = RESTART_DELAY_S
) -> None:
    """Run a loop for ever; if it fails, log the error and start it again after a delay."""
    _name_task(name)
    while True:
        try:
            await loop()
        except (Exception, SystemExit) as error:  # a loop of another package must not end the process
            _log_failure(log, name, error, transient, f"it restarts in {delay_s:g} s")
        await asyncio.sleep(delay_s)


async def repeat(
    name: str,
    run_once: Loop,
    interval_s: Callable[[], float],
    log: logging.Logger,
    *,
    transient: Transient = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run something at intervals for ever, the first time after an interval; errors are logged, and wait for the next.

    `interval_s` is asked before each run, so that it can add jitter.
    """
    _name_task(name)
    while True:
        await sleep(interval_s())
        try:
            await run_once()
        except Exception as error:
            _log_failure(log, name, error, transient, "the next run is at its usual time")


@asynccontextmanager
async def background(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run loops as tasks while the body of the `async with` runs; at its end, cancel them and wait for them."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        await cancel_tasks(tasks)


async def cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended, however they end."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


def _name_task(name: str) -> None:
    if (task := asyncio.current_task()) is not None:
        task.set_name(name)


def _log_failure(log: logging.Logger, name: str, error: BaseException, transient: Transient, consequence: str) -> None:
    if _is_transient(error, transient):
        log.warning("%s is interrupted: %s; %s", name, _first_cause(error), consequence)
    else:
        log.error("%s failed; %s", name, consequence, exc_info=error)


def _is_transient(error: BaseException, transient: Transient) -> bool:
    """Return whether an error is expected to pass; one of a task group is, if all of its errors are."""
    if isinstance(error, ExceptionGroup):
        return all(_is_transient(part, transient) for part in error.exceptions)
    return isinstance(error, transient)


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def close_each(*closers: Callable[[], Awaitable[None]]) -> None:
    """Close everything, then raise the first error, if there was one; a cancellation goes before all errors."""
    failure: BaseException | None = None
    for close in closers:
        try:
            await close()
        except (Exception, CancelledError) as error:
            if failure is None or isinstance(error, CancelledError):
                failure = error
    if failure is not None:
        raise failure


async def wait_for_event(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait until an event is set, at most so many seconds; returns whether it was set in time.

    A loop that notifications wake polls as well, because a notification can be lost.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
