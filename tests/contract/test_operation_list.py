"""Lists of operations: entries with their parts, newest first, page by page."""

from msgspec.structs import replace

from stateward.store import Ended, Store
from stateward.store.filters import OperationCursor, OperationFilter
from stateward.store.records import Operation, Status
from tests.contract.samples import NS, an_object, an_operation, some_work
from tests.contract.store_calls import claim_work, write

EVERYTHING = OperationFilter(NS)


async def write_history(store: Store) -> None:
    """Write a plain operation, a composite with two parts, and a bulk of three; the newest is the bulk."""
    rows = [
        an_operation("plain", "a", who="bob", created=1.0),
        an_operation("whole", "g", kind="group", action="stop", created=2.0),
        an_operation("part-1", "b", parent="whole", created=2.0),
        an_operation("part-2", "c", parent="whole", created=2.0),
        *(an_operation(f"bulk-{n}", f"d{n}", action="start", created=3.0, bulk="bulk-1") for n in (1, 2, 3)),
    ]
    await write(
        store,
        objects=[an_object(one.object, state="Suspending") for one in rows],
        operations=rows,
        new_work=[some_work(one.id, one.object) for one in rows if one.id != "plain"],
    )
    await write(
        store,
        ended=[Ended(NS, "plain", Status.FAILED, 1, 1.0, 2.0, None, "broken"), ended("part-2"), ended("bulk-3")],
        work_gone=[one.key for one in rows if one.id in ("part-2", "bulk-3")],
    )


def ended(op: str) -> Ended:
    return Ended(NS, op, Status.FAILED if op == "bulk-3" else Status.SUCCEEDED, 1, 1.0, 4.0, None, None)


async def ids(store: Store, only: OperationFilter = EVERYTHING, limit: int = 100) -> list[str]:
    return [one.id for one in await store.reader.list_operations(only, None, limit)]


async def test_entries_come_newest_first_without_their_parts(store: Store) -> None:
    await write_history(store)
    assert await ids(store) == ["bulk-1", "whole", "plain"]
    assert await ids(store, OperationFilter("elsewhere")) == []


async def test_pages_follow_each_other_also_if_operations_are_of_the_same_time(store: Store) -> None:
    await write(store, operations=[an_operation(f"op-{n}", "a", created=float(n // 3)) for n in range(10)])
    found: list[Operation] = []
    cursor = None
    while page := await store.reader.list_operations(EVERYTHING, cursor, 4):
        found += page
        cursor = OperationCursor(page[-1].created, page[-1].id)
    assert [one.id for one in found] == [f"op-{n}" for n in reversed(range(10))]


async def test_parts_are_listed_by_their_entry_and_counted_by_status(store: Store) -> None:
    await write_history(store)
    assert await ids(store, replace(EVERYTHING, group="whole")) == ["part-2", "part-1"]
    assert await ids(store, replace(EVERYTHING, group="bulk-1")) == ["bulk-3", "bulk-2", "bulk-1"]
    assert await ids(store, replace(EVERYTHING, group="bulk-1", statuses=(Status.FAILED,))) == ["bulk-3"]
    assert await store.reader.count_parts(NS, ["plain", "whole", "bulk-1"]) == {
        "whole": {Status.WAITING: 1, Status.SUCCEEDED: 1},
        "bulk-1": {Status.WAITING: 2, Status.FAILED: 1},
    }


async def test_an_entry_matches_if_one_of_its_parts_does(store: Store) -> None:
    await write_history(store)
    assert await ids(store, replace(EVERYTHING, kind="vm")) == ["bulk-1", "whole", "plain"]
    assert await ids(store, replace(EVERYTHING, kind="group")) == ["whole"]
    assert await ids(store, replace(EVERYTHING, action="start")) == ["bulk-1"]
    assert await ids(store, replace(EVERYTHING, who="bob")) == ["plain"]
    assert await ids(store, replace(EVERYTHING, statuses=(Status.FAILED,))) == ["bulk-1", "plain"]
    assert await ids(store, replace(EVERYTHING, statuses=(Status.SUCCEEDED,), kind="vm")) == ["whole"]
    assert await ids(store, replace(EVERYTHING, statuses=(Status.SUCCEEDED,), kind="group")) == []
    assert await ids(store, replace(EVERYTHING, statuses=(Status.CANCELLED,))) == []


async def test_what_waits_and_what_runs_is_told_apart(store: Store) -> None:
    await write_history(store)
    running, waiting = replace(EVERYTHING, statuses=(Status.RUNNING,)), replace(EVERYTHING, statuses=(Status.WAITING,))
    assert (await ids(store, running), await ids(store, waiting)) == ([], ["bulk-1", "whole"])
    await claim_work(store)
    assert (await ids(store, running), await ids(store, waiting)) == (["bulk-1", "whole"], [])
    assert await ids(store, replace(running, statuses=(Status.RUNNING, Status.FAILED))) == ["bulk-1", "whole", "plain"]
    assert await ids(store, replace(running, group="whole")) == ["part-1"]
    assert await ids(store, replace(running, object="b")) == ["part-1"]
    assert await ids(store, replace(waiting, object="b")) == []


async def test_all_operations_of_an_object_are_listed(store: Store) -> None:
    await write_history(store)
    assert await ids(store, replace(EVERYTHING, object="c")) == ["part-2"]
    assert await ids(store, replace(EVERYTHING, object="d2", kind="vm", action="start")) == ["bulk-2"]


async def test_a_running_operation_has_its_start_and_its_attempts(store: Store) -> None:
    await write_history(store)
    now = await store.reader.time()
    await claim_work(store)
    (running,) = await store.reader.list_operations(replace(EVERYTHING, object="b"), None, 1)
    assert running.started is not None
    assert now <= running.started <= await store.reader.time()
    assert running.attempts == 1


async def test_a_list_can_end_at_the_operation_that_so_many_entries_reach(store: Store) -> None:
    await write(store, operations=[an_operation(f"op-{n}", "a", created=float(n // 2)) for n in range(10)])
    await write(store, operations=[an_operation("part", "a", parent="op-9", created=9.0)])
    reached = await store.reader.operation_reach(NS, None, 3)
    assert reached == OperationCursor(3.0, "op-7")
    assert await ids(store, replace(EVERYTHING, oldest=reached)) == ["op-9", "op-8", "op-7"]
    assert await store.reader.operation_reach(NS, reached, 7) == OperationCursor(0.0, "op-0")
    assert await store.reader.operation_reach(NS, reached, 8) is None
    assert await store.reader.operation_reach("elsewhere", None, 1) is None
