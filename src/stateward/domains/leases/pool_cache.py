"""Host pools by namespace that follow the journal: each search first applies what was committed since the last one."""

import asyncio
import logging
from collections.abc import Iterable

from stateward.domains.leases.host_pool import HostPool
from stateward.domains.leases.lifecycle import HOST
from stateward.domains.leases.model import host_key, read_host
from stateward.engine.maintenance.horizon import horizon
from stateward.engine.queries import PAGE_SIZE, list_all
from stateward.engine.troubles import FaultIsolation
from stateward.store.filters import JournalFilter, Selector
from stateward.store.port import Reader
from stateward.store.records import Key, Object

log = logging.getLogger("stateward.leases")

RELOAD_AFTER_S = 1800.0
"""Seconds without a search after which journal entries may have been pruned, so that pools are loaded anew."""


class PoolCache:
    """The pools of those namespaces that were searched."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._faults = FaultIsolation(log)
        self._pools: dict[str, HostPool] = {}
        self._last_seq = 0  # the last journal entry that was applied
        self._caught_up_at = 0.0
        self._lock = asyncio.Lock()
        self._next_round: asyncio.Future[None] | None = None

    async def get(self, ns: str) -> HostPool:
        """Return the current pool of a namespace."""
        if ns not in self._pools:
            async with self._lock:
                if ns not in self._pools:
                    await self._catch_up()
                    self._pools[ns] = await self._load(ns)
            return self._pools[ns]
        await self._catch_up_shared()
        return self._pools[ns]

    async def refresh_hosts(self, ns: str, names: Iterable[str]) -> None:
        """Reload hosts whose cached record is stale."""
        await self._reload_hosts({host_key(ns, name) for name in names})

    async def _load(self, ns: str) -> HostPool:
        pool = HostPool()
        async for one in list_all(self._reader, Selector(ns, kind=HOST.kind)):
            self._put_host(pool, one)
        return pool

    async def _catch_up_shared(self) -> None:
        """Catch up with the journal; callers that arrive meanwhile share the next round."""
        if self._next_round is not None:
            await asyncio.shield(self._next_round)
            return
        round_ = self._next_round = asyncio.get_running_loop().create_future()
        async with self._lock:
            self._next_round = None  # later callers may have seen commits that this round does not see
            try:
                await self._catch_up()
            finally:
                round_.set_result(None)

    async def _catch_up(self) -> None:
        if not self._pools:
            self._last_seq = await self._reader.last_journal_seq()
            return
        await self._reload_if_pruned()
        while True:
            lines = await self._reader.journal(self._last_seq, PAGE_SIZE, JournalFilter(kind=HOST.kind))
            await self._reload_hosts({Key(line.ns, line.object) for line in lines if line.ns in self._pools})
            if lines:
                self._last_seq = lines[-1].seq
            if len(lines) < PAGE_SIZE:
                return

    async def _reload_if_pruned(self) -> None:
        """Reload the pools after a long pause: the removal of a host may have been pruned from the journal."""
        now = asyncio.get_running_loop().time()
        long_ago, self._caught_up_at = now - self._caught_up_at > RELOAD_AFTER_S, now
        if long_ago and self._last_seq < (await horizon(self._reader)).seq:
            self._last_seq = await self._reader.last_journal_seq()
            for ns in list(self._pools):
                self._pools[ns] = await self._load(ns)

    async def _reload_hosts(self, keys: Iterable[Key]) -> None:
        for key in keys:
            found = await self._reader.object(key)
            if found is not None and key.ns in self._pools:
                self._put_host(self._pools[key.ns], found)

    def _put_host(self, pool: HostPool, found: Object) -> None:
        """Put a host into a pool; a host whose record cannot be read is skipped."""
        with self._faults.isolate(f"reading of host {found.id} in {found.ns}"):
            pool.put(read_host(found))
