"""Pruning the history of an engine: current data stays, and pruned rows leave no trace."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from stateward.access.tokens import SYSTEM
from stateward.engine import Engine, NotFound, queries
from stateward.engine.errors import NoSuchOperation
from stateward.engine.maintenance.horizon import HISTORY, HISTORY_KEY, EntriesPruned, horizon
from stateward.engine.maintenance.retention import Pruned, history_kind, prune
from stateward.engine.queries import PastState, state_at
from stateward.lifecycle.check import check
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from stateward.store.records import Key
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP
from tests.waiting import until


async def now(store: Store) -> float:
    """Return a time that is later than everything so far."""
    moment = await store.reader.time()
    await until(store.reader.time, lambda now: now > moment)
    return await store.reader.time()


async def pruned(site: Site) -> Pruned:
    """Prune everything that has ended by now."""
    return await prune(site.engine.store, await now(site.engine.store))


async def scrapped(site: Site, name: str) -> None:
    """Build a pump, and remove it."""
    await site.built(name)
    await site.ended(await site.engine.act("ns", name, "scrap"))
    await site.engine.act("ns", name, "forget")


def test_the_lifecycle_of_the_history_is_sound() -> None:
    assert not check(HISTORY)
    assert history_kind().name == HISTORY.kind
    assert HISTORY_KEY.ns == SYSTEM


async def test_what_has_ended_goes_and_the_object_stays_as_it_is(site: Site) -> None:
    await site.built("p1")
    done = await site.ended(await site.engine.act("ns", "p1", "pump", key="once"))
    before = await site.engine.get("ns", "p1")
    await site.built("p2")  # so that the newest line is not about the first
    gone = await pruned(site)
    assert (gone.operations, gone.objects, gone.idempotency_records) == (3, 0, 1)
    assert await site.engine.get("ns", "p1") == before
    assert [line.event for line in await site.engine.history("ns", "p1")] == ["succeeded"]
    with pytest.raises(NoSuchOperation):
        await site.engine.wait("ns", done.id, 5)


async def test_what_is_under_way_stays_with_its_lines(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    accepted = await site.engine.act("ns", "p1", "pump")
    await until(lambda: site.plant.begun["pump"] == 1)
    assert (await pruned(site)).operations == 1
    assert [line.op for line in await site.engine.history("ns", "p1")][-1] == accepted.op.id
    site.plant.release()
    assert (await site.ended(accepted)).status == "succeeded"
    assert (await pruned(site)).operations == 1


async def test_a_removed_object_goes_and_its_name_begins_anew(site: Site) -> None:
    await scrapped(site, "p1")
    await site.built("p2")
    assert (await pruned(site)).objects == 1
    assert await site.engine.store.reader.object(Key("ns", "p1")) is None
    assert await site.engine.history("ns", "p1") == []
    with pytest.raises(NotFound):
        await site.engine.act("ns", "p1", "pump")
    await site.built("p1")
    found = await site.engine.get("ns", "p1")
    assert (found.version, found.generation, found.state) == (2, 1, "idle")


async def test_a_pruned_key_is_a_new_one(site: Site) -> None:
    await site.built("p1")
    first = await site.engine.act("ns", "p1", "pump", key="k")
    await site.ended(first)
    await pruned(site)
    second = await site.engine.act("ns", "p1", "pump", key="k")
    assert not second.again
    assert second.op.id != first.op.id


async def test_every_pruning_that_finds_something_is_journaled(site: Site) -> None:
    await site.built("p1")
    await site.built("p2")
    store, limit = site.engine.store, await now(site.engine.store)
    await site.built("p3")
    await prune(store, limit, who="ann")
    await prune(store, limit, who="bob")
    (line,) = await store.reader.journal(0, 10, JournalFilter(ns=SYSTEM))
    assert (line.kind, line.event, line.who, line.target) == (HISTORY.kind, "prune", "ann", "kept")
    assert line.reason is not None
    assert line.reason.startswith("2 operations, 0 removed objects, 2 journal entries and 0 idempotency records from ")
    assert datetime.fromisoformat(" ".join(line.reason.split()[-2:])).tzinfo == UTC


async def test_it_can_be_done_in_parts(site: Site) -> None:
    for number in range(3):
        await site.built(f"p{number}")
    store, limit = site.engine.store, await now(site.engine.store)
    first = await prune(store, limit, within=0.0, portion=2)
    assert (first.operations, first.next) == (1, 2)
    rest = await prune(store, limit, after=2)
    assert (rest.operations, rest.next) == (2, None)


async def test_two_who_prune_at_once_drop_everything_once(site: Site) -> None:
    for number in range(10):
        await scrapped(site, f"p{number}")
    await site.built("last")
    limit = await now(site.engine.store)
    both = await asyncio.gather(*(prune(site.engine.store, limit, portion=3) for _ in range(2)))
    assert sum(one.operations for one in both) == 21
    assert sum(one.objects for one in both) == 10


async def test_pruning_and_making_anew_do_not_harm_each_other(site: Site) -> None:
    names = [f"p{number}" for number in range(10)]
    for name in names:
        await scrapped(site, name)
    limit = await now(site.engine.store)
    _, *_ = await asyncio.gather(prune(site.engine.store, limit, portion=3), *(site.built(name) for name in names))
    assert {await site.state(name) for name in names} == {"idle"}
    assert all([await site.engine.history("ns", name) for name in names])


async def test_whoever_watches_from_behind_the_horizon_is_told(site: Site) -> None:
    await site.built("p1")
    await site.built("p2")
    store = site.engine.store
    await pruned(site)
    kept = await horizon(store.reader)
    with pytest.raises(EntriesPruned) as told:
        await anext(site.engine.watch(0))
    assert (told.value.after, told.value.horizon) == (0, kept.seq)
    assert (await anext(site.engine.watch(kept.seq))).seq > kept.seq


async def test_whoever_has_caught_up_goes_on_however_much_is_pruned(site: Site) -> None:
    await site.built("p1")
    watching = site.engine.watch(0, JournalFilter(ns="ns", object="p1"))
    assert [(await anext(watching)).event for _ in range(2)] == ["build", "succeeded"]
    following = asyncio.ensure_future(anext(watching))
    await site.built("p2")
    await pruned(site)
    await site.ended(await site.engine.act("ns", "p1", "pump"))
    async with asyncio.timeout(60):
        assert (await following).event == "pump"


async def test_a_reader_that_was_away_for_long_learns_that_entries_were_pruned(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "WATCH_POLL_MAX_S", 0.0)  # any time counts as long
    await site.built("p1")
    watching = site.engine.watch(0, JournalFilter(ns="ns"))
    assert (await anext(watching)).event == "build"
    last = await anext(watching)
    for name in ("p2", "p3", "p4"):
        await scrapped(site, name)
    await pruned(site)
    assert (await horizon(site.engine.store.reader)).seq > last.seq
    with pytest.raises(EntriesPruned):
        await anext(watching)


async def test_the_state_at_a_time_is_not_guessed(site: Site) -> None:
    reader = site.engine.store.reader
    await site.built("p1")
    early = await now(site.engine.store)
    await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert await state_at(reader, Key("ns", "p1"), early) == PastState("idle")
    await site.built("p2")
    await pruned(site)
    assert await state_at(reader, Key("ns", "p1"), early) == PastState(None, known=False)
    assert await state_at(reader, Key("ns", "p1"), await reader.time()) == PastState("idle")
    assert await state_at(reader, Key("ns", "nobody"), await reader.time()) == PastState(None)


async def test_an_engine_that_does_not_know_the_history_opens_a_pruned_database(
    new_store: Callable[[], Store], site: Site
) -> None:
    await site.built("p1")
    await site.built("p2")
    await pruned(site)
    async with Engine(new_store(), [site.plant.pump()], works=False) as other:
        assert (await other.get("ns", "p1")).kind == PUMP.kind
