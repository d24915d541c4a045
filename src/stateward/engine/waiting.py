"""Waiting for operations to end: one look for all who wait, whenever something was committed."""

import asyncio
from collections.abc import Callable

from stateward.engine.cancelling import NoSuchOperation
from stateward.store.errors import StoreError
from stateward.store.port import Store, Topic
from stateward.store.records import Key, Operation, Status

SAFETY = 1.0
"""How many seconds pass at most between two looks, should a wake-up call be lost."""

ENDED = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


class Waiting:
    """Those who wait, by the operation that they wait for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._futures: dict[Key, list[asyncio.Future[Operation]]] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to look."""
        self._unsubscribe = self._store.subscribe(self._told)
        self._task = asyncio.create_task(self._looking())

    async def stop(self) -> None:
        """Look no more; whoever still waits is told."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for futures in self._futures.values():
            for future in futures:
                future.cancel()

    async def ended(self, key: Key) -> Operation:
        """Return an operation when it has ended."""
        found = await self._store.reader.operation(key)
        if found is None:
            raise NoSuchOperation(*key)
        if found.status in ENDED:
            return found
        future: asyncio.Future[Operation] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, []).append(future)
        self._news.set()
        return await future

    def _told(self, topics: Topic) -> None:
        if topics & (Topic.JOURNAL | Topic.WORK) and self._futures:
            self._news.set()

    async def _looking(self) -> None:
        while True:
            await self._wait()
            for key in list(self._futures):
                try:
                    found = await self._store.reader.operation(key)
                except StoreError:
                    break
                if found is not None and found.status in ENDED:
                    for future in self._futures.pop(key):
                        if not future.done():
                            future.set_result(found)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(SAFETY if self._futures else None):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()
