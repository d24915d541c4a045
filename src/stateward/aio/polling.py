"""Waiting for an event with a time-out.

A process that is woken by notifications looks again after a while anyway, because a notification can be lost.
"""

import asyncio


async def wait_for_event(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait until an event is set, at most so many seconds; tells whether it was set in time."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
