"""Keeping time: timers are fired, and what is overdue is seen to, when it is time; nobody looks at clocks meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from stateward.engine.healer import settle_overdue
from stateward.engine.kinds import Kinds
from stateward.engine.timers import fire
from stateward.store.errors import StoreError
from stateward.store.port import Program, Store

T = TypeVar("T")

SAFETY = 5.0
"""How many seconds pass at most between two looks around, should every wake-up call be lost."""

SOON = 0.1
"""How many seconds pass before what is due, and could not be done, is tried again."""

SHORTLY = 0.05
"""How many seconds pass before the time of the next thing due is asked for again, after something has changed."""


class Patience(Protocol):
    """Runs a program, waiting for as long as the store is out of reach."""

    async def __call__(self, program: Program[T]) -> T: ...


class Timekeeper:
    """The part of a worker that knows when something falls due; what then can be claimed is told to the others."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        new_id: Callable[[], str],
        worker: str,
        patiently: Patience,
        tell: Callable[[], None],
    ) -> None:
        self.restless = asyncio.Event()  # something may fall due earlier than was known
        self._store, self._kinds, self._new_id = store, kinds, new_id
        self._worker, self._patiently, self._tell = worker, patiently, tell

    async def keep(self) -> None:
        """Keep time for ever."""
        while True:
            pause = await self._until_due()
            if pause <= 0 and not await self._do_what_is_due():
                pause = SOON  # it waits for somebody: for room in its lane, or for a free worker
            await self._nap(pause)

    async def _until_due(self) -> float:
        """Return in how many seconds something falls due; news that come later are heard."""
        self.restless.clear()
        try:
            wake = await self._store.reader.next_wake()
            return SAFETY if wake is None else wake - await self._store.reader.time()
        except StoreError:
            return SOON

    async def _do_what_is_due(self) -> int:
        fired = await self._patiently(lambda tx: fire(tx, self._kinds, self._new_id, 500))
        late = await self._patiently(lambda tx: settle_overdue(tx, self._kinds, self._worker, 100))
        self._tell()
        return fired + late

    async def _nap(self, pause: float) -> None:
        """Sleep, but not on when somebody may have added what falls due earlier; several such news are one."""
        try:
            async with asyncio.timeout(min(max(pause, 0.001), SAFETY)):
                await self.restless.wait()
            await asyncio.sleep(SHORTLY)
        except TimeoutError:
            self._tell()
