"""A pool that was not searched for a long time is loaded again: the removal of a host may have been pruned."""

import msgspec
import pytest
from msgspec.structs import replace

from stateward.domains.leases import pool_cache
from stateward.domains.leases.lifecycle import HOST, HostState
from stateward.domains.leases.model import HostSpec, host_key
from stateward.domains.leases.pool_cache import PoolCache
from stateward.engine.maintenance.retention import prune
from stateward.store.records import Object
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import an_entry, an_object
from tests.contract.store_calls import write

NS = "acme"


def a_host(name: str, **fields: object) -> Object:
    """Make a host that is up."""
    spec = msgspec.json.encode(HostSpec(name)).decode()
    return an_object(host_key(NS, name).id, kind=HOST.kind, state=HostState.UP.word, spec=spec, **fields)


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
    known = PoolCache(store.reader)
    assert len(await known.get(NS)) == 2
    await write(
        store,
        objects=[a_host("h1", version=2, removed=True)],
        journal=[an_entry(key.id, kind=HOST.kind, at=100.25), an_entry("z", at=5000.0)],
    )
    assert (await prune(store, 1000.0)).objects == 1
    assert [host.spec.name for host in (await known.get(NS)).hosts()] == ["h2"]
    await store.close()
