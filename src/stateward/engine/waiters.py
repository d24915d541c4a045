"""Waiters for the end of operations: one query serves all waiters, whenever something was committed."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from stateward.aio.supervise import cancel_tasks, supervise, wait_for_event
from stateward.engine.errors import NoSuchOperation
from stateward.store.errors import StoreError
from stateward.store.port import Store
from stateward.store.records import Key, Operation, Status
from stateward.store.topics import Topic

log = logging.getLogger("stateward.engine")

WAITER_POLL_S = 1.0
"""How many seconds pass at most between two queries, should a notification be lost."""

ENDED_STATUSES = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


class OperationWaiters:
    """The waiters of an engine, by the operation that they wait for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._futures: dict[Key, list[asyncio.Future[Operation]]] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start to query."""
        self._unsubscribe = self._store.subscribe(self._on_topics)
        self._task = asyncio.create_task(supervise("waiters for operations", self._poll_loop, log))

    async def stop(self) -> None:
        """Stop to query, and cancel the waiters that are left."""
        self._unsubscribe()
        if self._task is not None:
            await cancel_tasks([self._task])
        for futures in self._futures.values():
            for future in futures:
                future.cancel()

    async def wait_for_end(self, key: Key) -> Operation:
        """Wait for the end of an operation, and return it."""
        future: asyncio.Future[Operation] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, []).append(future)
        self._changed.set()
        try:
            return await future
        finally:
            others = [other for other in self._futures.get(key, ()) if other is not future]
            if others:
                self._futures[key] = others
            else:
                self._futures.pop(key, None)

    def _on_topics(self, topics: Topic) -> None:
        if topics & (Topic.JOURNAL | Topic.WORK) and self._futures:
            self._changed.set()

    async def _poll_loop(self) -> None:
        """Query whenever something was committed, then rest as long as the query took, to use half of the time."""
        clock = asyncio.get_running_loop().time
        while True:
            if await wait_for_event(self._changed, WAITER_POLL_S if self._futures else None):
                self._changed.clear()
            began = clock()
            with suppress(StoreError):
                keys = list(self._futures)
                operations = await self._store.reader.operations(keys) if keys else {}
                for key in keys:
                    operation = operations.get(key)
                    if operation is None or operation.status in ENDED_STATUSES:
                        for future in self._futures.pop(key, ()):
                            if future.done():
                                continue
                            if operation is None:
                                future.set_exception(NoSuchOperation(*key))
                            else:
                                future.set_result(operation)
            await asyncio.sleep(clock() - began)
