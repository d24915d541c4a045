"""Work in threads, for functions that would block the event loop."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")

REAL_LOOPS = frozenset({"asyncio", "uvloop"})
"""The packages of loops whose clock is the machine's; those of tests have a virtual one, which no thread can follow."""


def has_real_clock(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the time of a loop is that of the machine."""
    return type(loop).__module__.partition(".")[0] in REAL_LOOPS


async def finish_in_thread(call: Callable[[], T]) -> T:
    """Run a function in a thread of the executor, and wait for its end even if the caller is cancelled meanwhile.

    What the function writes is written when this ends: nothing follows that the canceller could not see.
    """
    work = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def run_in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Start a function in a thread of its own, in the context of the caller; returns its result as a future.

    The thread is a daemon, unlike those of an executor: a function that never returns must not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def settle(outcome: Callable[[Any], None], value: object) -> None:
        if not done.done():
            outcome(value)

    def run() -> None:
        settled: tuple[Callable[[Any], None], object]
        try:
            settled = done.set_result, context.run(call)
        except StopIteration as error:  # no future can have it
            settled = done.set_exception, RuntimeError(f"it raised StopIteration: {error}")
        except BaseException as error:
            settled = done.set_exception, error
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(settle, *settled)

    threading.Thread(target=run, name="stateward handler", daemon=True).start()
    return done
