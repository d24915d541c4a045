"""Intention locks are stored for the operations that hold or await them."""

import pytest

from stateward.store import Store
from stateward.store.errors import WriteConflict
from stateward.store.records import Lock
from tests.contract.samples import NS, a_lock, key
from tests.contract.store_calls import ask, write


async def paths(store: Store, tree: str = "tree") -> list[tuple[str, str, str, bool]]:
    """Return the locks of a tree in short."""
    return [(one.op, one.path, one.mode, one.waiting) for one in await store.reader.locks_of(key(tree))]


async def test_a_lock_is_stored_as_it_is(store: Store) -> None:
    await write(store, locks=[Lock(NS, "t", "/a/b", "SIX", "op", True, 9)])
    assert await ask(store, "locks", [key("t")]) == [Lock(NS, "t", "/a/b", "SIX", "op", True, 9)]
    assert await store.reader.locks_of(key("t")) == [Lock(NS, "t", "/a/b", "SIX", "op", True, 9)]


async def test_trees_do_not_see_each_other(store: Store) -> None:
    await write(store, locks=[a_lock("one"), a_lock("two", tree="other"), a_lock("three", ns="foreign")])
    assert [one.op for one in await ask(store, "locks", [key("tree")])] == ["one"]
    assert [one.op for one in await ask(store, "locks", [key("other"), key("tree")])] == ["one", "two"]
    assert await ask(store, "locks", [key("nowhere")]) == []


async def test_a_waiting_lock_is_granted(store: Store) -> None:
    await write(store, locks=[a_lock("first", "/a"), a_lock("second", "/a", waiting=True)])
    (_, waiting) = await store.reader.locks_of(key("tree"))
    await write(store, locks_granted=[waiting])
    assert await paths(store) == [("first", "/a", "X", False), ("second", "/a", "X", False)]


async def test_one_operation_may_have_several_locks_and_lose_them_together(store: Store) -> None:
    await write(
        store,
        locks=[
            a_lock("op", "/a", mode="IX"),
            a_lock("op", "/a", mode="X", waiting=True),
            a_lock("op", "/b"),
            a_lock("op", "/b", tree="other"),
            a_lock("another", "/c"),
        ],
    )
    await write(store, locks_gone=[key("op"), key("nobody")])
    assert await paths(store) == [("another", "/c", "X", False)]
    assert await paths(store, "other") == []


async def test_only_the_lock_that_is_meant_is_granted(store: Store) -> None:
    await write(store, locks=[a_lock("op", "/a", mode=mode, waiting=True) for mode in ("IX", "X")])
    await write(store, locks_granted=[a_lock("op", "/a", mode="X")])
    assert await paths(store) == [("op", "/a", "IX", True), ("op", "/a", "X", False)]


async def test_a_lock_that_nobody_asked_for_cannot_be_granted(store: Store) -> None:
    with pytest.raises(WriteConflict):
        await write(store, locks_granted=[a_lock("op", "/a")])


async def test_locks_given_back_and_taken_in_one_change_do_not_meet(store: Store) -> None:
    await write(store, locks=[a_lock("op", "/a")])
    await write(store, locks_gone=[key("op")], locks=[a_lock("op", "/a", mode="S")])
    assert await paths(store) == [("op", "/a", "S", False)]
