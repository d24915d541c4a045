"""Readers see committed rows while writers work."""

import asyncio

import pytest
from msgspec.structs import replace

from stateward.store import Ended, Store
from stateward.store.records import Status
from tests.contract.samples import NS, a_timer, a_worker, accepted, an_object, an_operation, key, some_work
from tests.contract.store_calls import ask, claim_names, claim_work, send_heartbeats, until, write


async def status(store: Store, name: str) -> Status:
    """Return the status that readers see."""
    operation = await store.reader.operation(key(name))
    assert operation is not None
    assert isinstance(operation.status, Status)
    return operation.status


async def test_an_operation_is_stored_as_it_is(store: Store) -> None:
    full = an_operation(
        "full",
        "vm",
        hidden=True,
        within=0.5,
        generation=3,
        previous_spec="{}",
        parent="group",
        tree="t",
        status=Status.FAILED,
        attempts=2,
        steps='{"one": 1}',
        result="",
        error="0",
        created=1.7e9 + 1 / 3,
        started=11.5,
        ended=0.0,
    )
    await write(store, operations=[full, an_operation("plain")])
    assert await store.reader.operation(key("full")) == full
    assert await store.reader.operation(key("plain")) == an_operation("plain")
    assert await ask(store, "operations", [key("full"), key("nobody")]) == {key("full"): full}


async def test_what_is_not_there_is_none(store: Store) -> None:
    assert await store.reader.object(key("a")) is None
    assert await store.reader.operation(key("a")) is None
    assert await store.reader.operations_of(key("a"), 10) == []
    assert await store.reader.children_of(key("a")) == []
    assert await store.reader.queue_of(key("a")) == []
    assert await store.reader.progress_of(key("a"), 0) == []
    assert await store.reader.next_due_time() is None
    assert await store.reader.workers() == []


async def test_an_operation_that_somebody_works_on_is_shown_as_running(store: Store) -> None:
    await write(store, accepted("a", "b"))
    await ask(store, "claim", {"": 1}, "worker")
    assert (await status(store, "a"), await status(store, "b")) == (Status.RUNNING, Status.WAITING)
    assert [one.status for one in await store.reader.operations_of(key("on-a"), 5)] == [Status.RUNNING]
    stored = await ask(store, "operations", [key("a")])
    assert stored[key("a")].status is Status.WAITING


async def test_an_operation_that_another_party_works_on_is_shown_as_running(store: Store) -> None:
    await write(store, accepted("a", remote=True))
    assert await status(store, "a") is Status.RUNNING


async def test_an_operation_that_was_given_back_is_shown_as_waiting(store: Store) -> None:
    await write(store, accepted("a"))
    (claim,) = await claim_work(store)
    await write(store, work=[replace(claim.work, owner=None)])
    assert await status(store, "a") is Status.WAITING


async def test_the_end_of_an_operation_is_recorded(store: Store) -> None:
    await write(store, accepted("a", "b"))
    end = Ended(NS, "a", Status.FAILED, 3, 10.5, 20.5, None, "no such image")
    await write(store, ended=[end], work_gone=[key("a")])
    assert await store.reader.operation(key("a")) == an_operation(
        "a", "on-a", status=Status.FAILED, attempts=3, started=10.5, ended=20.5, error="no such image"
    )
    assert await status(store, "b") is Status.WAITING


async def test_an_operation_is_ended_and_its_arguments_are_masked_in_one_change(store: Store) -> None:
    await write(store, accepted("a", "b"))
    end = Ended(NS, "a", Status.SUCCEEDED, 1, 10.5, 20.5, None, None, '{"one": 1}')
    await write(store, ended=[end], masked_args=[(key("a"), '{"password":"***"}')], work_gone=[key("a")])
    found, other = await store.reader.operation(key("a")), await store.reader.operation(key("b"))
    assert found is not None
    assert other is not None
    assert (found.status, found.args, found.steps) == (Status.SUCCEEDED, '{"password":"***"}', '{"one": 1}')
    assert (other.status, other.args) == (Status.WAITING, an_operation("b", "on-b").args)


async def test_an_operation_that_has_ended_is_not_shown_as_running_while_its_fenced_work_stays(store: Store) -> None:
    await write(store, accepted("a"))
    (claim,) = await claim_work(store)
    end = Ended(NS, "a", Status.CANCELLED, 1, None, 20.5, "{}", None)
    await write(store, ended=[end], work=[replace(claim.work, fenced=True)])
    assert await status(store, "a") is Status.CANCELLED


async def test_steps_are_kept(store: Store) -> None:
    await write(store, operations=[an_operation("a"), an_operation("b")])
    await write(store, steps=[(key("a"), '{"network": "net-1"}')])
    found = await ask(store, "operations", [key("a"), key("b")])
    assert (found[key("a")].steps, found[key("b")].steps) == ('{"network": "net-1"}', "{}")


