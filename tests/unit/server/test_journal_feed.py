import asyncio
import json
from collections.abc import Callable, Sequence
from errno import EMFILE
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.access.tokens import ANY, SYSTEM
from stateward.server.live import journal_feed as feeds
from stateward.server.live.journal_feed import Interest, JournalFeed
from stateward.store.errors import Unavailable
from stateward.store.filters import JournalFilter
from stateward.store.records import JournalEntry, Key
from stateward.store.topics import Topic

EVERYBODY = Interest(frozenset({ANY}), system=True)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "UNWATCHED_PAUSE_S", 0.0)


class Journal:
    """A store that is nothing but a journal, and counts how often it is read."""

    def __init__(self) -> None:
        self.all: list[JournalEntry] = []
        self.asked = 0
        self.broken = False
        self.errors: list[Exception] = []
        self._listeners: list[Callable[[Topic], None]] = []
        self.reader = self

    def commit(self, *places: tuple[str, str]) -> None:
        """Write lines, with gaps between their numbers, and tell of them."""
        for ns, kind in places:
            seq = self.all[-1].seq + 2 if self.all else 1
            self.all.append(JournalEntry(ns, "o", kind, None, 0.0, "user", "", "e", None, None, None, None, seq))
        for listener in self._listeners:
            listener(Topic.JOURNAL)

    async def journal(self, after: int, limit: int, only: JournalFilter) -> list[JournalEntry]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.broken:
            raise Unavailable("gone fishing")
        if self.errors:
            raise self.errors.pop()
        fitting = (line for line in self.all if only.ns in (None, line.ns) and only.kind in (None, line.kind))
        return [line for line in fitting if after < line.seq <= (only.upto or line.seq)][:limit]

    async def journal_reach(self, after: int, rows: int, ns: str | None) -> int | None:
        found = [line.seq for line in self.all if line.seq > after and ns in (None, line.ns)]
        return found[rows - 1] if len(found) >= rows else None

    async def object(self, key: Key) -> None:
        """Tell that nothing was ever pruned."""

    async def last_journal_seq(self) -> int:
        return self.all[-1].seq if self.all else 0

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


def encoded(line: JournalEntry, internal: bool) -> str:
    return json.dumps({"seq": line.seq, "ns": line.ns, "kind": line.kind})


async def opened(journal: Journal, keep: int = 1000) -> JournalFeed:
    feed = JournalFeed(journal, encoded, keep=keep)  # type: ignore[arg-type]
    await feed.start()
    return feed


async def read(feed: JournalFeed, interest: Interest, after: int, last: int) -> list[int]:
    """Read as a watcher does, until a number is reached; returns the numbers of the lines that came."""
    found: list[int] = []
    async with asyncio.timeout(120):
        while after < last:
            news = await feed.page(interest, after)
            message = json.loads(news.message)
            assert (len(message["lines"]), message["seq"]) == (news.count, news.seq)
            found += [line["seq"] for line in message["lines"]]
            if news.seq == after:
                await feed.wait_for_entries(after)
            assert news.seq >= after
            after = news.seq
    return found


