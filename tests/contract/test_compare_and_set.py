"""The state of an object changes only from the version that was read."""

import asyncio

import pytest

from stateward.store import Changes, Store, Tx
from stateward.store.errors import WriteConflict
from tests.contract.samples import an_entry, an_object, an_operation, key, moved
from tests.contract.store_calls import ask, stored, write


async def test_a_new_object_is_stored_as_it_is(store: Store) -> None:
    one = an_object(
        "a",
        state="Größe 大",
        op="op",
        parent="mci",
        spec='{"a": 1}',
        labels='{"b": "c"}',
        error="0",
        since=1.7e9 + 1 / 3,
    )
    await write(store, objects=[one])
    assert await stored(store, "a") == one


async def test_empty_text_and_no_text_are_told_apart(store: Store) -> None:
    await write(store, objects=[an_object("empty", error="", parent=""), an_object("none")])
    assert (await stored(store, "empty")).error == ""
    assert (await stored(store, "empty")).parent == ""
    assert (await stored(store, "none")).error is None


async def test_truth_values_come_back_as_truth_values(store: Store) -> None:
    await write(store, objects=[an_object("a"), an_object("b", removed=True)])
    assert (await stored(store, "a")).removed is False
    assert (await stored(store, "b")).removed is True


async def test_a_new_object_whose_key_is_taken_is_in_conflict(store: Store) -> None:
    await write(store, objects=[an_object("a")])
    with pytest.raises(WriteConflict):
        await write(store, objects=[an_object("a", state="Other")])
    assert (await stored(store, "a")).state == "Running"


async def test_what_is_only_peeked_at_is_what_is_stored(store: Store) -> None:
    gone = an_object("b", removed=True)
    await write(store, objects=[an_object("a"), gone, an_object("a", ns="other", state="Other")])
    keys = [key("a"), key("b"), key("c")]
    assert await ask(store, "peek", keys) == {key("a"): an_object("a"), key("b"): gone}


async def test_the_same_id_in_another_namespace_is_another_object(store: Store) -> None:
    await write(store, objects=[an_object("a"), an_object("a", ns="other", state="Other")])
    assert (await stored(store, "a")).state == "Running"


async def test_the_next_version_replaces_every_column(store: Store) -> None:
    before = an_object("a")
    after = moved(
        before,
        kind="disk",
        state="Suspending",
        since=200.125,
        generation=2,
        op="op",
        queue="vm",
        parent="mci",
        spec='{"size": 2}',
        labels='{"x": "y"}',
        error="lost",
        created=50.0,
        removed=True,
    )
    await write(store, objects=[before])
    await write(store, objects=[after])
    assert await stored(store, "a") == after


async def test_a_program_may_move_what_it_has_read(store: Store) -> None:
    before = an_object("a", parent="mci", spec='{"n": 1}', op="op", error="was lost")
    await write(store, objects=[before])

    async def suspend(tx: Tx) -> None:
        (one,) = (await tx.objects([key("a")])).values()
        await tx.apply(Changes(objects=[moved(one, state="Suspending", since=200.5, op=None, error=None)]))

    await store.transact(suspend)
    assert await stored(store, "a") == moved(before, state="Suspending", since=200.5, op=None, error=None)


async def test_a_program_may_change_the_specification_of_what_it_has_read(store: Store) -> None:
    await write(store, objects=[an_object("a")])

    async def resize(tx: Tx) -> None:
        (one,) = (await tx.objects([key("a")])).values()
        await tx.apply(Changes(objects=[moved(one, spec='{"n": 2}', labels='{"l": "2"}', parent="p", removed=True)]))

    await store.transact(resize)
    assert await stored(store, "a") == an_object(
        "a", version=2, spec='{"n": 2}', labels='{"l": "2"}', parent="p", removed=True
    )


