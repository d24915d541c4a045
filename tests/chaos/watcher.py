"""A reader of the journal that reconnects again and again, and continues after the last number that it saw."""

import asyncio
from contextlib import aclosing, suppress
from random import Random

from stateward.engine.queries import watch
from stateward.store import open_store
from stateward.store.errors import StoreError
from stateward.store.records import JournalEntry


class Watcher:
    """Keeps every line that it is shown, in the order in which it is shown."""

    def __init__(self, store: str, chance: Random) -> None:
        self._store = store
        self._chance = chance
        self.lines: list[JournalEntry] = []
        self.connections = 0

    async def keep_watching(self) -> None:
        """Watch for ever, with a new connection every second or so."""
        while True:
            with suppress(StoreError, TimeoutError):
                await self._once(self._chance.uniform(0.2, 2.0))
            await asyncio.sleep(0.02)

    async def _once(self, seconds: float) -> None:
        store = open_store(self._store)
        await store.open()
        self.connections += 1
        try:
            stream = watch(store, self.lines[-1].seq if self.lines else 0, page=50)
            async with aclosing(stream), asyncio.timeout(seconds):  # type: ignore[type-var]
                async for line in stream:
                    self.lines.append(line)
        finally:
            await store.close()
