"""The services of a backend that have changed: each waits once for its reader, however often it changes."""

import asyncio
from collections.abc import AsyncIterator

from stateward.domains.systems.backends.port import ServiceRef


class ChangedServices:
    """Services in the order of their changes, for one reader; where nobody reads, the writer discards what is gone."""

    def __init__(self) -> None:
        self._waiting: dict[ServiceRef, None] = {}
        self._has_some = asyncio.Event()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def add(self, ref: ServiceRef) -> None:
        """Note a change of a service."""
        self._waiting[ref] = None
        self._has_some.set()

    def discard(self, ref: ServiceRef) -> None:
        """Forget a service that does not exist any more."""
        self._waiting.pop(ref, None)

    async def __aiter__(self) -> AsyncIterator[ServiceRef]:
        """Yield the services, for ever."""
        while True:
            while not self._waiting:
                self._has_some.clear()
                await self._has_some.wait()
            ref = next(iter(self._waiting))
            del self._waiting[ref]
            yield ref
