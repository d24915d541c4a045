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
"""Seconds without a search after which journal entries may have been pruned, so that pools are loaded again."""


class PoolCache:
    """The pools of those namespaces that were searched."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._faults = FaultIsolation(log)
        self._pools: dict[str, HostPool] = {}
        self._last_seq = 0  # the last journal entry that was applied
        self._caught_up_at = 0.0
        self._lock = asyncio.Lock()
        self._calls = 0
        self._answered_calls = 0  # calls that came before the journal was last read

    async def get(self, ns: str) -> HostPool:
        """Return the current pool of a namespace; callers that wait for the journal at the same time share a read.

        A read that fails or is cancelled answers nobody: the next caller reads again.
        """
        self._calls += 1
        call = self._calls
        async with self._lock:
            if call > self._answered_calls or ns not in self._pools:
                calls = self._calls
                await self._catch_up()
                if ns not in self._pools:
                    self._pools[ns] = await self._load(ns)
                self._answered_calls = calls
            return self._pools[ns]

    async def refresh_hosts(self, ns: str, names: Iterable[str]) -> None:
        """Reload hosts whose cached record is stale."""
        await self._reload_hosts({host_key(ns, name) for name in names})

    async def _load(self, ns: str) -> HostPool:
        pool = HostPool()
        async for record in list_all(self._reader, Selector(ns, kind=HOST.kind)):
            self._put_host(pool, record)
        return pool

    async def _catch_up(self) -> None:
        if not self._pools:
            self._last_seq = await self._reader.last_journal_seq()
            return
        now = asyncio.get_running_loop().time()
        # after a long pause, the removal of a host may have been pruned from the journal
        if now - self._caught_up_at > RELOAD_AFTER_S and self._last_seq < (await horizon(self._reader)).seq:
            seq = await self._reader.last_journal_seq()
            self._pools = {ns: await self._load(ns) for ns in self._pools}
            self._last_seq = seq
        last = await self._reader.last_journal_seq()  # first: what is committed meanwhile has a greater number
        while True:
            lines = await self._reader.journal(self._last_seq, PAGE_SIZE, JournalFilter(kind=HOST.kind))
            await self._reload_hosts({Key(line.ns, line.object) for line in lines if line.ns in self._pools})
            if lines:
                self._last_seq = lines[-1].seq
            if len(lines) < PAGE_SIZE:
                self._last_seq = max(self._last_seq, last)  # no host is named up to there
                break
        self._caught_up_at = now

    async def _reload_hosts(self, keys: Iterable[Key]) -> None:
        for key in keys:
            record = await self._reader.object(key)
            if record is not None and key.ns in self._pools:
                self._put_host(self._pools[key.ns], record)

    def _put_host(self, pool: HostPool, record: Object) -> None:
        """Put a host into a pool; a host whose record cannot be read is skipped."""
        with self._faults.isolate(f"reading of host {record.id} in {record.ns}"):
            pool.put(read_host(record))
