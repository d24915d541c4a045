"""Locks by name, each of which exists only while somebody holds it or waits for it."""

import asyncio
from collections.abc import Hashable
from weakref import WeakValueDictionary


class NamedLocks:
    """Locks by name."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, name: Hashable) -> asyncio.Lock:
        """Return the lock of a name; whoever uses it with `async with` keeps it."""
        return self._locks.setdefault(name, asyncio.Lock())

    def __len__(self) -> int:
        """Return how many are in use."""
        return len(self._locks)
