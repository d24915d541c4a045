"""Followers of operations: one poll of an operation for all its followers, and no progress line is missed.

The store numbers and keeps progress lines, so a follower that reconnects continues behind the last line that it saw.
The lines are read after the operation: when the operation is found ended, all its lines are known."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from stateward.aio.supervise import wait_for_event
from stateward.engine.waiters import ENDED_STATUSES
from stateward.store.errors import StoreError
from stateward.store.port import Store
from stateward.store.records import Key, Operation, Progress
from stateward.store.topics import Topic

log = logging.getLogger("stateward.stream")

RETRY_S = 1.0
"""How many seconds pass before an operation that could not be read is read again."""

POLL_MAX_S = 2.0
"""How many seconds pass at most between two polls of a followed operation."""

POLL_MIN_S, POLL_PER_OPERATION_S = 0.02, 0.002
"""How many seconds pass at least, and how many more for each followed operation."""

KEEPALIVE_S = 15.0
"""After how many seconds without progress a keep-alive is sent."""

ProgressEvent = Progress | Operation | None
"""A line of progress; at the end the operation; None for a keep-alive."""


class FollowedOperation:
    """A followed operation: its progress lines so far, its end, and its followers."""

    __slots__ = ("end", "lines", "news", "readers", "task")

    def __init__(self) -> None:
        self.lines: list[Progress] = []  # bounded by: the lines of an operation that is followed
        self.end: Operation | None = None
        self.news = asyncio.Event()
        self.readers = 0
        self.task: asyncio.Task[None] | None = None

    def wake_readers(self) -> None:
        """Wake all followers; they wait for the next news with a new event."""
        news, self.news = self.news, asyncio.Event()
        news.set()


class OperationFollowers:
    """Polls all operations that are followed in this process."""

    def __init__(self, store: Store, *, poll_max_s: float = POLL_MAX_S, keepalive_s: float = KEEPALIVE_S) -> None:
        self._store, self._poll_max_s, self._keepalive_s = store, poll_max_s, keepalive_s
        self._followed: dict[Key, FollowedOperation] = {}
        self._hints = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._stopped = False

    def start(self) -> None:
        """Subscribe to the store's notifications of progress and of ends."""
        self._unsubscribe = self._store.subscribe(self._on_topics)

    async def stop(self) -> None:
        """Stop polling, and end all followers."""
        self._stopped = True
        self._unsubscribe()
        for followed in list(self._followed.values()):
            if followed.task is not None:
                followed.task.cancel()
            followed.wake_readers()

    def wake(self) -> None:
        """Wake all followers, so that each checks whether it may still follow."""
        for followed in self._followed.values():
            followed.wake_readers()

    async def follow(
        self, key: Key, after: int = 0, may: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[ProgressEvent]:
        """Yield the progress lines after a number, then the ended operation, as long as `may` allows it."""
        followed = self._join(key)
        try:
            while True:
                news = followed.news
                for line in followed.lines:
                    if line.seq > after and may():
                        yield line
                        after = line.seq
                if followed.end is not None and may():
                    yield followed.end
                if followed.end is not None or self._stopped or not may():
                    return
                if not await wait_for_event(news, self._keepalive_s) and may():
                    yield None
        finally:
            followed.readers -= 1
            if not followed.readers:
                self._followed.pop(key, None)
                if followed.task is not None:
                    followed.task.cancel()

    def _join(self, key: Key) -> FollowedOperation:
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = FollowedOperation()
            followed.task = asyncio.create_task(self._poll(key, followed))
        followed.readers += 1
        return followed

    async def _poll(self, key: Key, followed: FollowedOperation) -> None:
        while followed.end is None:
            hints = self._hints  # an event that is set from here on, even during the query, causes another poll
            try:
                operation = await self._store.reader.operation(key)
                lines = await self._store.reader.progress_of(key, followed.lines[-1].seq if followed.lines else 0)
            except Exception as error:  # it must not stay silent for all its followers
                if not isinstance(error, StoreError):
                    log.exception("operation %s cannot be followed; it is read again in %g s", key.id, RETRY_S)
                await asyncio.sleep(RETRY_S)
                continue
            followed.lines += lines
            if operation is not None and operation.status in ENDED_STATUSES:
                followed.end = operation
            if lines or followed.end is not None:
                followed.wake_readers()
            if followed.end is None:
                await asyncio.sleep(POLL_MIN_S + POLL_PER_OPERATION_S * len(self._followed))
                await wait_for_event(hints, self._poll_max_s)

    def _on_topics(self, topics: Topic) -> None:
        if topics & (Topic.PROGRESS | Topic.JOURNAL | Topic.WORK) and self._followed:
            hints, self._hints = self._hints, asyncio.Event()
            hints.set()
