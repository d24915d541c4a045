"""A parent waits until all its children have ended."""

import asyncio

from stateward.store import Store
from stateward.store.records import Status
from tests.contract.samples import accepted, an_operation, key, some_work
from tests.contract.store_calls import ask, claim_names, write


async def children_left(store: Store, name: str = "parent") -> int:
    """Return how many children a parent waits for."""
    left: int = (await ask(store, "work", [key(name)]))[key(name)].children
    return left


async def test_a_parent_is_claimed_after_its_last_child_has_ended(store: Store) -> None:
    await write(store, accepted("parent", children=3))
    await write(store, children_ended=[key("parent"), key("parent")])
    assert await claim_names(store) == []
    await write(store, children_ended=[key("parent")])
    assert await claim_names(store) == ["parent"]


async def test_children_of_several_parents_may_end_together(store: Store) -> None:
    await write(store, accepted("one", "two", children=2))
    await write(store, children_ended=[key("one"), key("two"), key("one")])
    assert (await children_left(store, "one"), await children_left(store, "two")) == (0, 1)


async def test_a_parent_that_is_not_ready_is_not_claimed_even_without_children(store: Store) -> None:
    await write(store, accepted("parent", children=1, ready=False))
    await write(store, children_ended=[key("parent")])
    assert await claim_names(store) == []


async def test_the_end_of_a_child_whose_parent_is_gone_changes_nothing(store: Store) -> None:
    await write(store, children_ended=[key("nobody")])


async def test_no_parent_waits_for_less_than_nobody(store: Store) -> None:
    await write(store, accepted("parent", children=1))
    await write(store, children_ended=[key("parent")] * 3)
    assert await children_left(store) == 0


async def test_children_that_end_at_the_same_time_are_all_counted(store: Store, second: Store) -> None:
    await write(store, accepted("parent", children=40))
    ends = [write((store, second)[number % 2], children_ended=[key("parent")]) for number in range(40)]
    await asyncio.gather(*ends)
    assert await children_left(store) == 0
    assert await claim_names(store) == ["parent"]


async def test_children_are_found_by_their_parent(store: Store) -> None:
    await write(
        store,
        operations=[
            an_operation("parent"),
            an_operation("one", "x", parent="parent", created=1.0),
            an_operation("two", "y", parent="parent", created=2.0),
            an_operation("other", "z", parent="another", created=3.0),
        ],
        new_work=[some_work("two", "y", owner="worker", deadline=60.0)],
    )
    found = await store.reader.children_of(key("parent"))
    assert [(one.id, one.status) for one in found] == [("one", Status.WAITING), ("two", Status.RUNNING)]
