"""Due timers come in order, and no two transactions get the same one."""

import asyncio

from stateward.store import Changes, Store, Tx
from stateward.store.records import Timer
from tests.contract.samples import NS, a_timer, an_object, key
from tests.contract.store_calls import ask, write


async def due(store: Store, limit: int = 100) -> list[str]:
    """Return the names of the timers that are due."""
    return [timer.id for timer in await ask(store, "due_timers", limit)]


async def test_a_timer_is_stored_as_it_is(store: Store) -> None:
    timer = Timer(NS, "t", 12.5, -3, "vm", "expire", '["force"]', '{"a": 1}')
    await write(store, timers=[timer])
    assert await ask(store, "due_timers", 10) == [timer]
    assert await store.reader.timers(NS, 10) == [timer]


async def test_only_what_is_due_is_returned(store: Store) -> None:
    now = await store.reader.time()
    await write(store, timers=[a_timer("past", now - 5), a_timer("future", now + 1000)])
    assert await due(store) == ["past"]


async def test_older_timers_go_first_and_then_the_lower_rank(store: Store) -> None:
    await write(
        store,
        timers=[
            a_timer("late", 30.0, rank=-1),
            a_timer("early, second", 10.0, rank=2),
            a_timer("middle", 20.0),
            a_timer("early, first", 10.0, rank=1),
        ],
    )
    order = ["early, first", "early, second", "middle", "late"]
    assert await due(store) == order
    assert await due(store, 2) == order[:2]
    assert [timer.id for timer in await store.reader.timers(None, 3)] == order[:3]


async def test_a_timer_of_the_same_key_is_replaced(store: Store) -> None:
    await write(store, timers=[a_timer("t", 10.0)])
    await write(store, timers=[a_timer("t", 1e12, rank=1, event="other", object="b", facts="[1]", args="[2]")])
    assert await due(store) == []
    assert await store.reader.timers(NS, 10) == [
        a_timer("t", 1e12, rank=1, event="other", object="b", facts="[1]", args="[2]")
    ]


async def test_a_timer_that_is_gone_does_not_fire(store: Store) -> None:
    await write(store, timers=[a_timer("a", 10.0), a_timer("b", 10.0)])
    await write(store, timers_gone=[key("a"), key("nobody")])
    assert await due(store) == ["b"]


async def test_a_timer_may_be_set_anew_in_the_change_that_removes_it(store: Store) -> None:
    await write(store, timers=[a_timer("a", 10.0)])
    await write(store, timers_gone=[key("a")], timers=[a_timer("a", 1e12)])
    assert [timer.due for timer in await store.reader.timers(NS, 10)] == [1e12]


async def test_timers_are_listed_by_namespace(store: Store) -> None:
    await write(store, timers=[a_timer("a", 10.0), a_timer("b", 5.0, ns="other")])
    assert [timer.id for timer in await store.reader.timers(NS, 10)] == ["a"]
    assert [timer.id for timer in await store.reader.timers(None, 10)] == ["b", "a"]


async def test_each_timer_is_fired_once_by_racing_processes(store: Store, second: Store) -> None:
    names = [f"t{number:03}" for number in range(120)]
    await write(store, objects=[an_object(name) for name in names])
    await write(store, timers=[a_timer(name, float(number), object=name) for number, name in enumerate(names)])

    async def fire(tx: Tx) -> list[str]:
        timers = await tx.due_timers(5)
        await tx.apply(Changes(timers_gone=[timer.key for timer in timers]))
        return [timer.id for timer in timers]

    async def fire_all(one: Store) -> list[str]:
        fired: list[str] = []
        while await store.reader.timers(None, 1):
            fired += await one.transact(fire)
        return fired

    both = await asyncio.gather(*(fire_all(one) for one in (store, second) * 3))
    assert sorted(name for fired in both for name in fired) == names
