"""Durability: committed rows are there after a reopening, whatever their number."""

import pytest

from stateward.store import Changes, Ended, JournalFilter, Page, Selector, Store, Tx, migrations
from stateward.store.errors import Unavailable, WrongSchema
from stateward.store.records import LaneGroup, Status
from tests.contract.conftest import Place
from tests.contract.samples import (
    NS,
    a_key_record,
    a_worker,
    accepted,
    an_entry,
    an_object,
    an_operation,
    family,
    key,
    moved,
    some_work,
)
from tests.contract.store_calls import ask, send_heartbeats, write

MANY = 10_000


async def test_everything_is_there_after_closing_and_opening_again(store: Store, place: Place) -> None:
    await send_heartbeats(store, a_worker("w"))
    written = family()
    written.groups.append(LaneGroup("g", 3))
    await write(store, written)
    await store.close()
    again = place()
    await again.open()
    try:
        assert [await again.reader.object(key("o"))] == written.objects
        assert [await again.reader.operation(one.key) for one in written.operations] == written.operations
        assert [work.op for work in await again.reader.queue_of(key("o"))] == ["op", "child"]
        assert len(await again.reader.journal(0, 10, JournalFilter())) == 1
        assert len(await again.reader.progress_of(key("op"), 0)) == 1
        assert len(await again.reader.locks_of(key("tree"))) == 2
        assert len(await again.reader.timers(NS, 10)) == 1
        assert await ask(again, "idempotency_records", [key("k")]) == {key("k"): a_key_record("k")}
        assert [worker.id for worker in await again.reader.workers()] == ["w"]
        await write(again, accepted("next"))
        found = await ask(again, "work", [key("op"), key("next")])
        assert found[key("op")].seq < found[key("next")].seq
    finally:
        await again.close()


async def test_a_store_may_be_closed_twice_and_then_answers_no_more(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(Unavailable):
        await write(store, objects=[an_object("a")])
    with pytest.raises(Unavailable):
        await store.reader.object(key("a"))


async def test_a_schema_that_is_newer_than_the_program_is_refused(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "newest", lambda _: 0)
    with pytest.raises(WrongSchema, match="use a newer program"):
        await place().open()


async def test_ten_thousand_objects_go_through_as_one_batch_each_time(store: Store) -> None:
    names = [f"vm-{number:05}" for number in range(MANY)]
    objects = [an_object(name, parent="mci") for name in names]
    await write(store, objects=objects)

    async def suspend(tx: Tx) -> int:
        found = await tx.select(Selector(NS, parent="mci"))
        await tx.apply(
            Changes(
                objects=[moved(one, state="Suspending", op=f"op-{one.id}") for one in found],
                operations=[an_operation(f"op-{one.id}", one.id, parent="group") for one in found],
                new_work=[some_work(f"op-{one.id}", one.id) for one in found],
                journal=[an_entry(one.id, op=f"op-{one.id}") for one in found],
            )
        )
        return len(found)

    async def finish(tx: Tx) -> int:
        claims = await tx.claim({"": 2 * MANY}, "worker")
        found = await tx.objects([claim.object.key for claim in claims])
        works = [claim.work for claim in claims]
        await tx.apply(
            Changes(
                objects=[moved(one, state="Suspended", op=None) for one in found.values()],
                ended=[Ended(NS, work.op, Status.SUCCEEDED, 1, 1.0, 2.0, None, None) for work in works],
                work_gone=[work.key for work in works],
                journal=[an_entry(work.object, op=work.op) for work in works],
                children_ended=[key("group") for _ in works],
            )
        )
        return len(works)

    assert await store.transact(suspend) == MANY
    assert await store.transact(finish) == MANY
    assert await store.reader.count_states(Selector(NS)) == {("vm", "Suspended"): MANY}
    assert await store.reader.last_journal_seq() >= 2 * MANY
    last = await store.reader.list_objects(Selector(NS, kind="vm"), Page(names[-2], 10))
    assert last == [moved(objects[-1], version=3, state="Suspended", op=None)]
    assert len(await store.reader.children_of(key("group"))) == MANY
