"""The cache of host pools: reads of the journal that are shared, fail or are cancelled, and pruned removals."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stateward.domains.leases import pool_cache
from stateward.domains.leases.lifecycle import HOST, HostState
from stateward.domains.leases.model import HostSpec, host_key
from stateward.domains.leases.pool_cache import PoolCache
from stateward.engine.maintenance.retention import prune
from stateward.store.errors import StoreTimeout
from stateward.store.port import Store
from stateward.store.records import Object
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import an_entry, an_object
from tests.contract.store_calls import write

NS = "acme"


def a_host(name: str, **fields: object) -> Object:
    """Make a host that is up."""
    spec = msgspec.json.encode(HostSpec(name)).decode()
    return an_object(host_key(NS, name).id, kind=HOST.kind, state=HostState.UP.word, spec=spec, **fields)


class ScriptedReader:
    """A reader that returns the journal, as it was read, when the gate is open, and whose next calls can fail."""

    def __init__(self, store: Store) -> None:
        self._reader = store.reader
        self.gate = asyncio.Event()
        self.began: list[int] = []  # the numbers after which the journal was read
        self.failing: list[str] = []  # the names of methods of which one call fails
        self.at_gate = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def journal(self, *args: Any) -> Any:
        self._fail_once("journal")
        self.began.append(args[0])
        lines = await self._reader.journal(*args)
        self.at_gate.set()
        await self.gate.wait()
        return lines

    async def list_objects(self, *args: Any) -> Any:
        self._fail_once("list_objects")
        return await self._reader.list_objects(*args)

    def _fail_once(self, name: str) -> None:
        if name in self.failing:
            self.failing.remove(name)
            raise StoreTimeout("the database does not answer")


async def a_loaded_pool(store: SqliteStore) -> tuple[ScriptedReader, PoolCache]:
    """Return a cache with a pool of one host, and its reader, whose gate is closed."""
    await store.open()
    await write(store, objects=[a_host("h1")])
    reader = ScriptedReader(store)
    cache = PoolCache(reader)
    await cache.get(NS)
    return reader, cache


async def turns(number: int = 10) -> None:
    """Let the other tasks come to their next await."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_cancelled_search_keeps_no_other_from_the_pool() -> None:
    store = SqliteStore(":memory:")
    reader, cache = await a_loaded_pool(store)
    reading = asyncio.create_task(cache.get(NS))
    await reader.at_gate.wait()
    behind = asyncio.create_task(cache.get(NS))
    await turns()
    behind.cancel()
    await turns()
    reader.gate.set()
    await reading
    async with asyncio.timeout(30):
        assert len(await cache.get(NS)) == 1
    await store.close()


async def test_a_search_whose_shared_read_fails_does_not_get_an_old_pool() -> None:
    store = SqliteStore(":memory:")
    reader, cache = await a_loaded_pool(store)
    reading = asyncio.create_task(cache.get(NS))
    await reader.at_gate.wait()
    failed = replace(a_host("h1", version=2), state=HostState.FAILED.word)
    await write(store, objects=[failed], journal=[an_entry(failed.id, kind=HOST.kind)])
    reader.failing.append("journal")
    sharing = [asyncio.create_task(cache.get(NS)) for _ in range(2)]
    await turns()
    reader.gate.set()
    await reading
    answers = await asyncio.gather(*sharing, return_exceptions=True)
    assert [isinstance(one, StoreTimeout) for one in answers].count(True) >= 1
    for pool in (one for one in answers if not isinstance(one, BaseException)):
        assert [host.object.state for host in pool.hosts()] == [HostState.FAILED]
    await store.close()


async def test_a_search_does_not_read_the_entries_again_that_name_no_host() -> None:
    store = SqliteStore(":memory:")
    reader, cache = await a_loaded_pool(store)
    reader.gate.set()
    for _ in range(2):
        await write(store, journal=[an_entry() for _ in range(5)])
        await cache.get(NS)
    assert reader.began == [0, 5]
    await store.close()


async def test_a_host_whose_record_cannot_be_read_is_not_offered_and_the_others_are() -> None:
    store = SqliteStore(":memory:")
    await store.open()
    await write(store, objects=[a_host("h1"), replace(a_host("h2"), spec="[]"), a_host("h3")])
    assert [host.spec.name for host in (await PoolCache(store.reader).get(NS)).hosts()] == ["h1", "h3"]
    await store.close()


async def test_a_host_whose_removal_was_pruned_is_in_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_cache, "RELOAD_AFTER_S", -1.0)
    store = SqliteStore(":memory:")
    await store.open()
    key, left = host_key(NS, "h1"), host_key(NS, "h2")
    await write(store, objects=[a_host("h1"), a_host("h2")], journal=[an_entry(left.id, kind=HOST.kind, at=90.0)])
    reader = ScriptedReader(store)
    reader.gate.set()
    known = PoolCache(reader)
    assert len(await known.get(NS)) == 2
    await write(
        store,
        objects=[a_host("h1", version=2, removed=True)],
        journal=[an_entry(key.id, kind=HOST.kind, at=100.25), an_entry("z", at=5000.0)],
    )
    assert (await prune(store, 1000.0)).objects == 1
    reader.failing.append("list_objects")
    with pytest.raises(StoreTimeout):
        await known.get(NS)
    assert [host.spec.name for host in (await known.get(NS)).hosts()] == ["h2"]
    await store.close()
