"""Batching: many callers, one transaction. While one batch is being written, the next one gathers by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Generic, TypeVar

from stateward.engine.pacing import back_off
from stateward.errors import StatewardError
from stateward.store.errors import StoreError, Unfit

GATHER = 0.002
"""How many seconds a batch is given to gather after one of several items; whoever asks alone never waits."""

FIRST = 64
"""How many items the first batch takes at most, each further one twice as many: who comes with many begins soon."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Collects items and hands them over in batches; each caller gets its own answer, or its own error.

    A store that is out of reach is tried again until `patience` seconds have passed: the programs that are run here can
    be repeated, even where the answer to a commit was lost.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | StatewardError]]],
        chance: Random,
        *,
        most: int = 500,
        patience: float = 30.0,
    ) -> None:
        self._run = run
        self._chance = chance
        self._most = most
        self._patience = patience
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> "asyncio.Future[Answer]":
        """Add an item to the next batch; the future is its answer."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._begin()
        return future

    async def drain(self) -> None:
        """Wait until everything that was submitted has been answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._flush())
        self._task.add_done_callback(self._flushed)

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        """Go on with what came meanwhile; if the loop is being closed, which may be before the first step, let go."""
        self._task = None
        if task.cancelled():
            _let_go(self._waiting)
            self._waiting = []
        elif self._waiting:
            self._begin()

    async def _flush(self) -> None:
        size = FIRST
        while self._waiting:
            size = min(size, self._most)
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            size *= 2
            await self._answer(batch)
            if len(batch) > 1:
                await asyncio.sleep(GATHER)

    async def _answer(self, batch: list[tuple[Item, "asyncio.Future[Answer]"]]) -> None:
        try:
            answers: Sequence[Answer | StatewardError] = await self._persist([item for item, _ in batch])
        except asyncio.CancelledError:
            _let_go(batch)
            raise
        except Exception as error:
            if len(batch) > 1 and (isinstance(error, Unfit) or not isinstance(error, StoreError)):
                for one in batch:  # one bad item is to harm nobody else
                    await self._answer([one])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, StatewardError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _persist(self, items: Sequence[Item]) -> Sequence[Answer | StatewardError]:
        loop = asyncio.get_running_loop()
        patience = loop.time() + self._patience
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._run(items)
            except StoreError as error:
                pause = back_off(attempt, self._chance, first=0.05, longest=2.0)
                if not error.retry or loop.time() + pause > patience:
                    raise
                await asyncio.sleep(pause)


def _let_go(batch: Sequence[tuple[Item, "asyncio.Future[Answer]"]]) -> None:
    """Keep nobody waiting for an answer that will not come."""
    for _, future in batch:
        future.cancel()
