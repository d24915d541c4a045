"""Calls that a test holds, so that something else happens exactly before or after they have had their effect."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

Moment = Literal["before", "after"]
TIMEOUT_S = 60.0


class HeldCalls:
    """The calls of one method; each waits at the moment until the test lets it pass."""

    def __init__(self) -> None:
        self._arrived, self._released = asyncio.Event(), asyncio.Event()
        self.made = 0
        """How many calls were made."""

    async def wait_for_arrival(self) -> None:
        """Wait until a call is held."""
        await asyncio.wait_for(self._arrived.wait(), TIMEOUT_S)

    async def hold(self) -> None:
        """Wait until the calls are released."""
        self._arrived.set()
        await self._released.wait()

    def release(self) -> None:
        """Let the calls pass from now on."""
        self._released.set()


@contextmanager
def hold_calls(owner: Any, method: str, moment: Moment) -> Iterator[HeldCalls]:
    """Hold the calls of a method of an object: before they are made, or made and before their answer is returned."""
    held, make = HeldCalls(), getattr(owner, method)

    async def call(*args: Any, **named: Any) -> Any:
        if moment == "before":
            await held.hold()
        held.made += 1
        answer = await make(*args, **named)
        if moment == "after":
            await held.hold()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, call)
        yield held
        held.release()
