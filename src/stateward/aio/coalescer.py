"""A call coalescer: callers that ask for one item each at the same time share one call.

Tasks that were claimed together, or answered together, ask within the same iterations of the event loop. So a call is
sent after two iterations instead of after a fixed delay, and a single caller does not wait for others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

GATHER_ITERATIONS = 2
"""How many iterations of the event loop a call waits for items: some callers take one step more before they ask."""

CALL_END_TIMEOUT_S = 20.0
"""How many seconds a cancelled caller waits, at most, for the end of a call that was sent."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class CallWitness(Protocol):
    """Learns the fate of a call even if the caller has stopped waiting; a job is one."""

    def note_sent(self) -> None:
        """Note that the call was sent."""

    def note_answer(self, answer: object) -> None:
        """Note the answer, or the error that the call ended with."""


class PendingItem(Generic[Item, Answer]):
    """One item of a call: the future of its answer, its witness, and the call, once it was sent."""

    __slots__ = ("call", "future", "item", "witness")

    def __init__(self, item: Item, future: "asyncio.Future[Answer]", witness: CallWitness | None) -> None:
        self.item, self.future, self.witness = item, future, witness
        self.call: asyncio.Task[None] | None = None

    def answer(self, answer: Answer) -> None:
        """Pass the answer on."""
        if self.witness is not None:
            self.witness.note_answer(answer)
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Pass an error on."""
        if self.witness is not None:
            self.witness.note_answer(error)
        if not self.future.done():
            self.future.set_exception(error)


class CallCoalescer(Generic[Item, Answer]):
    """Sends items that are asked for at the same time as one call of at most `max_items`."""

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], max_items: int) -> None:
        self._send_items, self._max_items = send, max(1, max_items)
        self._pending: list[PendingItem[Item, Answer]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item, witness: CallWitness | None = None) -> Answer:
        """Return the answer to one item of a call."""
        loop = asyncio.get_running_loop()
        pending: PendingItem[Item, Answer] = PendingItem(item, loop.create_future(), witness)
        self._pending.append(pending)
        if len(self._pending) >= self._max_items:
            self._send()
        elif len(self._pending) == 1:
            loop.call_soon(self._send_after, GATHER_ITERATIONS)
        try:
            return await pending.future
        except asyncio.CancelledError:
            if pending.call is not None:
                await asyncio.wait([pending.call], timeout=CALL_END_TIMEOUT_S)
            elif pending in self._pending:
                self._pending.remove(pending)
            raise

    def _send_after(self, iterations: int) -> None:
        if iterations > 1:
            asyncio.get_running_loop().call_soon(self._send_after, iterations - 1)
        else:
            self._send()

    def _send(self) -> None:
        batch, self._pending = self._pending, []
        if not batch:
            return
        call = asyncio.ensure_future(self._call(batch))
        for pending in batch:
            pending.call = call
            if pending.witness is not None:
                pending.witness.note_sent()
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, batch: list[PendingItem[Item, Answer]]) -> None:
        unanswered = iter(batch)
        try:
            for answer in await self._send_items([pending.item for pending in batch]):
                next(unanswered).answer(answer)
        except Exception as error:
            failure = error
        else:
            failure = ValueError("there are fewer answers than items")
        for pending in unanswered:
            pending.fail(failure)
