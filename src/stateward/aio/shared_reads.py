"""Reads that are shared by callers who ask for the same thing at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Wanted = TypeVar("Wanted", bound=Hashable)
Answer = TypeVar("Answer")


class SharedReads(Generic[Wanted, Answer]):
    """Runs one read at a time for each thing; callers who come meanwhile share the next one.

    So each answer was read after its caller had asked for it.
    """

    def __init__(self, read: Callable[[Wanted], Awaitable[Answer]]) -> None:
        self._read = read
        self._next: dict[Wanted, asyncio.Task[Answer]] = {}
        self._running: dict[Wanted, asyncio.Task[Answer]] = {}

    async def get(self, wanted: Wanted) -> Answer:
        """Return what a read that has not begun yet finds."""
        task = self._next.get(wanted)
        if task is None:
            task = self._next[wanted] = asyncio.create_task(self._run(wanted, self._running.get(wanted)))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # all callers may have left
        return await asyncio.shield(task)

    async def _run(self, wanted: Wanted, before: "asyncio.Task[Answer] | None") -> Answer:
        if before is not None:
            await asyncio.wait([before])
        task = self._running[wanted] = self._next.pop(wanted)
        try:
            return await self._read(wanted)
        finally:
            if self._running[wanted] is task:
                del self._running[wanted]
