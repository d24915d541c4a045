"""Threads for the calls of a provider's library that blocks."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class CallThreads:
    """The threads of one driver: not those of the event loop, which others need too."""

    def __init__(self, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)
        self.is_closed = False

    async def run(self, work: Callable[[], T], closed: Exception) -> T:
        """Run a call in a thread; raises `closed` if the driver is closed before the call has begun."""
        if self.is_closed:
            raise closed
        future = self._pool.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise closed from None  # it was still waiting for a thread

    def close(self) -> None:
        """Begin no more calls; those under way end within their time-outs."""
        self.is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