@pytest.mark.parametrize("others", [0, 50])
async def test_many_operations_are_read_at_once_as_they_are_stored(store: Store, others: int) -> None:
    names = ["a", *(f"other-{number}" for number in range(others))]
    operations = [an_operation(name) for name in names]
    await write(store, objects=[an_object("a")], operations=operations, new_work=[some_work("a")])
    assert await claim_names(store) == ["a"]
    found = await store.reader.operations([*map(key, names), key("nobody")])
    assert found.keys() == set(map(key, names))
    assert found[key("a")] == an_operation("a")


@pytest.mark.parametrize("others", [0, 50])
async def test_many_objects_are_read_at_once_with_those_that_are_removed(store: Store, others: int) -> None:
    names = ["gone", *(f"other-{number}" for number in range(others))]
    await write(store, objects=[an_object(name, removed=name == "gone") for name in names])
    found = await store.reader.objects([*map(key, names), *map(key, names), key("nobody")])
    assert found.keys() == set(map(key, names))
    assert found[key("gone")].removed
    assert await store.reader.objects([]) == {}


async def test_operations_of_an_object_come_newest_first(store: Store) -> None:
    for number, name in enumerate(("z", "a", "m")):
        await write(store, operations=[an_operation(name, created=float(number)), an_operation(f"{name}2", "other")])
    assert [one.id for one in await store.reader.operations_of(key("a"), 10)] == ["m", "a", "z"]
    assert [one.id for one in await store.reader.operations_of(key("a"), 2)] == ["m", "a"]


async def test_the_next_wake_is_the_earliest_of_timers_delays_and_deadlines(store: Store) -> None:
    now = await store.reader.time()
    await write(store, accepted("started", deadline=now + 300))
    assert await store.reader.next_due_time() == now + 300
    await write(store, accepted("delayed", not_before=now + 200))
    assert await store.reader.next_due_time() == now + 200
    await write(store, timers=[a_timer("t", now + 100)])
    assert await store.reader.next_due_time() == now + 100


async def test_a_timer_that_has_not_been_fired_wakes_at_once(store: Store) -> None:
    await write(store, timers=[a_timer("t", 12.5)])
    assert await store.reader.next_due_time() == 12.5


async def test_work_that_can_be_claimed_already_wakes_nobody_later(store: Store) -> None:
    await write(store, accepted("a"))
    await write(store, accepted("past", not_before=await store.reader.time() - 5))
    assert await store.reader.next_due_time() is None


async def test_delayed_work_that_could_not_be_claimed_wakes_nobody(store: Store) -> None:
    later = await store.reader.time() + 100
    await write(store, accepted("queued", ready=False, not_before=later))
    await write(store, accepted("parent", children=1, not_before=later))
    await write(store, accepted("remote", remote=True, not_before=later))
    assert await store.reader.next_due_time() is None


async def test_delayed_work_that_was_seen_when_it_fell_due_wakes_nobody_again(store: Store) -> None:
    due = await store.reader.time() + 0.02
    await write(store, accepted("a", not_before=due))
    await until(store, due)
    await ask(store, "lane_loads")
    assert await store.reader.next_due_time() is None


async def test_a_deadline_that_has_passed_under_a_live_worker_wakes_nobody(store: Store) -> None:
    now = await store.reader.time()
    await send_heartbeats(store, a_worker("alive"))
    await write(store, accepted("a", deadline=now - 5, owner="alive"))
    assert await store.reader.next_due_time() is None
    await write(store, accepted("b", deadline=now + 50, owner="alive"))
    assert await store.reader.next_due_time() == now + 50


async def test_many_readers_answer_while_writers_write(store: Store) -> None:
    await write(store, objects=[an_object("a")])

    async def count() -> int:
        found = 0
        for _ in range(20):
            found += (await store.reader.object(key("a"))) is not None
        return found

    writers = [write(store, objects=[an_object(f"o{number}")]) for number in range(40)]
    *counts, _ = await asyncio.gather(*(count() for _ in range(10)), asyncio.gather(*writers))
    assert counts == [20] * 10


async def test_a_question_that_makes_no_sense_is_an_error_and_harms_nothing(store: Store) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - each driver says it in its own way
        await store.reader.operations_of(key("a"), "many")  # type: ignore[arg-type]
    await write(store, new_work=[some_work("w")])
    assert len(await store.reader.queue_of(key("a"))) == 1


async def test_label_keys_are_those_of_objects_that_are_there(store: Store) -> None:
    objects = [
        an_object("a", labels='{"region": "eu", "tier": "web"}'),
        an_object("b", labels='{"region": "us"}'),
        an_object("c", labels='{"former": "x"}', removed=True),
    ]
    await write(store, objects=objects)
    assert await store.reader.label_keys([NS]) == ["region", "tier"]
    assert await store.reader.label_keys(["elsewhere"]) == []