PLACES = st.tuples(st.sampled_from(["a", "b", SYSTEM]), st.sampled_from(["x", "y"]))
NAMES = st.frozensets(st.sampled_from(["a", "b", ANY]))
INTERESTS = st.builds(
    Interest,
    NAMES,
    st.booleans(),
    st.none() | st.frozensets(st.sampled_from(["a", "b"])),
    st.none() | st.sampled_from(["x", "y"]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(PLACES, max_size=12),
    commits=st.lists(st.lists(PLACES, min_size=1, max_size=6), max_size=6),
    interest=INTERESTS,
    begin=st.integers(0, 30),
    keep=st.integers(1, 6),
)
def test_whoever_reads_from_wherever_gets_every_line_of_interest_once_and_in_order(
    before: list[tuple[str, str]],
    commits: list[list[tuple[str, str]]],
    interest: Interest,
    begin: int,
    keep: int,
) -> None:
    async def scene() -> None:
        journal = Journal()
        journal.commit(*before)
        feed = await opened(journal, keep)
        last = 2 * (len(before) + sum(map(len, commits))) - 1
        reading = asyncio.create_task(read(feed, interest, begin, last))
        for commit in commits:
            await asyncio.sleep(0)
            journal.commit(*commit)
        wanted = [line.seq for line in journal.all if line.seq > begin and interest.wants(line.ns, line.kind)]
        assert await reading == wanted
        await feed.stop()

    with patch.object(feeds, "PAGE_ENTRIES", 3), patch.object(feeds, "PAGE_MAX_CHARS", 100):
        asyncio.run(scene())


async def test_one_query_serves_all_readers_of_a_commit() -> None:
    journal = Journal()
    feed = await opened(journal)
    readers = [asyncio.create_task(read(feed, EVERYBODY, 0, 1)) for _ in range(50)]
    await asyncio.sleep(0)
    asked = journal.asked
    journal.commit(("a", "x"))
    assert await asyncio.gather(*readers) == [[1]] * 50
    assert journal.asked - asked <= 2
    await feed.stop()


async def test_equal_interests_share_one_message() -> None:
    journal = Journal()
    feed = await opened(journal)
    journal.commit(("a", "x"))
    await feed.wait_for_entries(0)
    twins = [Interest(frozenset({"a"})), Interest(frozenset({"a"}))]
    assert await feed.page(twins[0], 0) is await feed.page(twins[1], 0)
    await feed.stop()


async def test_pages_of_readers_at_many_places_are_not_all_kept() -> None:
    journal = Journal()
    feed = await opened(journal)
    journal.commit(*[("a", "x")] * 300)
    await feed.wait_for_entries(0)
    for after in range(300):
        await feed.page(EVERYBODY, after)
    assert len(feed._pages) == feeds.KEPT_PAGES
    assert await feed.page(EVERYBODY, 299) is await feed.page(EVERYBODY, 299)
    await feed.stop()


async def test_no_more_is_kept_than_was_said_and_the_rest_comes_from_the_store() -> None:
    journal = Journal()
    feed = await opened(journal, keep=10)
    for _ in range(100):
        journal.commit(("a", "x"))
        await feed.wait_for_entries(journal.all[-2].seq if len(journal.all) > 1 else 0)
    assert len(feed._entries) <= 20
    asked = journal.asked
    assert len(await read(feed, EVERYBODY, 0, journal.all[-1].seq)) == 100
    assert journal.asked > asked
    await feed.stop()


async def test_less_is_kept_while_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "UNWATCHED_CACHE_ENTRIES", 5)
    journal = Journal()
    feed = await opened(journal)
    feed.readers = 1
    journal.commit(*[("a", "x")] * 100)
    await read(feed, EVERYBODY, 0, journal.all[-1].seq)
    assert len(feed._entries) == 100
    feed.readers = 0
    journal.commit(("a", "x"))
    await feed.wait_for_entries(journal.all[-2].seq)
    assert len(feed._entries) <= 10
    await feed.stop()


async def test_listeners_hear_every_line_once() -> None:
    journal, heard = Journal(), list[int]()
    feed = await opened(journal)
    feed.listen(lambda lines: heard.extend(line.seq for line in lines))
    for _ in range(3):
        journal.commit(("a", "x"), (SYSTEM, "y"))
        await feed.wait_for_entries(journal.all[-2].seq)
    assert heard == [line.seq for line in journal.all]
    await feed.stop()


async def test_a_store_that_fails_for_a_while_costs_no_line() -> None:
    journal = Journal()
    feed = await opened(journal)
    journal.broken = True
    journal.commit(("a", "x"))
    with patch("stateward.server.live.journal_feed.RETRY_S", 0.0):
        # real time: reads may fail meanwhile; none has to
        await asyncio.sleep(0.01)
        journal.broken = False
        assert await read(feed, EVERYBODY, 0, 1) == [1]
    await feed.stop()


async def test_who_waits_is_let_go_when_it_is_over() -> None:
    feed = await opened(Journal())
    waiting = asyncio.create_task(feed.wait_for_entries(0))
    await asyncio.sleep(0)
    await feed.stop()
    await waiting
    assert feed.stopped


async def test_one_who_leaves_takes_nobody_along() -> None:
    journal = Journal()
    feed = await opened(journal)
    leaving, staying = (asyncio.create_task(feed.wait_for_entries(0)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    journal.commit(("a", "x"))
    await staying
    await feed.stop()


async def test_an_unexpected_error_ends_neither_the_feed_nor_its_other_listeners() -> None:
    journal = Journal()
    feed = await opened(journal)
    heard: list[int] = []

    def fail(_entries: Sequence[JournalEntry]) -> None:
        raise KeyError("a listener has a fault")

    feed.listen(fail)
    feed.listen(lambda entries: heard.extend(entry.seq for entry in entries))
    journal.errors.append(OSError(EMFILE, "Too many open files"))
    journal.commit(("a", "x"))
    assert await read(feed, EVERYBODY, 0, 1) == [1]
    assert heard == [1]
    await feed.stop()
