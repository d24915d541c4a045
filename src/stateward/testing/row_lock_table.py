"""The row locks of concurrent transactions on one event loop: waiting, deadlocks, and holders that have died."""

import asyncio
from collections.abc import Iterable
from contextvars import Context
from typing import Protocol, TypeAlias

from stateward.store.errors import WriteConflict
from stateward.testing.virtual_loop import LoopParty

LockKey: TypeAlias = tuple[str, ...]
"""What is locked: a table, and the key of a row in it."""

IDLE_S = 5.0
"""The time after which a transaction whose process stands still is rolled back, if another one waits for its locks."""


class LockingTransaction(Protocol):
    """A transaction that holds locks; `statements` counts its progress."""

    party: LoopParty | None
    statements: int
    is_lost: bool


class RowLockTable:
    """Who holds which lock, and who waits for whom."""

    def __init__(self) -> None:
        self._holders: dict[LockKey, LockingTransaction] = {}
        self._waits: dict[LockingTransaction, LockKey] = {}
        self._woken: dict[LockKey, list[asyncio.Future[None]]] = {}

    def is_held_by_other(self, holder: LockingTransaction, key: LockKey) -> bool:
        """Tell whether another transaction holds a lock; a killed process holds none."""
        other = self._holders.get(key)
        if other is not None and getattr(other.party, "dead", False):
            self._lose(other)
        return self._holders.get(key, holder) is not holder

    def held_by_others(self, holder: LockingTransaction, table: str) -> list[LockKey]:
        """Return the locked rows of a table that others hold."""
        return [key for key in list(self._holders) if key[0] == table and self.is_held_by_other(holder, key)]

    async def take(self, holder: LockingTransaction, keys: Iterable[LockKey], *, waits: bool = True) -> None:
        """Take locks in order; waits for their holders, unless that is a deadlock or must not be."""
        for key in keys:
            while self.is_held_by_other(holder, key):
                if not waits or self._is_deadlock(holder, key):
                    raise WriteConflict(f"another transaction holds {key}")
                loop, other = asyncio.get_running_loop(), self._holders[key]
                woken: asyncio.Future[None] = loop.create_future()
                self._woken.setdefault(key, []).append(woken)
                self._waits[holder] = key
                # In a context of its own: the database lives on if the process of the waiting transaction stands still.
                idle = loop.call_later(IDLE_S, self._expire, other, other.statements, context=Context())
                try:
                    await woken
                finally:
                    idle.cancel()
                    del self._waits[holder]
            self._holders[key] = holder

    def take_free(self, holder: LockingTransaction, key: LockKey) -> bool:
        """Take a lock if no other transaction holds it (SKIP LOCKED); returns whether it is held now."""
        if self.is_held_by_other(holder, key):
            return False
        self._holders[key] = holder
        return True

    def release(self, holder: LockingTransaction) -> None:
        """Release all locks of a transaction."""
        for key in [key for key, owner in self._holders.items() if owner is holder]:
            del self._holders[key]
            for waiting in self._woken.pop(key, ()):
                if not waiting.done():
                    waiting.set_result(None)

    def _is_deadlock(self, holder: LockingTransaction, key: LockKey) -> bool:
        other: LockingTransaction | None = self._holders[key]
        while other is not None and other is not holder:
            waited = self._waits.get(other)
            other = None if waited is None else self._holders.get(waited)
        return other is holder

    def _expire(self, holder: LockingTransaction, statements: int) -> None:
        if holder.statements == statements and holder not in self._waits:
            self._lose(holder)

    def _lose(self, holder: LockingTransaction) -> None:
        holder.is_lost = True
        self.release(holder)
