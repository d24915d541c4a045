"""Queries on the journal cost what they return, however long the journal is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from stateward.engine.queries import FIRST_PAGE, PastState, state_at, watch_pages
from stateward.store.filters import JournalFilter
from stateward.store.port import Reader
from stateward.store.records import JournalEntry
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import an_entry, key
from tests.contract.store_calls import write


class CountedReads:
    """A store whose reads of the journal are recorded: the number each began after; and of those with a filter."""

    def __init__(self, store: SqliteStore) -> None:
        self._reader: Reader = store.reader
        self.subscribe = store.subscribe
        self.began: list[int] = []
        self.filtered: list[int] = []
        self.rows = 0  # read backwards
        self.on_read: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)

    @property
    def reader(self) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def newest_entries(self, before: int | None, limit: int, only: JournalFilter) -> list[JournalEntry]:
        found = await self._reader.newest_entries(before, limit, only)
        self.rows += len(found)
        return found

    async def journal(self, after: int, limit: int, only: JournalFilter) -> list[JournalEntry]:
        await self.on_read()
        self.began.append(after)
        if only != JournalFilter():
            self.filtered.append(after)
        return await self._reader.journal(after, limit, only)


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    """Give an open store."""
    store = SqliteStore(":memory:")
    await store.open()
    yield store
    await store.close()


async def test_a_follower_does_not_read_entries_again_that_do_not_match(store: SqliteStore) -> None:
    counted = CountedReads(store)
    async with aclosing(watch_pages(counted, 0, JournalFilter(kind="disk"))) as pages:
        following = asyncio.ensure_future(anext(pages))
        for number in range(1, 6):
            await write(store, journal=[an_entry()])
            while not counted.began or counted.began[-1] < number - 1:  # each commit has it read from the one before
                await asyncio.sleep(0)
                assert not following.done()
                if counted.began.count(0) > 3:
                    pytest.fail("the journal is read again from its beginning")
        await write(store, journal=[an_entry(kind="disk")])
        assert [entry.seq for entry in await following] == [6]


async def test_a_follower_misses_no_entry_that_is_committed_between_its_reads(store: SqliteStore) -> None:
    counted = CountedReads(store)

    async def commit_once() -> None:
        counted.on_read = lambda: asyncio.sleep(0)
        await write(store, journal=[an_entry(), an_entry(kind="disk"), an_entry()])

    counted.on_read = commit_once
    async with aclosing(watch_pages(counted, 0, JournalFilter(kind="disk"))) as pages:
        assert [entry.seq for entry in await anext(pages)] == [2]


async def test_the_state_at_a_time_is_read_from_that_time_backwards(store: SqliteStore) -> None:
    entries = [an_entry(at=float(number), target=f"S{number}" if number % 30 == 0 else None) for number in range(500)]
    await write(store, journal=entries)
    counted = CountedReads(store)
    assert await state_at(counted, key("a"), 600.0) == PastState("S480")
    assert counted.rows == FIRST_PAGE
    assert [(await state_at(counted, key("a"), at)).state for at in (89.0, 90.0, -1.0)] == ["S60", "S90", None]
