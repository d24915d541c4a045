"""Live and dead workers, the work that they own, and overdue work."""

from msgspec.structs import replace

from stateward.store import Store
from stateward.store.records import OVERDUE_PRIORITY, WorkerRecord
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import NS, a_worker, accepted, an_object, an_operation, key, some_work
from tests.contract.store_calls import ask, claim_work, send_heartbeats, write


async def late(store: Store, limit: int = 100) -> list[str]:
    """Return the names of what is overdue."""
    return [work.op for work in await ask(store, "overdue", limit)]


async def test_a_worker_is_seen_at_the_stores_time(store: Store) -> None:
    before = await store.reader.time()
    await send_heartbeats(store, a_worker("w"))
    after = await store.reader.time()
    (worker,) = await store.reader.workers()
    assert before <= worker.seen <= after
    assert worker == WorkerRecord("w", 60.0, worker.seen, "host", 4711)


async def test_each_heartbeat_renews_the_lease(store: Store) -> None:
    await send_heartbeats(store, a_worker("w", lease=-1.0))
    (first,) = await store.reader.workers()
    await send_heartbeats(store, a_worker("w", lease=30.0))
    (then,) = await store.reader.workers()
    assert then.seen >= first.seen
    assert then.lease == 30.0
    assert await ask(store, "dead_workers") == []


async def test_only_workers_whose_lease_has_passed_are_dead(store: Store) -> None:
    await send_heartbeats(store, a_worker("alive"), a_worker("dead", lease=-1.0))
    assert [worker.id for worker in await ask(store, "dead_workers")] == ["dead"]


async def test_a_worker_that_has_gone_is_forgotten(store: Store) -> None:
    await send_heartbeats(store, a_worker("a"), a_worker("b", lease=-1.0))
    await ask(store, "remove_worker", "b")
    await ask(store, "remove_worker", "nobody")
    assert [worker.id for worker in await store.reader.workers()] == ["a"]
    assert await ask(store, "dead_workers") == []


async def test_a_worker_that_has_gone_and_owns_work_is_dead(store: Store) -> None:
    await send_heartbeats(store, a_worker("alive"))
    await write(store, accepted("running", owner="gone", deadline=1e12))
    await write(store, accepted("prefetched", owner="gone"))
    await write(store, accepted("of a live one", owner="alive"))
    await write(store, accepted("waiting"))
    assert [worker.id for worker in await ask(store, "dead_workers")] == ["gone"]


async def test_work_past_its_deadline_that_nobody_owns_is_overdue(store: Store) -> None:
    now = await store.reader.time()
    await write(store, accepted("past", deadline=now - 10))
    await write(store, accepted("future", deadline=now + 1000))
    await write(store, accepted("none"))
    assert await late(store) == ["past"]


async def test_what_is_overdue_longest_comes_first(store: Store) -> None:
    await write(store, accepted("second", deadline=20.0))
    await write(store, accepted("first", deadline=10.0))
    await write(store, accepted("third", deadline=30.0))
    assert await late(store) == ["first", "second", "third"]
    assert await late(store, 2) == ["first", "second"]


async def test_overdue_work_of_a_live_worker_is_left_alone(store: Store) -> None:
    await send_heartbeats(store, a_worker("alive"), a_worker("dead", lease=-1.0))
    await write(store, accepted("a", deadline=10.0, owner="alive"))
    await write(store, accepted("b", deadline=10.5, owner="dead"))
    await write(store, accepted("c", deadline=11.0, owner="never seen"))
    await write(store, accepted("d", deadline=11.5, owner="alive", fenced=True))
    assert await late(store) == ["b", "c"]


async def test_work_of_a_worker_is_left_to_it_until_the_very_end_of_its_lease() -> None:
    now = 1000.0
    store = SqliteStore(":memory:", clock=lambda: now)
    await store.open()
    await send_heartbeats(store, a_worker("w", lease=60.0))
    await write(store, accepted("a", deadline=10.0, owner="w"))
    now = 1060.0
    assert (await late(store), await ask(store, "dead_workers")) == ([], [])
    now = 1060.5
    assert [worker.id for worker in await ask(store, "dead_workers")] == ["w"]
    assert await late(store) == ["a"]
    await store.close()


async def test_remote_and_fenced_work_can_be_overdue_too(store: Store) -> None:
    await write(store, accepted("remote", deadline=10.0, remote=True))
    await write(store, accepted("fenced", deadline=11.0, fenced=True))
    await write(store, accepted("queued", deadline=12.0, ready=False))
    assert await late(store) == ["remote", "fenced", "queued"]


