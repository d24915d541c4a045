"""A batcher: many callers, one call. While one batch is being processed, the next one fills up by itself.

A batch that fails with a passing error (`is_retryable`) is tried again until the oldest of its items times out. An
error that one item causes (`is_caused_by_item`) must not fail the others: their batch is then processed item by item.
A subclass says which errors these are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Generic, TypeAlias, TypeVar

from stateward.aio.backoff import backoff_delay

BATCH_GATHER_S = 0.002
"""How many seconds the next batch fills up after a batch of several items; a single caller never waits."""

INITIAL_BATCH_SIZE = 64
"""The size of the first batch of many items; each further batch may be twice as large, so that the first ends soon."""

RETRY_DELAY_S, RETRY_DELAY_MAX_S = 0.05, 2.0

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Pending: TypeAlias = tuple[Item, asyncio.Future[Answer], float]
"""An item, the future of its answer, and the loop's time at which the item times out."""


class Batcher(Generic[Item, Answer]):
    """Collects items and processes them in batches; each caller gets its own answer, or its own error.

    `process` must be repeatable: it runs again after a passing error, even if the call before it took effect and only
    its answer was lost. An item that is older than `timeout_s` fails alone; the younger ones of its batch are retried.
    """

    def __init__(
        self,
        process: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        random: Random,
        *,
        max_size: int = 500,
        timeout_s: float = 30.0,
    ) -> None:
        self._process = process
        self._random = random
        self._max_size = max_size
        self._timeout_s = timeout_s
        self._pending: list[Pending[Item, Answer]] = []
        self._task: asyncio.Task[None] | None = None

    def is_retryable(self, error: Exception) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether an error of a batch may pass."""
        return False

    def is_caused_by_item(self, error: Exception) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether a single item may have caused the error of a batch."""
        return True

    def timeout_error(self, message: str) -> Exception:
        """Return the error of an item that has timed out."""
        return TimeoutError(message)

    def submit(self, item: Item) -> "asyncio.Future[Answer]":
        """Add an item to the next batch; the future is its answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._pending.append((item, future, loop.time() + self._timeout_s))
        if self._task is None:
            self._start()
        return future

    async def drain(self) -> None:
        """Wait until every submitted item has its answer."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        self._task = asyncio.create_task(self._flush())
        self._task.add_done_callback(self._on_flushed)

    def _on_flushed(self, task: "asyncio.Task[None]") -> None:
        """Flush the items that arrived meanwhile; a flush that was cancelled (maybe unstarted) cancels them."""
        self._task = None
        if task.cancelled():
            _cancel(self._pending)
            self._pending = []
        elif self._pending:
            self._start()

    async def _flush(self) -> None:
        size = INITIAL_BATCH_SIZE
        while self._pending:
            size = min(size, self._max_size)
            batch, self._pending = self._pending[:size], self._pending[size:]
            size *= 2
            await self._answer(batch)
            if len(batch) > 1:
                await asyncio.sleep(BATCH_GATHER_S)

    async def _answer(self, batch: list[Pending[Item, Answer]]) -> None:
        try:
            processed, answers = await self._process_with_retries(batch)
        except asyncio.CancelledError:
            _cancel(batch)
            raise
        except Exception as error:
            if len(batch) > 1 and self.is_caused_by_item(error):
                for pending in batch:
                    await self._answer([pending])
                return
            _fail(batch, error)
            return
        for (_, future, _), answer in zip(processed, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _process_with_retries(
        self, batch: list[Pending[Item, Answer]]
    ) -> tuple[list[Pending[Item, Answer]], Sequence[Answer | Exception]]:
        """Process a batch until it succeeds; returns the processed items. The others have timed out, and failed."""
        loop = asyncio.get_running_loop()
        error = self.timeout_error(f"not even tried within {self._timeout_s:g} seconds")
        attempt, delay_s = 0, 0.0
        while True:
            attempt += 1
            start = loop.time() + delay_s
            if batch[0][2] <= start:  # the first item is the oldest
                _fail([pending for pending in batch if pending[2] <= start], error)
                batch = [pending for pending in batch if pending[2] > start]
            if not batch:
                return [], []
            if delay_s:
                await asyncio.sleep(delay_s)
            try:
                async with asyncio.timeout_at(batch[0][2]):
                    return batch, await self._process([pending[0] for pending in batch])
            except TimeoutError:
                error = self.timeout_error(f"no answer within {self._timeout_s:g} seconds")
            except Exception as raised:
                if not self.is_retryable(raised):
                    raise
                error = raised
            delay_s = backoff_delay(attempt, self._random, RETRY_DELAY_S, RETRY_DELAY_MAX_S)


def _fail(batch: Sequence[Pending[Item, Answer]], error: Exception) -> None:
    for _, future, _ in batch:
        if not future.done():
            future.set_exception(error)


def _cancel(batch: Sequence[Pending[Item, Answer]]) -> None:
    for _, future, _ in batch:
        future.cancel()
