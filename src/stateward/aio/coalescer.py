"""Gathering: many who each ask for one thing share one call.

Those who were claimed together, or were answered together, ask in the same turn of the event loop. So nobody is kept
waiting for company by a clock: a call goes out as soon as all have spoken who are awake.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

TURNS = 2
"""How many turns of the event loop a call gathers: some take a step more than others before they ask."""

CALL_END_TIMEOUT_S = 20.0
"""How many seconds a cancelled caller waits, at most, for the end of a call that was sent."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Witness(Protocol):
    """Learns what becomes of a call, even if nobody waits for the answer any more; a job is one."""

    def note_sent(self) -> None:
        """Note that the call has gone out."""

    def note_answer(self, answer: object) -> None:
        """Note its answer, or the error that it ended with."""


class Asked(Generic[Item, Answer]):
    """What one asks for, who waits for the answer, and the call that it went out with, once it has."""

    __slots__ = ("call", "future", "item", "witness")

    def __init__(self, item: Item, future: "asyncio.Future[Answer]", witness: Witness | None) -> None:
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


class Gatherer(Generic[Item, Answer]):
    """Lumps together what is asked for at the same time, up to what one call may hold."""

    def __init__(self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], most: int) -> None:
        self._run, self._most = run, max(1, most)
        self._waiting: list[Asked[Item, Answer]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item, witness: Witness | None = None) -> Answer:
        """Return the answer to one item of a call."""
        loop = asyncio.get_running_loop()
        asked: Asked[Item, Answer] = Asked(item, loop.create_future(), witness)
        self._waiting.append(asked)
        if len(self._waiting) >= self._most:
            self._send()
        elif len(self._waiting) == 1:
            loop.call_soon(self._soon, TURNS)
        try:
            return await asked.future
        except asyncio.CancelledError:
            await self._let_go(asked)
            raise

    async def _let_go(self, asked: Asked[Item, Answer]) -> None:
        """Take back what was not sent yet. What was sent arrives: nobody is to act on the same before it has."""
        if asked.call is not None:
            await asyncio.wait([asked.call], timeout=CALL_END_TIMEOUT_S)
        elif asked in self._waiting:
            self._waiting.remove(asked)

    def _soon(self, turns: int) -> None:
        if turns > 1:
            asyncio.get_running_loop().call_soon(self._soon, turns - 1)
        else:
            self._send()

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        call = asyncio.ensure_future(self._call(batch))
        for asked in batch:
            asked.call = call
            if asked.witness is not None:
                asked.witness.note_sent()
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, batch: list[Asked[Item, Answer]]) -> None:
        left = iter(batch)
        try:
            for answer in await self._run([asked.item for asked in batch]):
                next(left).answer(answer)
        except Exception as error:
            broken = error
        else:
            broken = ValueError("there are fewer answers than items")
        for asked in left:
            asked.fail(broken)
