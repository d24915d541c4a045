"""Batching: many callers, one transaction. While one batch is being written, the next one gathers by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Generic, TypeAlias, TypeVar

from stateward.aio.backoff import backoff_delay
from stateward.errors import StatewardError
from stateward.store.errors import StoreError, TimedOut, Unfit

BATCH_GATHER_S = 0.002
"""How many seconds a batch is given to gather after one of several items; whoever asks alone never waits."""

INITIAL_BATCH = 64
"""How many items the first batch takes at most, each further one twice as many: who comes with many begins soon."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Waiting: TypeAlias = tuple[Item, asyncio.Future[Answer], float]
"""An item, the answer to it, and until when that is to be given."""


class Batcher(Generic[Item, Answer]):
    """Collects items and hands them over in batches; each caller gets its own answer, or its own error.

    A store that is out of reach is tried again until `patience` seconds have passed since an item was submitted, and no
    attempt lasts longer: the programs that are run here can be repeated, even where the answer to a commit was lost. An
    item whose time is over is given up alone; the attempt is made again for the younger ones of its batch.
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
        self._waiting: list[Waiting[Item, Answer]] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> "asyncio.Future[Answer]":
        """Add an item to the next batch; the future is its answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, future, loop.time() + self._patience))
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
        size = INITIAL_BATCH
        while self._waiting:
            size = min(size, self._most)
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            size *= 2
            await self._answer(batch)
            if len(batch) > 1:
                await asyncio.sleep(BATCH_GATHER_S)

    async def _answer(self, batch: list[Waiting[Item, Answer]]) -> None:
        try:
            served, answers = await self._persist(batch)
        except asyncio.CancelledError:
            _let_go(batch)
            raise
        except Exception as error:
            if len(batch) > 1 and (isinstance(error, Unfit) or not isinstance(error, StoreError)):
                for one in batch:  # one bad item is to harm nobody else
                    await self._answer([one])
                return
            _fail(batch, error)
            return
        for (_, future, _), answer in zip(served, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, StatewardError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _persist(
        self, batch: list[Waiting[Item, Answer]]
    ) -> tuple[list[Waiting[Item, Answer]], Sequence[Answer | StatewardError]]:
        """Run a batch until it is done; returns the items that it was done for. All others have their error."""
        loop = asyncio.get_running_loop()
        error: StoreError = TimedOut(f"not even tried within {self._patience:g} seconds")
        attempt, pause = 0, 0.0
        while True:
            attempt += 1
            begins = loop.time() + pause
            if batch[0][2] <= begins:  # the first one is the oldest
                _fail([one for one in batch if one[2] <= begins], error)
                batch = [one for one in batch if one[2] > begins]
            if not batch:
                return [], []
            if pause:
                await asyncio.sleep(pause)
            try:
                async with asyncio.timeout_at(batch[0][2]):
                    return batch, await self._run([one[0] for one in batch])
            except TimeoutError:
                error = TimedOut(f"no answer within {self._patience:g} seconds")
            except StoreError as raised:
                if not raised.retry:
                    raise
                error = raised
            pause = backoff_delay(attempt, self._chance, first=0.05, longest=2.0)


def _fail(batch: Sequence[Waiting[Item, Answer]], error: Exception) -> None:
    for _, future, _ in batch:
        if not future.done():
            future.set_exception(error)


def _let_go(batch: Sequence[Waiting[Item, Answer]]) -> None:
    """Keep nobody waiting for an answer that will not come."""
    for _, future, _ in batch:
        future.cancel()
