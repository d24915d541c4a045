"""Numbers are given by the store, in the order of acceptance; the journal's in the order of commits."""

import asyncio

from stateward.store import Changes, JournalFilter, Store, Tx
from tests.contract.samples import NS, a_lock, a_step, accepted, an_entry, an_object, an_operation, key, some_work
from tests.contract.store_calls import ask, claim_work, write

EVERYTHING = JournalFilter()


async def numbers(store: Store, *names: str) -> list[int]:
    """Return the numbers of work."""
    found = await ask(store, "work", [key(name) for name in names])
    return [found[key(name)].seq for name in names]


async def test_work_is_numbered_in_the_order_of_acceptance(store: Store) -> None:
    await write(store, accepted("c", "a", "b"))
    await write(store, accepted("0"))
    given = await numbers(store, "c", "a", "b", "0")
    assert given == sorted(set(given))
    assert given[0] > 0


async def test_work_that_has_a_number_keeps_it(store: Store) -> None:
    await write(store, accepted("a", seq=700))
    await write(store, operations=[an_operation("b"), an_operation("c")], new_work=[some_work("b", seq=650)])
    assert await numbers(store, "a", "b") == [700, 650]


async def test_the_number_of_work_that_is_gone_does_not_come_back(store: Store) -> None:
    await write(store, accepted("a"))
    (before,) = await numbers(store, "a")
    await write(store, work_gone=[key("a")])
    await write(store, accepted("b"))
    (after,) = await numbers(store, "b")
    assert after > before


async def test_locks_are_numbered_in_the_order_of_asking(store: Store) -> None:
    await write(store, locks=[a_lock("z", "/z"), a_lock("a", "/a")])
    await write(store, locks=[a_lock("b", "/b"), a_lock("c", "/c", seq=5000)])
    found = await store.reader.locks_of(key("tree"))
    assert [one.op for one in found] == ["z", "a", "b", "c"]
    assert found[-1].seq == 5000
    assert len({one.seq for one in found}) == 4


async def test_lines_of_the_journal_keep_their_order_within_a_batch(store: Store) -> None:
    events = [f"event {number}" for number in range(700)]
    await write(store, journal=[an_entry(event=event) for event in events])
    lines = await store.reader.journal(0, 1000, EVERYTHING)
    assert [line.event for line in lines] == events
    given = [line.seq for line in lines]
    assert given == sorted(set(given))
    assert await store.reader.last_journal_seq() == given[-1]


async def test_a_number_that_a_line_brings_along_is_ignored(store: Store) -> None:
    await write(store, journal=[an_entry(seq=900)])
    await write(store, journal=[an_entry(seq=1)])
    first, then = await store.reader.journal(0, 10, EVERYTHING)
    assert first.seq < then.seq


async def test_progress_is_numbered_in_its_order(store: Store) -> None:
    await write(store, progress=[a_step("op", "one"), a_step("op", "two", done=0, total=2)])
    await write(store, progress=[a_step("op", "three", done=2, total=2), a_step("other", "other")])
    found = await store.reader.progress_of(key("op"), 0)
    assert [(one.text, one.done, one.total) for one in found] == [("one", None, None), ("two", 0, 2), ("three", 2, 2)]
    assert [one.text for one in await store.reader.progress_of(key("op"), found[0].seq)] == ["two", "three"]


async def test_numbers_go_on_between_two_stores(store: Store, second: Store) -> None:
    for number in range(6):
        await write((store, second)[number % 2], accepted(f"op{number}"))
    given = await numbers(store, *(f"op{number}" for number in range(6)))
    assert given == sorted(set(given))


async def test_a_reader_never_finds_a_line_before_one_that_it_has_seen(store: Store, second: Store) -> None:
    """Many writers write lines at once, and hold on for a while; meanwhile a reader follows the journal's end."""
    writers, rounds = 12, 8
    seen: list[int] = []

    async def follow(reader_of: Store) -> None:
        while len(seen) < writers * rounds * 2:
            lines = await reader_of.reader.journal(seen[-1] if seen else 0, 1000, EVERYTHING)
            seen.extend(line.seq for line in lines)

    async def busy(one: Store, name: str) -> None:
        async def function(tx: Tx) -> None:
            await tx.objects([key(name)])
            await tx.apply(Changes(journal=[an_entry(name), an_entry(name)]))
            for _ in range(3):
                await tx.objects([key(name)])

        for _ in range(rounds):
            await one.transact(function)

    await write(store, objects=[an_object(f"o{number}") for number in range(writers)])
    crowd = [busy((store, second)[number % 2], f"o{number}") for number in range(writers)]
    await asyncio.gather(follow(second), *crowd)
    everything = [line.seq for line in await store.reader.journal(0, 10_000, EVERYTHING)]
    assert seen == everything
    assert len(everything) == writers * rounds * 2


async def test_the_last_line_promises_that_nothing_comes_before_it(store: Store, second: Store) -> None:
    last: list[int] = []
    done = asyncio.Event()

    async def follow() -> None:
        while not done.is_set():
            end = await second.reader.last_journal_seq()
            known = len(await second.reader.journal(0, 10_000, EVERYTHING))
            last.append(end)
            upto = [line for line in await store.reader.journal(0, 10_000, EVERYTHING) if line.seq <= end]
            assert len(upto) <= known

    async def crowd() -> None:
        await asyncio.gather(*(write(store, journal=[an_entry(f"o{number}")]) for number in range(60)))
        done.set()

    await asyncio.gather(follow(), crowd())
    assert last == sorted(last)


async def test_claims_carry_the_numbers_that_were_given(store: Store) -> None:
    await write(store, accepted("a", "b"))
    given = await numbers(store, "a", "b")
    assert [claim.work.seq for claim in await claim_work(store)] == given
    assert [one.seq for one in await ask(store, "queues", [key("on-a")])] == given[:1]
    assert (await store.reader.queue_of(key("on-b")))[0].ns == NS
