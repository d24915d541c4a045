"""The modelled store: transactions see, wait for and lose to each other as on PostgreSQL at READ COMMITTED."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.store import Changes, Tx
from stateward.store.errors import Unavailable
from stateward.store.filters import Selector
from stateward.store.records import Object
from stateward.testing.read_committed import ReadCommittedStore
from stateward.testing.virtual_loop import PARTY, LoopParty, VirtualLoop
from tests.contract.samples import NS, an_object, key, moved

Play = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.fixture
def store(loop: VirtualLoop) -> Iterator[ReadCommittedStore]:
    store = ReadCommittedStore(loop.time)
    loop.run_until_complete(store.open())
    yield store
    loop.run_until_complete(store.close())


def write(*objects: Object) -> Callable[[Tx], Awaitable[None]]:
    async def function(tx: Tx) -> None:
        await tx.apply(Changes(objects=list(objects)))

    return function


async def change(tx: Tx, name: str, state: str) -> None:
    found = (await tx.objects([key(name)]))[key(name)]
    await tx.apply(Changes(objects=[moved(found, state=state)]))


def test_two_reads_without_locks_see_two_worlds(loop: VirtualLoop, store: ReadCommittedStore) -> None:
    async def play() -> list[int]:
        async def count_twice(tx: Tx) -> list[int]:
            before = await tx.count_objects(NS, "vm", 9)
            await store.transact(write(an_object("b", kind="vm")))
            return [before, await tx.count_objects(NS, "vm", 9)]

        return await store.transact(count_twice)

    assert loop.run_until_complete(play()) == [0, 1]


def test_writes_are_seen_by_their_transaction_only_before_the_commit(
    loop: VirtualLoop, store: ReadCommittedStore
) -> None:
    async def play() -> None:
        async def look_at_own_write(tx: Tx) -> None:
            await tx.apply(Changes(objects=[an_object("a")]))
            assert key("a") in await tx.peek([key("a")])
            assert await store.reader.object(key("a")) is None

        await store.transact(look_at_own_write)
        assert await store.reader.object(key("a")) is not None

    loop.run_until_complete(play())


def test_locked_row_is_waited_for_and_read_again(loop: VirtualLoop, store: ReadCommittedStore) -> None:
    async def play() -> Object | None:
        await store.transact(write(an_object("a", state="0")))

        async def count_up(tx: Tx) -> None:
            found = (await tx.objects([key("a")]))[key("a")]
            await tx.apply(Changes(objects=[moved(found, state=str(int(found.state) + 1))]))

        await asyncio.gather(*(store.transact(count_up) for _ in range(5)))
        return await store.reader.object(key("a"))

    found = loop.run_until_complete(play())
    assert found is not None
    assert (found.state, found.version) == ("5", 6)


def test_selection_misses_what_is_inserted_while_it_waits(loop: VirtualLoop, store: ReadCommittedStore) -> None:
    async def play() -> list[str]:
        await store.transact(write(an_object("b")))
        locked, go_on = asyncio.Event(), asyncio.Event()

        async def insert(tx: Tx) -> None:
            found = (await tx.objects([key("b")]))[key("b")]
            locked.set()
            await go_on.wait()
            await tx.apply(Changes(objects=[moved(found), an_object("c")]))

        async def select(tx: Tx) -> list[str]:
            return [one.id for one in await tx.select(Selector(NS))]

        inserting = asyncio.ensure_future(store.transact(insert))
        await locked.wait()
        selecting = asyncio.ensure_future(store.transact(select))
        await asyncio.sleep(1.0)
        go_on.set()
        await inserting
        return await selecting

    assert loop.run_until_complete(play()) == ["b"]


async def insert_if_free(tx: Tx, name: str, *, locks: bool) -> None:
    """Add an object, unless there is one already."""
    if locks:
        await tx.lock_keys([key("the limit")])
    if await tx.count_objects(NS, "vm", 9) == 0:
        await tx.apply(Changes(objects=[an_object(name, kind="vm")]))


@pytest.mark.parametrize(("locks", "number"), [(False, 2), (True, 1)])
def test_count_is_a_limit_only_under_a_locked_key(
    loop: VirtualLoop, store: ReadCommittedStore, locks: bool, number: int
) -> None:
    async def play() -> int:
        await asyncio.gather(*(store.transact(partial(insert_if_free, name=n, locks=locks)) for n in "ab"))
        return sum((await store.reader.count_states(Selector(NS))).values())

    assert loop.run_until_complete(play()) == number


def test_deadlock_and_locks_out_of_order_end_in_a_repetition(loop: VirtualLoop, store: ReadCommittedStore) -> None:
    runs: list[str] = []

    async def play() -> None:
        await store.transact(write(an_object("a"), an_object("b")))

        async def both(tx: Tx, order: str) -> None:
            runs.append(order)
            for name in order:
                await tx.objects([key(name)])
            await tx.apply(Changes())

        await asyncio.gather(*(store.transact(partial(both, order=order)) for order in ("ab", "ba")))

    loop.run_until_complete(play())
    assert len(runs) > 2


@pytest.mark.parametrize("killed", [True, False])
def test_locks_of_a_process_that_stands_still_are_released(
    loop: VirtualLoop, store: ReadCommittedStore, killed: bool
) -> None:
    class Process(LoopParty):
        dead = False

    process = Process("p1")
    ends: list[BaseException] = []

    async def stand_still() -> None:
        PARTY.set(process)

        async def hold(tx: Tx) -> None:
            await tx.objects([key("a")])
            await tx.peek([key("a")])

        try:
            await store.transact(hold)
        except Unavailable as error:
            ends.append(error)

    async def play() -> float:
        await store.transact(write(an_object("a")))
        standing = asyncio.ensure_future(stand_still())
        while not store.locks.held_by_others(None, "object"):  # type: ignore[arg-type]
            await asyncio.sleep(0)
        process.stopped, process.dead = True, killed
        begun = loop.time()
        await store.transact(lambda tx: change(tx, "a", "Other"))
        waited = loop.time() - begun
        loop.resume(process)
        await standing
        return waited

    waited = loop.run_until_complete(play())
    assert (waited < 1.0) is killed
    assert waited < 6.0
    assert len(ends) == 1


def test_same_new_key_is_given_once(loop: VirtualLoop, store: ReadCommittedStore) -> None:
    async def play() -> list[bool]:
        async def create(tx: Tx, label: str) -> bool:
            if await tx.objects([key("a")]):
                return False
            await tx.apply(Changes(objects=[replace(an_object("a"), labels=label)]))
            return True

        return list(await asyncio.gather(*(store.transact(partial(create, label=n)) for n in ("{}", "[]"))))

    assert sorted(loop.run_until_complete(play())) == [False, True]
