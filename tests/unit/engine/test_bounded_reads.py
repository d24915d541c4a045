"""Reads of the journal that look at a limited number of entries."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.engine import bounded_reads
from stateward.engine.bounded_reads import JournalRead, journal_bounds, last_seq_before, read_all, read_between
from stateward.engine.queries import recovered
from stateward.lifecycle import HEALER
from stateward.store.filters import JournalFilter
from stateward.store.records import JournalEntry
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import an_entry
from tests.contract.store_calls import write
from tests.unit.engine.test_queries import CountedReads

DAY = 86_400.0


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    """Give a store with a thousand entries of vm, one a day, after which one of disk was written."""
    store = SqliteStore(":memory:")
    await store.open()
    await write(store, journal=[an_entry(at=day * DAY) for day in range(1000)])
    await write(store, journal=[an_entry(kind="disk", actor=HEALER, at=1000 * DAY)])
    yield store
    await store.close()


class OrderedJournal:
    """A journal with entries of these times, and gaps between their numbers."""

    def __init__(self, times: list[float]) -> None:
        self._entries = [an_entry(at=at, seq=3 * number) for number, at in enumerate(times, 1)]

    async def journal(self, after: int, limit: int, _: JournalFilter) -> list[JournalEntry]:
        return [entry for entry in self._entries if entry.seq > after][:limit]


@given(st.lists(st.integers(0, 20), max_size=12).map(sorted), st.integers(0, 21), st.integers(0, 40))
async def test_the_last_entry_before_a_time_is_found(times: list[int], time: int, low: int) -> None:
    last = 3 * len(times)
    found = await last_seq_before(OrderedJournal([*map(float, times)]), time, low, max(low, last))  # type: ignore[arg-type]
    assert found == max([low, *(3 * number for number, at in enumerate(times, 1) if at < time and 3 * number > low)])


async def test_entries_of_a_time_are_read_from_near_there(store: SqliteStore) -> None:
    only = JournalFilter(kind="disk", since=999.5 * DAY)
    assert await journal_bounds(store.reader, 0, only) == (1000, 1001)
    assert await journal_bounds(store.reader, 0, JournalFilter(until=10.5 * DAY)) == (0, 11)
    assert [entry.seq for entry in await read_all(store.reader, 10, only)] == [1001]


async def test_what_was_recovered_is_read_from_the_given_time_on(store: SqliteStore) -> None:
    counted = CountedReads(store)
    assert [one.at for one in await recovered(counted, 999.5 * DAY)] == [1000 * DAY]
    assert counted.filtered == [1000, 1000]


async def test_a_read_stops_after_so_many_entries_that_do_not_match(store: SqliteStore) -> None:
    only = JournalFilter(kind="disk")
    assert await read_between(store.reader, 0, 1001, 10, only, 100) == JournalRead([], 100, is_end=False)
    last = await read_between(store.reader, 950, 1001, 10, only, 100)
    assert ([entry.seq for entry in last.entries], last.upto, last.is_end) == ([1001], 1001, True)
    assert await read_between(store.reader, 1001, 1001, 10, only, 100) == JournalRead([], 1001, is_end=True)


async def test_all_that_matches_is_found_over_several_reads(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_reads, "READ_ROWS", 300)
    assert [entry.seq for entry in await read_all(store.reader, 10, JournalFilter(kind="disk"))] == [1001]
    assert len(await read_all(store.reader, 700, JournalFilter(kind="vm"))) == 700