async def test_a_program_may_move_an_object_twice(store: Store) -> None:
    await write(store, objects=[an_object("a")])

    async def twice(tx: Tx) -> None:
        (one,) = (await tx.objects([key("a")])).values()
        await tx.apply(Changes(objects=[moved(one, spec="[1]")]))
        await tx.apply(Changes(objects=[moved(one, version=3, state="Suspended", spec="[1]")]))

    await store.transact(twice)
    assert await stored(store, "a") == an_object("a", version=3, state="Suspended", spec="[1]")


async def test_a_version_that_has_passed_is_in_conflict(store: Store) -> None:
    first = an_object("a")
    await write(store, objects=[first])
    await write(store, objects=[moved(first, state="Suspending")])
    with pytest.raises(WriteConflict):
        await write(store, objects=[moved(first, state="Terminating")])
    assert (await stored(store, "a")).state == "Suspending"


async def test_a_version_still_to_come_is_in_conflict(store: Store) -> None:
    await write(store, objects=[an_object("a")])
    with pytest.raises(WriteConflict):
        await write(store, objects=[an_object("a", version=3)])


async def test_an_object_that_is_not_there_cannot_be_moved(store: Store) -> None:
    with pytest.raises(WriteConflict):
        await write(store, objects=[an_object("a", version=2)])
    assert await store.reader.object(key("a")) is None


async def test_one_conflict_among_many_undoes_everything(store: Store) -> None:
    objects = [an_object(f"o{number}") for number in range(300)]
    await write(store, objects=objects)
    await write(store, objects=[moved(objects[123])])
    with pytest.raises(WriteConflict):
        await write(
            store,
            objects=[moved(one, state="Suspending") for one in objects],
            operations=[an_operation("op")],
            journal=[an_entry()],
        )
    states = {(await stored(store, f"o{number}")).state for number in (0, 122, 123, 124, 299)}
    assert states == {"Running"}
    assert await store.reader.operation(key("op")) is None
    assert await store.reader.last_journal_seq() == 0


async def test_a_program_that_passes_over_a_conflict_commits_nothing(store: Store) -> None:
    await write(store, objects=[an_object("a"), an_object("b")])

    async def careless(tx: Tx) -> str:
        try:
            await tx.apply(Changes(objects=[an_object("b", version=2, state="Lost"), an_object("a", version=9)]))
        except WriteConflict:
            return "never mind"
        return "fine"

    with pytest.raises(WriteConflict):
        await store.transact(careless)
    assert (await stored(store, "b")).state == "Running"


async def test_of_many_racing_writers_exactly_one_wins(store: Store) -> None:
    first = an_object("a")
    await write(store, objects=[first])
    racers = [write(store, objects=[moved(first, state=f"by {number}")]) for number in range(20)]
    ends = await asyncio.gather(*racers, return_exceptions=True)
    assert sum(end is None for end in ends) == 1
    assert sum(isinstance(end, WriteConflict) for end in ends) == 19
    assert (await stored(store, "a")).version == 2


async def test_racing_programs_that_read_first_all_take_effect(store: Store, second: Store) -> None:
    await write(store, objects=[an_object("a", generation=0)])

    async def count(tx: Tx) -> None:
        (one,) = (await tx.objects([key("a")])).values()
        await tx.apply(Changes(objects=[moved(one, generation=one.generation + 1)]))

    await asyncio.gather(*(one.transact(count) for one in (store, second) for _ in range(20)))
    assert (await stored(store, "a")).generation == 40


async def test_objects_are_returned_in_the_order_of_their_keys(store: Store) -> None:
    await write(store, objects=[an_object("b"), an_object("a"), an_object("z", ns="aaa")])
    found = await ask(store, "objects", [key("b"), key("nobody"), key("a"), key("b"), an_object("z", ns="aaa").key])
    assert list(found) == [("aaa", "z"), ("acme", "a"), ("acme", "b")]


async def test_removed_objects_are_still_found_by_their_key(store: Store) -> None:
    await write(store, objects=[an_object("a", removed=True)])
    assert (await ask(store, "objects", [key("a")]))[key("a")].removed
    assert (await stored(store, "a")).removed
