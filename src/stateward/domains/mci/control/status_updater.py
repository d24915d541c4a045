"""MCI status updater: moves an MCI without an operation to the state that its VMs roll up to.

The updater follows the journal, marks MCIs whose VMs have changed as dirty, and updates them in batches. After a
failure it continues from the last journal entry that it has read.
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
"""How long changes of VMs are collected before their MCIs are updated: thousands may arrive at once."""

RETRY_AFTER_S = 2.0
"""How long an MCI stays dirty after a failed update."""

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.2, 30.0
"""Pause before the journal is read again: after the first failure, and at most."""


class MciStatusUpdater:
    """Keeps the states of MCIs in step with their VMs."""

    def __init__(self, engine: Engine, chance: Random) -> None:
        self._engine, self._chance = engine, chance
        self._last_seq: int | None = None  # the last journal entry that was read
        self._dirty: set[Key] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Follow the journal until cancelled; errors are logged and retried."""
        failures = 0
        while True:
            before = self._last_seq
            try:
                if self._last_seq is None:
                    self._last_seq = await self._engine.store.reader.last_journal_seq()
                async for entry in self._engine.watch(self._last_seq, JournalFilter(kind=VM.kind)):
                    self._last_seq = entry.seq
                    if entry.target is not None and entry.source != entry.target:
                        self.mark_dirty(Key(entry.ns, entry.object.partition(".")[0]))
            except StoreError as error:
                log.warning("MCI status updater: the store failed, the journal is read again soon: %s", error)
            except EntriesPruned as pruned:  # no VM has changed for as long as entries are kept
                self._last_seq = pruned.horizon
            except Exception:
                log.exception("MCI status updater failed; it continues after journal entry %s", self._last_seq)
            failures = 1 if self._last_seq != before else failures + 1
            await sleep(backoff_delay(failures, self._chance, BACKOFF_FIRST_S, BACKOFF_MAX_S))

    def mark_dirty(self, mci: Key, after: float = BATCH_WINDOW_S) -> None:
        """Update an MCI soon; further changes of its VMs join the same update."""
        if not self._dirty:
            self._timer = asyncio.get_running_loop().call_later(after, self._start_update)
        self._dirty.add(mci)

    def _start_update(self) -> None:
        task = asyncio.ensure_future(self._update_dirty())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _update_dirty(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for mci in sorted(dirty):
            try:
                await self.update(*mci)
            except StoreError as error:
                log.warning("MCI %s in namespace %s: status update postponed: %s", mci.id, mci.ns, error)
                self.mark_dirty(mci, RETRY_AFTER_S)
            except Exception:
                log.exception("MCI %s in namespace %s: status update failed", mci.id, mci.ns)

    async def update(self, ns: str, mci: str) -> None:
        """Update the state of one MCI."""
        await update_mci_status(self._engine, ns, mci)

    async def close(self) -> None:
        """Stop all updates."""
        if self._timer is not None:
            self._timer.cancel()
        await cancel_tasks(self._tasks)


async def update_mci_status(engine: Engine, ns: str, mci: str) -> None:
    """Move an MCI without an operation to the state that its VMs roll up to, if it is in another one."""
    record = await engine.store.reader.object(Key(ns, mci))
    if record is None or record.removed or record.kind != MCI.kind:
        return
    if MCI.state(record.state).state_class is TRANSITIONAL:
        return
    counts = await engine.store.reader.count_states(Selector(ns, VM.kind, mci))
    states = [state for (_, state), number in counts.items() for _ in range(number)]
    if any(VM.state(state).state_class is TRANSITIONAL for state in states):
        return  # these VMs will cause another update
    event = rollup_event(states)
    if STATE_OF_EVENT[event] == record.state or (not states and record.state == MciState.FAILED):
        return
    with suppress(Denied):
        await engine.act(ns, mci, event, actor=CONTROLLER, version=record.version)