async def test_what_a_dead_worker_held_can_be_freed_by_another(store: Store) -> None:
    await send_heartbeats(store, a_worker("dead", lease=-1.0))
    await write(store, accepted("a", "b"))
    await claim_work(store, "dead")
    (gone,) = await ask(store, "dead_workers")
    held = await ask(store, "owned", gone.id)
    await write(store, work=[replace(work, owner=None, observe=True) for work in held])
    await ask(store, "remove_worker", gone.id)
    again = await claim_work(store, "alive")
    assert [(claim.work.op, claim.work.observe, claim.work.epoch) for claim in again] == [
        ("a", True, 2),
        ("b", True, 2),
    ]


async def test_ended_work_is_no_longer_overdue(store: Store) -> None:
    await write(store, accepted("a", deadline=10.0))
    await write(store, work_gone=[key("a")])
    assert await late(store) == []


async def test_stuck_is_what_is_past_its_deadline_and_what_a_dead_worker_holds(store: Store) -> None:
    now = await store.reader.time()
    await send_heartbeats(store, a_worker("alive"), a_worker("dead", lease=-1.0))
    await write(store, accepted("orphan", owner="dead"))
    await write(store, accepted("late orphan", owner="dead", deadline=12.0))
    await write(store, accepted("late", deadline=10.0))
    await write(store, accepted("late of a live one", deadline=11.0, owner="alive"))
    await write(store, accepted("in time", deadline=now + 1000, owner="alive"))
    await write(store, accepted("waiting"))
    found = await store.reader.stuck(100)
    assert [(one.op, one.orphaned) for one in found] == [
        ("late", False),
        ("late of a live one", False),
        ("late orphan", True),
        ("orphan", True),
    ]
    first, *_, last = found
    assert (first.object, first.kind, first.action) == ("on-late", "vm", "suspend")
    assert (first.since, first.deadline) == (10.0, 10.0)
    assert (last.owner, last.deadline) == ("dead", None)
    assert now - 1.0 <= last.since <= await store.reader.time(), "its worker's lease has passed then"
    assert [one.op for one in await store.reader.stuck(1)] == ["late"]


async def test_stuck_work_and_work_by_lane_are_told_of_some_namespaces_alone(store: Store) -> None:
    await write(store, accepted("mine", deadline=11.0))
    theirs = [an_object("mine", ns="other")], [an_operation("mine", "mine", ns="other")]
    work = [some_work("mine", "mine", ns="other", deadline=10.0, lane="theirs")]
    await write(store, objects=theirs[0], operations=theirs[1], new_work=work)
    assert [one.ns for one in await store.reader.stuck(100)] == ["other", NS]
    assert [one.ns for one in await store.reader.stuck(1, [NS])] == [NS]
    assert await store.reader.stuck(100, []) == []
    assert [one.lane for one in await store.reader.work_by_lane([NS])] == [""]
    assert [one.lane for one in await store.reader.work_by_lane(["other"])] == ["theirs"]


async def test_expedited_work_and_work_of_the_asking_worker_hide_no_other_overdue_work(store: Store) -> None:
    await send_heartbeats(store, a_worker("me", lease=-1.0))
    for number in range(3):
        await write(store, accepted(f"expedited-{number}", deadline=10.0, priority=OVERDUE_PRIORITY))
        await write(store, accepted(f"mine-{number}", deadline=11.0, owner="me"))
    await write(store, accepted("fenced", deadline=12.0, priority=OVERDUE_PRIORITY, fenced=True))
    await write(store, accepted("remote", deadline=13.0, priority=OVERDUE_PRIORITY, remote=True))
    for kinds in (None, ("vm",)):
        assert [work.op for work in await ask(store, "overdue", 2, kinds, "me")] == ["fenced", "remote"]
        assert [work.op for work in await ask(store, "overdue", 1, kinds)] == ["mine-0"]


async def test_expedited_work_wakes_nobody_because_it_only_waits_for_a_worker(store: Store) -> None:
    later = await store.reader.time() + 1000.0
    await write(store, accepted("expedited", deadline=10.0, priority=OVERDUE_PRIORITY))
    await write(store, accepted("later", deadline=later))
    for kinds in (None, ("vm",)):
        assert await store.reader.next_due_time(kinds) == later
