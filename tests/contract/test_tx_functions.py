"""Transaction functions: all changes of a function are committed, or none."""

import asyncio

import pytest

from stateward.store import Changes, Store, Tx
from stateward.store.errors import StoreError, WriteConflict
from stateward.store.records import Key
from tests.contract.samples import an_entry, an_object, an_operation, key, moved
from tests.contract.store_calls import ask, stored, write


async def test_a_program_returns_its_value(store: Store) -> None:
    async def function(tx: Tx) -> tuple[str, dict[Key, object]]:
        return "value", dict(await tx.objects([key("a")]))

    assert await store.transact(function) == ("value", {})


async def test_an_exception_in_a_program_undoes_it_and_reaches_the_caller(store: Store) -> None:
    class Refused(Exception):
        pass

    async def function(tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object("a")], journal=[an_entry()]))
        raise Refused("no")

    with pytest.raises(Refused, match="no"):
        await store.transact(function)
    assert await store.reader.object(key("a")) is None
    assert await store.reader.last_journal_seq() == 0


async def test_the_store_works_on_after_an_exception(store: Store) -> None:
    async def function(tx: Tx) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.transact(function)
    await write(store, objects=[an_object("a")])
    assert (await stored(store, "a")).version == 1


async def test_a_program_that_loses_is_run_again_and_sees_the_winner(store: Store) -> None:
    first = an_object("a")
    await write(store, objects=[first])
    await write(store, objects=[moved(first, state="Suspending")])
    runs: list[str] = []

    async def function(tx: Tx) -> None:
        seen = (await tx.objects([key("a")]))[key("a")]
        runs.append(seen.state)
        mine = moved(first if len(runs) == 1 else seen, state="Mine")
        await tx.apply(Changes(objects=[mine]))

    await store.transact(function)
    assert runs == ["Suspending", "Suspending"]
    assert (await stored(store, "a")).state == "Mine"


async def test_a_program_that_always_loses_is_given_up(store: Store) -> None:
    runs: list[float] = []

    async def function(tx: Tx) -> None:
        runs.append(tx.now)
        await tx.apply(Changes(objects=[an_object("a", version=7)]))

    with pytest.raises(WriteConflict) as raised:
        await store.transact(function)
    assert raised.value.retry
    assert 2 <= len(runs) <= 20


async def test_a_program_that_raises_something_else_is_run_once(store: Store) -> None:
    runs: list[None] = []

    async def function(tx: Tx) -> None:
        runs.append(None)
        raise LookupError

    with pytest.raises(LookupError):
        await store.transact(function)
    assert len(runs) == 1


async def test_failures_among_many_programs_harm_nobody_else(store: Store) -> None:
    def function_of(number: int) -> asyncio.Future[int]:
        async def function(tx: Tx) -> int:
            await tx.apply(Changes(objects=[an_object(f"o{number:02}")], journal=[an_entry(f"o{number:02}")]))
            if number % 3 == 0:
                raise ValueError(number)
            if number % 3 == 1:
                await tx.apply(Changes(objects=[an_object("nobody", version=5)]))
            return number

        return asyncio.ensure_future(store.transact(function))

    ends = await asyncio.gather(*map(function_of, range(60)), return_exceptions=True)
    for number, end in enumerate(ends):
        expected = (ValueError, WriteConflict, int)[number % 3]
        assert isinstance(end, expected), end
    found = await ask(store, "objects", [key(f"o{number:02}") for number in range(60)])
    assert list(found) == [key(f"o{number:02}") for number in range(2, 60, 3)]


async def test_a_program_sees_what_it_has_written(store: Store) -> None:
    async def function(tx: Tx) -> str:
        await tx.apply(Changes(objects=[an_object("a")], operations=[an_operation("op")]))
        await tx.operations([key("op")])
        return (await tx.objects([key("a")]))[key("a")].state

    assert await store.transact(function) == "Running"


async def test_the_time_of_a_transaction_is_the_stores(store: Store) -> None:
    async def function(tx: Tx) -> float:
        return tx.now

    before = await store.reader.time()
    now = await store.transact(function)
    after = await store.reader.time()
    assert before <= now <= after


async def test_an_operation_whose_key_is_taken_is_in_conflict(store: Store) -> None:
    await write(store, operations=[an_operation("op")])
    with pytest.raises(StoreError):
        await write(store, operations=[an_operation("op", who="another")])


async def test_nothing_at_all_may_be_applied(store: Store) -> None:
    await write(store, Changes())
    assert await store.reader.last_journal_seq() == 0


@pytest.mark.parametrize("steps", range(0, 24, 3))
async def test_callers_that_are_cancelled_at_any_step_harm_nobody_else(store: Store, steps: int) -> None:
    async def function(tx: Tx, name: str) -> None:
        await tx.apply(Changes(objects=[an_object(name)]))

    async def asked(name: str) -> None:
        await store.transact(lambda tx: function(tx, name))
        await store.reader.object(key(name))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asked(f"o{number}")) for number in range(40)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
    await asyncio.gather(*(asked(f"later{number}") for number in range(40)))
    expected = {f"o{number}" for number in range(1, 40, 2)} | {f"later{number}" for number in range(40)}
    assert {name for name in expected if await store.reader.object(key(name)) is not None} == expected
