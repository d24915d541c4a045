"""The journal can be read from any point, by what it is about."""

from msgspec.structs import replace

from stateward.store import JournalFilter, Store
from stateward.store.records import JournalEntry
from tests.contract.samples import NS, an_entry
from tests.contract.store_calls import write


async def events(store: Store, after: int = 0, limit: int = 100, **about: object) -> list[str]:
    """Return the events of the lines that are chosen."""
    return [line.event for line in await store.reader.journal(after, limit, JournalFilter(**about))]  # type: ignore[arg-type]


async def test_a_line_is_stored_as_it_is(store: Store) -> None:
    full = JournalEntry(
        NS, "vm", "vm", "op", 1.7e9 + 1 / 3, "user", "ann 日本", "resize", "A", "B", "because", '{"n": 1}'
    )
    bare = JournalEntry(NS, "vm", "vm", None, 0.0, "clock", "", "expire", None, None, None)
    await write(store, journal=[full, bare])
    first, second = await store.reader.journal(0, 10, JournalFilter())
    assert (first.seq, second.seq) == (first.seq, first.seq + 1)
    assert first == replace(full, seq=first.seq)
    assert second == replace(bare, seq=second.seq)


async def test_an_empty_journal_ends_at_nought(store: Store) -> None:
    assert await store.reader.last_journal_seq() == 0
    assert await events(store) == []


async def test_it_is_read_from_a_number_on_and_in_portions(store: Store) -> None:
    await write(store, journal=[an_entry(event=f"{number}") for number in range(10)])
    first = await store.reader.journal(0, 4, JournalFilter())
    assert [line.event for line in first] == ["0", "1", "2", "3"]
    assert await events(store, first[-1].seq, 3) == ["4", "5", "6"]
    assert await events(store, await store.reader.last_journal_seq()) == []


async def test_lines_are_chosen_by_what_they_are_about(store: Store) -> None:
    await write(
        store,
        journal=[
            an_entry("a", event="1", op="x", at=10.0),
            an_entry("b", event="2", kind="disk", actor="clock", at=20.0),
            an_entry("a", event="3", ns="other", at=30.0),
            an_entry("a", event="4", actor="worker", at=40.0),
        ],
    )
    assert await events(store, ns=NS) == ["1", "2", "4"]
    assert await events(store, ns=NS, object="a") == ["1", "4"]
    assert await events(store, object="a") == ["1", "3", "4"]
    assert await events(store, kind="disk") == ["2"]
    assert await events(store, op="x") == ["1"]
    assert await events(store, actor="worker") == ["4"]
    assert await events(store, ns=NS, object="a", actor="user") == ["1"]
    assert await events(store, ns=NS, object="nobody") == []


async def test_a_journal_is_read_up_to_a_number(store: Store) -> None:
    await write(store, journal=[an_entry(event=f"{number}") for number in range(10)])
    first, *_ = await store.reader.journal(0, 1, JournalFilter())
    assert await events(store, upto=first.seq + 2) == ["0", "1", "2"]
    assert await events(store, first.seq, ns=NS, object="a", upto=first.seq + 1) == ["1"]


async def test_the_newest_lines_are_read_backwards(store: Store) -> None:
    await write(store, journal=[an_entry("ab"[number % 2], event=f"{number}", at=number) for number in range(10)])

    async def back(before: int | None, limit: int, **about: object) -> list[str]:
        return [one.event for one in await store.reader.newest_entries(before, limit, JournalFilter(**about))]  # type: ignore[arg-type]

    assert await back(None, 3) == ["9", "8", "7"]
    assert await back(None, 2, ns=NS, object="a") == ["8", "6"]
    assert await back(None, 2, ns=NS, until=5.0) == ["4", "3"]
    (sixth,) = await store.reader.newest_entries(None, 1, JournalFilter(until=6.5))
    assert await back(sixth.seq, 100, ns=NS, object="b") == ["5", "3", "1"]


async def test_the_number_that_so_many_entries_reach_is_found(store: Store) -> None:
    await write(store, journal=[an_entry(ns=["a", "b"][number % 2]) for number in range(10)])
    numbers = [line.seq for line in await store.reader.journal(0, 10, JournalFilter())]
    assert await store.reader.journal_reach(0, 4, None) == numbers[3]
    assert await store.reader.journal_reach(numbers[3], 6, None) == numbers[-1]
    assert await store.reader.journal_reach(numbers[3], 7, None) is None
    assert await store.reader.journal_reach(numbers[0], 2, "a") == numbers[4]
    assert await store.reader.journal_reach(numbers[0], 5, "a") is None


async def test_times_are_chosen_from_the_beginning_and_before_the_end(store: Store) -> None:
    await write(store, journal=[an_entry(event=f"{at:.0f}", at=at) for at in (10.0, 20.0, 30.0)])
    assert await events(store, since=20.0) == ["20", "30"]
    assert await events(store, until=20.0) == ["10"]
    assert await events(store, since=10.0, until=30.0) == ["10", "20"]


async def test_an_objects_lines_are_read_from_a_number_on(store: Store) -> None:
    await write(store, journal=[an_entry("ab"[number % 2], event=f"{number}") for number in range(10)])
    lines = await store.reader.journal(0, 2, JournalFilter(ns=NS, object="b"))
    assert [line.event for line in lines] == ["1", "3"]
    assert await events(store, lines[-1].seq, 2, ns=NS, object="b") == ["5", "7"]


async def test_changes_of_state_are_counted_by_namespace_and_step_of_time(store: Store) -> None:
    others = [an_entry(at=125.0, target=None), an_entry(at=125.0, source="Running", target="Running")]
    await write(store, journal=[an_entry(at=119.9), an_entry(at=120.0, source=None), an_entry(at=179.9), *others])
    first = (await store.reader.journal(0, 1, JournalFilter()))[0].seq
    await write(store, journal=[an_entry(at=180.0), an_entry(at=200.0, ns="other")])
    found = {(NS, 0): 2, (NS, 1): 1, ("other", 1): 1}
    assert await store.reader.count_transitions(0, 120.0, 60) == found
    assert await store.reader.count_transitions(first + 1, 120.0, 60) == {**found, (NS, 0): 1}
    assert await store.reader.count_transitions(0, 500.0, 60) == {}
