"""Records are read back as they were written, whatever their values."""

import asyncio
import sqlite3
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from stateward.store import Changes, Ended, JournalFilter, Tx
from stateward.store.records import (
    IdempotencyRecord,
    JournalEntry,
    Lane,
    LaneGroup,
    Lock,
    Object,
    Operation,
    Progress,
    Signal,
    Status,
    Timer,
    WorkerRecord,
    WorkItem,
)
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import NS, an_entry, an_object, an_operation, key, some_work

TABLES: dict[str, type[Struct]] = {
    "objects": Object,
    "operations": Operation,
    "work": WorkItem,
    "journal": JournalEntry,
    "progress": Progress,
    "signals": Signal,
    "locks": Lock,
    "timers": Timer,
    "answers": IdempotencyRecord,
    "lanes": Lane,
    "lane_groups": LaneGroup,
    "workers": WorkerRecord,
}
INTERNAL = {"delayed"}

texts = st.text(st.characters(codec="utf-8"))
maybe = st.none() | texts
times = st.floats(allow_nan=False)
UNHURRIED = settings(deadline=None)
numbers = st.integers(-(2**63), 2**63 - 1)


async def opened() -> SqliteStore:
    """Open a store in memory."""
    store = SqliteStore(":memory:")
    await store.open()
    return store


def connection_of(store: SqliteStore) -> sqlite3.Connection:
    """Return what a store in memory works on."""
    return store._writer.writer_connection.connection


@pytest.mark.parametrize("table", TABLES)
async def test_each_table_has_the_columns_of_its_record_in_their_order(table: str) -> None:
    store = await opened()
    rows = connection_of(store).execute(f"PRAGMA table_info({table})").fetchall()
    assert tuple(row[1] for row in rows if row[1] not in INTERNAL) == TABLES[table].__struct_fields__
    await store.close()


@UNHURRIED
@given(state=texts, op=maybe, error=maybe, spec=texts, since=times, generation=numbers, removed=st.booleans())
def test_any_object_comes_back_as_it_was(**fields: Any) -> None:
    one = an_object("a", **fields)

    async def there_and_back() -> tuple[Object, Object | None]:
        store = await opened()

        async def function(tx: Tx) -> Object:
            await tx.apply(Changes(objects=[one]))
            return (await tx.objects([key("a")]))[key("a")]

        both = await store.transact(function), await store.reader.object(key("a"))
        await store.close()
        return both

    assert asyncio.run(there_and_back()) == (one, one)


@UNHURRIED
@given(line=st.builds(an_entry, op=maybe, at=times, who=texts, source=maybe, target=maybe, reason=maybe, spec=maybe))
def test_any_line_comes_back_as_it_was(line: JournalEntry) -> None:
    async def there_and_back() -> JournalEntry:
        store = await opened()

        async def function(tx: Tx) -> None:
            await tx.apply(Changes(journal=[line]))

        await store.transact(function)
        (back,) = await store.reader.journal(0, 10, JournalFilter())
        await store.close()
        return back

    back = asyncio.run(there_and_back())
    assert back == replace(line, seq=back.seq)


@UNHURRIED
@given(within=st.floats(0, 1e12), deadline=st.none() | times, result=maybe, count=st.integers(1, 600))
def test_any_number_of_claims_comes_with_all_that_was_stored(
    within: float, deadline: float | None, result: str | None, count: int
) -> None:
    names = [f"op{number}" for number in range(count)]
    operations = [an_operation(name, within=within, result=result, started=deadline) for name in names]

    async def function(tx: Tx) -> list[Operation]:
        work = [some_work(name, deadline=deadline) for name in names]
        await tx.apply(Changes(objects=[an_object("a")], operations=operations, new_work=work))
        claims = await tx.claim({"": 1000}, "worker")
        stored = await tx.work([key(name) for name in names])
        assert [claim.work for claim in claims] == [stored[key(name)] for name in names]
        return [claim.operation for claim in claims]

    async def there_and_back() -> list[Operation]:
        store = await opened()
        claimed = await store.transact(function)
        await store.close()
        return claimed

    assert asyncio.run(there_and_back()) == operations


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 511, 700])
async def test_a_batch_of_any_size_is_written_whole(count: int) -> None:
    names = [f"op{number}" for number in range(count)]

    async def function(tx: Tx) -> list[tuple[str, str | None, int]]:
        await tx.apply(Changes(operations=[an_operation(name) for name in names]))
        await tx.apply(Changes(ended=[Ended(NS, name, Status.FAILED, 7, None, 9.5, name, None) for name in names]))
        found = await tx.operations([key(name) for name in names])
        return [(one.id, one.result, one.attempts) for one in found.values()]

    store = await opened()
    assert sorted(await store.transact(function)) == sorted((name, name, 7) for name in names)
    await store.close()
