"""Subscribers are notified of commits of any process."""

import asyncio

import pytest
from msgspec.structs import replace

from stateward.store import ALL_TOPICS, Changes, Store, Topic, Tx
from tests.contract.samples import a_step, a_timer, accepted, an_entry, an_object, key, some_work
from tests.contract.store_calls import TopicRecorder, ask, write


async def test_new_work_is_heard_of(store: Store) -> None:
    ear = TopicRecorder(store)
    await write(store, accepted("a"))
    await ear.hears(Topic.WORK)


async def test_each_change_is_heard_as_what_it_may_concern(store: Store) -> None:
    await write(store, accepted("a", "b", "parent", children=1))
    work = (await ask(store, "work", [key("a")]))[key("a")]
    for changes, topic in (
        (Changes(journal=[an_entry()]), Topic.JOURNAL),
        (Changes(timers=[a_timer("t", 1e12)]), Topic.TIMER),
        (Changes(work=[work], fences_running_work=True), Topic.FENCE),
        (Changes(work=[work]), Topic.WORK),
        (Changes(children_ended=[key("parent")]), Topic.WORK),
        (Changes(work_gone=[key("b")]), Topic.WORK),
        (Changes(progress=[a_step("a", "half way")]), Topic.PROGRESS),
    ):
        ear = TopicRecorder(store)
        await write(store, changes)
        await ear.hears(topic)
        ear.stop()


async def test_a_listener_hears_only_what_it_may_concern(store: Store) -> None:
    ear = TopicRecorder(store)
    await write(store, journal=[an_entry()])
    await ear.hears(Topic.JOURNAL)
    assert set(ear.heard) == {Topic.JOURNAL}


async def test_work_that_has_its_owner_and_room_that_nobody_waits_for_are_no_news_for_workers(store: Store) -> None:
    ear = TopicRecorder(store)
    changes = accepted("a")
    changes.new_work = [replace(one, owner="w/1") for one in changes.new_work]
    await write(store, changes)
    await write(store, journal=[an_entry()], work_gone=[key("a")], frees_capacity=False)
    await write(store, timers=[a_timer("t", 1e12)])
    await ear.hears(Topic.TIMER)
    assert not any(heard & Topic.WORK for heard in ear.heard)


async def test_a_program_that_failed_is_not_heard_of(store: Store) -> None:
    async def fails(tx: Tx) -> None:
        await tx.apply(Changes(timers=[a_timer("t", 1e12)]))
        raise LookupError

    ear = TopicRecorder(store)
    with pytest.raises(LookupError):
        await store.transact(fails)
    await write(store, journal=[an_entry()])
    await ear.hears(Topic.JOURNAL)
    assert not any(heard & Topic.TIMER for heard in ear.heard)


async def test_what_is_heard_of_can_be_read(store: Store) -> None:
    ear = TopicRecorder(store)
    writing = asyncio.ensure_future(write(store, journal=[an_entry(event="seen")]))
    await ear.hears(Topic.JOURNAL)
    assert await store.reader.last_journal_seq() > 0
    await writing


async def test_who_has_stopped_listening_hears_nothing_more(store: Store) -> None:
    deaf, ear = TopicRecorder(store), TopicRecorder(store)
    deaf.stop()
    deaf.stop()
    await write(store, journal=[an_entry()])
    await ear.hears(Topic.JOURNAL)
    assert deaf.heard == []


async def test_the_commits_of_another_process_are_heard_of(store: Store, second: Store) -> None:
    ear = TopicRecorder(store)
    await write(second, accepted("a"))
    await ear.hears(Topic.WORK)
    await write(second, journal=[an_entry()])
    await ear.hears(Topic.JOURNAL)


async def test_both_sides_hear_each_other_while_both_are_busy(store: Store, second: Store) -> None:
    ears = [TopicRecorder(store), TopicRecorder(second)]
    for number in range(20):
        await asyncio.gather(
            write(store, objects=[an_object(f"left {number}")]), write(second, objects=[an_object(f"right {number}")])
        )
    await write(store, timers=[a_timer("left", 1e12)])
    await ears[1].hears(Topic.TIMER)
    await write(second, new_work=[some_work("right")])
    await ears[0].hears(Topic.WORK)


async def test_everything_is_all_that_can_be_heard(store: Store) -> None:
    assert all(topic in ALL_TOPICS for topic in Topic)
