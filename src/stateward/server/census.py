"""Which namespaces there are: found in the journal, which names each of them, and then only looked for in new lines."""

import asyncio

from stateward.store.port import Store
from stateward.store.selection import JournalFilter

PAGE = 5_000
EVERYTHING = JournalFilter()


class Census:
    """The namespaces that have, or ever had, an object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[str] = set()
        self._seen = 0
        self._lock = asyncio.Lock()

    async def namespaces(self) -> list[str]:
        """Return all namespaces, in order."""
        async with self._lock:
            while lines := await self._store.reader.lines(self._seen, PAGE, EVERYTHING):
                self._known.update(line.ns for line in lines)
                self._seen = lines[-1].seq
        return sorted(self._known)
