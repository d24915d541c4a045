"""Hostile data: the same ids in two namespaces, ids that sort in unexpected order, leases at their limit."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.store import Changes, Ended, JournalFilter, Page, Selector, Store, Tx
from stateward.store.postgres.tx import PostgresTx
from stateward.store.records import Key, Lock, Status, WorkItem
from stateward.store.sqlite.tx import SqliteTx
from tests.contract.samples import (
    NS,
    a_lock,
    a_signal,
    a_step,
    a_timer,
    a_worker,
    accepted,
    an_entry,
    an_object,
    an_operation,
    family,
    key,
    moved,
    some_work,
)
from tests.contract.store_calls import ask, claim_work, send_heartbeats, write

OTHERS = ("a-before", "z-after")
"""Namespaces on both sides of the one that most tests use."""


# --- the same ids in two namespaces ----------------------------------------------------------------------------------


async def rows_of(store: Store, ns: str) -> dict[str, Any]:
    """Return everything that a namespace has."""
    reader, work = store.reader, await ask(store, "work", [Key(ns, "op"), Key(ns, "child")])
    return {
        "object": await reader.object(Key(ns, "o")),
        "objects": await reader.list_objects(Selector(ns), Page(None, 10)),
        "operations": await ask(store, "operations", [Key(ns, "op"), Key(ns, "child")]),
        "children": await reader.children_of(Key(ns, "op")),
        "of the object": await reader.operations_of(Key(ns, "o"), 10),
        "work": work,
        "queue": await reader.queue_of(Key(ns, "o")),
        "lines": await reader.journal(0, 10, JournalFilter(ns=ns)),
        "progress": await reader.progress_of(Key(ns, "op"), 0),
        "signals": await ask(store, "signals", [Key(ns, "op")]),
        "locks": await reader.locks_of(Key(ns, "tree")),
        "timers": await reader.timers(ns, 10),
        "answers": await ask(store, "idempotency_records", [Key(ns, "k")]),
    }


def _work(work: WorkItem, **fields: Any) -> Changes:
    return Changes(work=[replace(work, **fields)])


CHANGES: dict[str, Callable[[WorkItem], Changes]] = {
    "object moved": lambda _: Changes(objects=[moved(an_object("o"), state="Stopped")]),
    "object replaced": lambda _: Changes(objects=[moved(an_object("o"), spec='{"new": 1}')]),
    "operation ended": lambda _: Changes(ended=[Ended(NS, "op", Status.FAILED, 3, 1.0, 2.0, None, "e")]),
    "masked arguments": lambda _: Changes(masked_args=[(key("op"), '{"s": "***"}')]),
    "steps": lambda _: Changes(steps=[(key("op"), '{"s": 1}')]),
    "recast": lambda _: Changes(renamed_states=[an_operation("op", "o", origin="Old", via="Older")]),
    "work changed": lambda work: _work(work, owner="w", epoch=7),
    "work gone": lambda _: Changes(work_gone=[key("op")]),
    "child ended": lambda _: Changes(children_ended=[key("op")]),
    "journal": lambda _: Changes(journal=[an_entry("o")]),
    "progress": lambda _: Changes(progress=[a_step("op", "done")]),
    "signal": lambda _: Changes(signals=[a_signal("op", "stop")]),
    "lock granted": lambda _: Changes(locks_granted=[a_lock("child", "/a")]),
    "locks gone": lambda _: Changes(locks_gone=[key("op")]),
    "timer replaced": lambda _: Changes(timers=[a_timer("t", 1.0, object="o", rank=9)]),
    "timer gone": lambda _: Changes(timers_gone=[key("t")]),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_in_one_namespace_leaves_the_same_ids_in_others_alone(store: Store, name: str) -> None:
    for ns in (NS, *OTHERS):
        await write(store, family(ns))
    before = {ns: await rows_of(store, ns) for ns in (NS, *OTHERS)}
    await write(store, CHANGES[name](before[NS]["work"][key("op")]))
    assert await rows_of(store, NS) != before[NS]
    for ns in OTHERS:
        assert await rows_of(store, ns) == before[ns]


async def test_timers_of_the_same_id_can_be_set_in_two_namespaces_at_once(store: Store) -> None:
    await write(store, timers=[a_timer("t", due, ns=ns) for due, ns in ((2.0, NS), (1.0, "z-after"))])
    assert [(one.ns, one.due) for one in await ask(store, "due_timers", 10)] == [("z-after", 1.0), (NS, 2.0)]


async def test_operations_of_the_same_id_are_claimed_and_owned_apart(store: Store) -> None:
    await send_heartbeats(store, a_worker("w"))
    for ns in (NS, *OTHERS):
        objects, operations = [an_object("o", ns=ns)], [an_operation("op", "o", ns=ns)]
        await write(store, objects=objects, operations=operations, new_work=[some_work("op", "o", ns=ns)])
    claims = await claim_work(store, "w")
    assert [one.work.ns for one in claims] == [NS, *OTHERS]
    assert {(one.work.ns, one.operation.ns, one.object.ns) for one in claims} == {(ns, ns, ns) for ns in (NS, *OTHERS)}
    await write(store, work=[replace(claims[0].work, owner=None)])
    assert [one.ns for one in await ask(store, "owned", "w")] == list(OTHERS)


# --- ids that do not sort like what they stand for -------------------------------------------------------------------


async def test_the_rank_of_timers_that_fall_due_together_goes_before_namespace_and_id(store: Store) -> None:
    timers = [a_timer("a", 10.0, rank=3), a_timer("b", 10.0, rank=2, ns="a-before"), a_timer("c", 10.0, rank=1)]
    last = a_timer("0", 11.0, rank=0)
    await write(store, timers=[*timers, last])
    order = ["c", "b", "a", "0"]
    assert [one.id for one in await ask(store, "due_timers", 10)] == order
    assert [one.id for one in await ask(store, "due_timers", 2)] == order[:2]
    assert [one.id for one in await store.reader.timers(None, 10)] == order
    assert [one.id for one in await store.reader.timers(None, 1)] == order[:1]


async def test_locks_come_in_the_order_of_asking_whatever_they_are_called(store: Store) -> None:
    asked = [("z", "/z", "tree"), ("y", "/a", "tree"), ("x", "/z", "other"), ("w", "/0", "tree"), ("a", "/zz", "tree")]
    first, rest = asked[:2], asked[2:]
    await write(store, locks=[a_lock(op, path, tree=tree, waiting=True) for op, path, tree in first])
    for op, path, tree in rest:
        await write(store, locks=[a_lock(op, path, tree=tree, mode="IX", waiting=True)])
    both: list[Lock] = await ask(store, "locks", [key("tree"), key("other")])
    assert [one.op for one in both] == ["z", "y", "x", "w", "a"]
    assert [one.op for one in await store.reader.locks_of(key("tree"))] == ["z", "y", "w", "a"]


async def test_work_is_queued_and_claimed_in_the_order_of_acceptance_whatever_it_is_called(store: Store) -> None:
    names = ["z", "m", "a", "y", "b"]
    await write(store, objects=[an_object("o")])
    for name in names:
        await write(store, operations=[an_operation(name, "o")], new_work=[some_work(name, "o", deadline=100.0)])
    assert [one.op for one in await store.reader.queue_of(key("o"))] == names
    assert [one.op for one in await ask(store, "queues", [key("o")])] == names
    assert [one.work.op for one in await claim_work(store, "w")] == names
    assert [one.op for one in await ask(store, "owned", "w")] == names


async def test_the_newest_operation_comes_first_and_the_oldest_child_whatever_they_are_called(store: Store) -> None:
    created = {"z": 1.0, "m": 2.0, "a": 3.0}
    await write(store, objects=[an_object("o")])
    operations = [an_operation(name, "o", created=at, parent="p") for name, at in created.items()]
    await write(store, operations=operations)
    assert [one.id for one in await store.reader.operations_of(key("o"), 2)] == ["a", "m"]
    assert [one.id for one in await store.reader.children_of(key("p"))] == ["z", "m", "a"]


# --- leases between dead and long ------------------------------------------------------------------------------------


async def age(store: Store, worker: str, seconds: float) -> None:
    """Let so many seconds have passed since a worker was seen."""

    async def function(tx: Tx) -> None:
        match tx:
            case SqliteTx():
                tx._connection.execute("UPDATE workers SET seen = seen - ? WHERE id = ?", (seconds, worker))
            case PostgresTx():
                await tx._connection.execute("UPDATE workers SET seen = seen - $1 WHERE id = $2", seconds, worker)

    await store.transact(function)


async def test_a_worker_lives_until_the_whole_of_its_lease_has_passed(store: Store) -> None:
    ages = {"fresh": 0.0, "half": 1800.0, "nearly": 3500.0, "just": 3700.0, "long": 7300.0}
    await send_heartbeats(store, *(a_worker(name, lease=3600.0) for name in ages))
    for name, seconds in ages.items():
        await age(store, name, seconds)
        await write(store, accepted(f"of-{name}", deadline=10.0, owner=name))
    assert {one.id for one in await ask(store, "dead_workers")} == {"just", "long"}
    assert {one.op for one in await ask(store, "overdue", 10)} == {"of-just", "of-long"}
    found = {one.op: one.orphaned for one in await store.reader.stuck(10)}
    assert {op for op, orphaned in found.items() if orphaned} == {"of-just", "of-long"}


async def test_each_worker_has_its_own_lease(store: Store) -> None:
    leases = {"short": 60.0, "middle": 600.0, "longer": 6000.0}
    await send_heartbeats(store, *(a_worker(name, lease=lease) for name, lease in leases.items()))
    for name in leases:
        await age(store, name, 300.0)
    assert [one.id for one in await ask(store, "dead_workers")] == ["short"]


async def test_an_overdue_deadline_of_a_worker_with_half_its_lease_left_wakes_nobody(store: Store) -> None:
    now = await store.reader.time()
    await send_heartbeats(store, a_worker("half", lease=3600.0))
    await age(store, "half", 2700.0)
    await write(store, accepted("late", deadline=10.0, owner="half"))
    await write(store, accepted("later", deadline=now + 5000.0, owner="half"))
    assert await store.reader.next_due_time() == pytest.approx(now + 5000.0)
    await age(store, "half", 1000.0)
    assert await store.reader.next_due_time() == 10.0
