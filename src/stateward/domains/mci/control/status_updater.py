"""MciStatusUpdater: an MCI at rest is told what its VMs add up to, whenever one of them has changed.

The journal tells which MCIs have news. Whoever reads it must not tire: should the store be away, or anything else go
wrong, the reader goes on from the line that it saw last, a while later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from stateward.aio.backoff import backoff_delay
from stateward.aio.supervise import cancel_tasks
from stateward.domains.mci.control.status_rollup import STATE_OF_EVENT, rollup_event
from stateward.domains.mci.lifecycle import MCI, VM, MciState
from stateward.engine import Denied, Engine
from stateward.engine.maintenance.horizon import EntriesPruned
from stateward.lifecycle import CONTROLLER, TRANSITIONAL
from stateward.store.errors import StoreError
from stateward.store.filters import JournalFilter, Selector
from stateward.store.records import Key

log = logging.getLogger("stateward.mci")

BATCH_WINDOW_S = 0.05
"""How many seconds news of VMs are gathered before their MCIs are looked at: thousands may come at once."""

RETRY_AFTER_S = 2.0
"""How many seconds pass before an MCI is looked at again that could not be."""

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.2, 30.0
"""How many seconds pass before the journal is read again: after one failure, and after one failure upon another."""


class MciStatusUpdater:
    """Brings MCIs in step with their VMs."""

    def __init__(self, engine: Engine, chance: Random) -> None:
        self._engine, self._chance = engine, chance
        self._last_seq: int | None = None  # the line of the journal that was read last
        self._dirty: set[Key] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Read the journal for as long as the process lives, whatever goes wrong on the way."""
        failures = 0
        while True:
            before = self._last_seq
            try:
                await self._read()
            except StoreError as error:
                log.warning("the journal is read again soon: %s", error)
            except EntriesPruned as gone:  # no VM had news for so long that all since then was pruned but what is new
                self._last_seq = gone.horizon
            except Exception:
                log.exception("the reading of the journal has failed and goes on")
            failures = 1 if self._last_seq != before else failures + 1
            await sleep(backoff_delay(failures, self._chance, BACKOFF_FIRST_S, BACKOFF_MAX_S))

    async def _read(self) -> None:
        if self._last_seq is None:
            self._last_seq = await self._engine.store.reader.last_journal_seq()
        async for line in self._engine.watch(self._last_seq, JournalFilter(kind=VM.kind)):
            self._last_seq = line.seq
            if line.target is not None and line.source != line.target:
                self.mark_dirty(Key(line.ns, line.object.partition(".")[0]))

    def mark_dirty(self, mci: Key, after: float = BATCH_WINDOW_S) -> None:
        """See to it that an MCI is looked at soon, however many of its VMs have news."""
        if not self._dirty:
            self._timer = asyncio.get_running_loop().call_later(after, self._start_update)
        self._dirty.add(mci)

    def _start_update(self) -> None:
        task = asyncio.ensure_future(self._update_dirty())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _update_dirty(self) -> None:
        restless, self._dirty = self._dirty, set()
        for mci in sorted(restless):
            try:
                await self.settle(*mci)
            except StoreError as error:
                log.warning("MCI %s of %s is looked at again later: %s", mci.id, mci.ns, error)
                self.mark_dirty(mci, RETRY_AFTER_S)
            except Exception:
                log.exception("MCI %s of %s could not be brought in step with its VMs", mci.id, mci.ns)

    async def settle(self, ns: str, mci: str) -> None:
        """Tell an MCI at rest what its VMs add up to, if it is something else."""
        await settle(self._engine, ns, mci)

    async def close(self) -> None:
        """Look at nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        await cancel_tasks(self._tasks)


async def settle(engine: Engine, ns: str, mci: str) -> None:
    """Tell an MCI at rest what its VMs add up to, if it is something else."""
    found = await engine.store.reader.object(Key(ns, mci))
    if found is None or found.removed or found.kind != MCI.kind:
        return
    if MCI.state(found.state).state_class is TRANSITIONAL:
        return
    counts = await engine.store.reader.count_states(Selector(ns, VM.kind, mci))
    states = [state for (_, state), number in counts.items() for _ in range(number)]
    if any(VM.state(state).state_class is TRANSITIONAL for state in states):
        return  # more news will follow
    event = rollup_event(states)
    if STATE_OF_EVENT[event] == found.state or (not states and found.state == MciState.FAILED):
        return
    with suppress(Denied):
        await engine.act(ns, mci, event, actor=CONTROLLER, version=found.version)
