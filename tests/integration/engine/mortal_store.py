"""A process's connection to a store, by which the process dies at one of its commits."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from stateward.store.changes import Changes
from stateward.store.port import Store, Tx, TxFunction
from stateward.store.records import Claim
from stateward.store.topics import Topic

T = TypeVar("T")
NOTHING = Changes()


class Died(Exception):
    """Rolls back the transaction in which the process dies."""


class WatchedTx:
    """A transaction that notes whether anything was written or claimed."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.wrote = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def apply(self, changes: Changes) -> None:
        await self._tx.apply(changes)
        self.wrote = self.wrote or changes != NOTHING

    async def claim(self, *args: Any) -> list[Claim]:
        claims = await self._tx.claim(*args)
        self.wrote = self.wrote or bool(claims)
        return claims


class MortalStore:
    """A store for a process that dies at its n-th commit, before or after it; then nothing gets through any more."""

    def __init__(self, inner: Store, dies_at: int, *, before: bool) -> None:
        self._inner = inner
        self._dies_at, self._before = dies_at, before
        self.commits = 0
        self.died = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Leave the connection open: a dead process closes nothing in order."""

    async def bury(self) -> None:
        """Close the connection for good."""
        await self._inner.close()

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        return self._inner.subscribe(lambda topics: None if self.died.is_set() else listener(topics))

    async def transact(self, function: TxFunction[T]) -> T:
        if self.died.is_set():
            await asyncio.Event().wait()
        seen: Any = None

        async def watched(tx: Tx) -> T:
            nonlocal seen
            seen = WatchedTx(tx)
            result = await function(seen)
            if self._before and seen.wrote and self.commits + 1 == self._dies_at:
                raise Died
            return result

        with suppress(Died):
            result = await self._inner.transact(watched)
            self.commits += seen.wrote
            if not seen.wrote or self.commits != self._dies_at:
                return result
        self.died.set()
        await asyncio.Event().wait()
        raise AssertionError("a dead process goes on")
