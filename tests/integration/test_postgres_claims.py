"""Concurrent claims of several processes: limits are exact, no claimer waits without need, nothing is claimed twice."""

import asyncio
from collections import Counter
from functools import partial

from msgspec.structs import replace

from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.postgres import PostgresStore
from stateward.store.records import Claim, Key, Lane, LaneGroup, WorkerRecord, WorkItem
from tests.contract.samples import NS, a_timer, an_object, an_operation, some_work
from tests.integration.postgres_helpers import in_loop, looking_at, opened, until_somebody_waits
from tests.integration.postgres_samples import accepts, creates, finished

CAPACITY, LANES_AT_ONCE = 3, 2


async def claim(tx: Tx) -> list[Claim]:
    """Take what fits: no more lanes at once than their group may, no more in a lane than it holds."""
    groups, loads = await tx.lane_loads()
    limits = {group.grp: group.lanes for group in groups}
    active = Counter(load.lane.grp for load in loads if load.running)
    rooms = {}
    for load in loads:
        grp = load.lane.grp
        if load.waiting and (load.running or active[grp] < limits[grp]):
            active[grp] += not load.running
            rooms[load.lane.lane] = load.lane.capacity - load.running
    return await tx.claim(rooms, "w")


async def finish(claims: list[Claim], tx: Tx) -> None:
    await tx.objects([one.object.key for one in claims])
    changes = Changes()
    for one in claims:
        ended = finished(one.work, tx.now)
        changes.ended += ended.ended
        changes.work_gone += ended.work_gone
    await tx.apply(changes)


async def fill(tx: Tx, lanes: int, each: int) -> None:
    names = [(f"{lane}.{number}", f"cloud/{lane}") for lane in range(lanes) for number in range(each)]
    await tx.apply(
        Changes(
            objects=[an_object(name) for name, _ in names],
            operations=[an_operation(name, name) for name, _ in names],
            new_work=[some_work(name, name, lane=lane, grp="cloud") for name, lane in names],
            lanes=[Lane(f"cloud/{lane}", "cloud", CAPACITY, 0.0, 0.0, 0) for lane in range(lanes)],
            groups=[LaneGroup("cloud", LANES_AT_ONCE)],
        )
    )


@in_loop
async def test_limits_are_exact_with_four_claimers_at_once(postgres_dsn: str) -> None:
    lanes, each = 5, 12
    taken: list[Key] = []

    async def work(store: PostgresStore) -> None:
        while len(taken) < lanes * each:
            claims = await store.transact(claim)
            taken.extend(one.work.key for one in claims)
            for half in (claims[::2], claims[1::2]):
                if half:
                    await store.transact(partial(finish, half))

    async def watch(store: PostgresStore) -> tuple[int, int]:
        most_in_a_lane = most_lanes = 0
        while len(taken) < lanes * each:
            running = [load.running for load in (await store.reader.lanes())[1] if load.running]
            most_in_a_lane = max([most_in_a_lane, *running])
            most_lanes = max(most_lanes, len(running))
        return most_in_a_lane, most_lanes

    async with opened(postgres_dsn) as one, opened(postgres_dsn) as other:
        await one.transact(lambda tx: fill(tx, lanes, each))
        *_, most = await asyncio.gather(work(one), work(one), work(other), work(other), watch(one))
    assert len(set(taken)) == len(taken) == lanes * each
    assert most == (CAPACITY, LANES_AT_ONCE)


@in_loop
async def test_claimers_of_one_group_wait_for_each_other_and_then_count_right(postgres_dsn: str) -> None:
    holding, may_commit = asyncio.Event(), asyncio.Event()

    async def slow(tx: Tx) -> int:
        claims = await claim(tx)
        holding.set()
        await may_commit.wait()
        return len(claims)

    async def quick(tx: Tx) -> int:
        return len(await claim(tx))

    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        await store.transact(lambda tx: fill(tx, 3, 10))
        first = asyncio.create_task(store.transact(slow))
        await holding.wait()
        second = asyncio.create_task(store.transact(quick))
        await until_somebody_waits(connection)
        may_commit.set()
        assert [await first, await second] == [CAPACITY * LANES_AT_ONCE, 0]


@in_loop
async def test_claimers_of_the_default_lane_do_not_wait_for_each_other(postgres_dsn: str) -> None:
    async def hold(tx: Tx) -> tuple[list[Claim], list[Claim]]:
        await tx.lane_loads()
        mine = await tx.claim({"": 2}, "one")
        return mine, await store.transact(take_all)

    async def take_all(tx: Tx) -> list[Claim]:
        await tx.lane_loads()
        return await tx.claim({"": 10}, "other")

    async with opened(postgres_dsn) as store:
        await store.transact(creates("a", "b", "c"))
        for name in "abc":
            await store.transact(accepts(f"o{name}", name))
        mine, theirs = await store.transact(hold)
    assert [one.work.op for one in mine] == ["oa", "ob"]
    assert [one.work.op for one in theirs] == ["oc"]


@in_loop
async def test_a_named_lane_without_a_group_has_a_limit_and_so_a_lock(postgres_dsn: str) -> None:
    async def hold(tx: Tx) -> None:
        await tx.lane_loads()
        waiting = asyncio.create_task(store.transact(claim))
        await until_somebody_waits(connection)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        await store.transact(creates("a"))
        await store.transact(accepts("o", "a", lane="narrow"))
        await store.transact(hold)


@in_loop
async def test_delayed_work_is_woken_for_and_claimed_when_its_time_has_come(postgres_dsn: str) -> None:
    async def delay(tx: Tx) -> float:
        await accepts("o", "a", not_before=tx.now + 0.05)(tx)
        return tx.now + 0.05

    async with opened(postgres_dsn) as store:
        await store.transact(creates("a"))
        due = await store.transact(delay)
        assert await store.reader.next_due_time() == due
        claims: list[Claim] = []
        while not claims:
            claims = await store.transact(claim)
        assert claims[0].work.not_before == due <= await store.reader.time()
        assert await store.reader.next_due_time() == claims[0].work.deadline


@in_loop
async def test_what_another_heals_or_fires_is_passed_over(postgres_dsn: str) -> None:
    async def late(tx: Tx) -> None:
        await tx.apply(
            Changes(
                objects=[an_object(name) for name in "ab"],
                operations=[an_operation(f"o{name}", name) for name in "ab"],
                new_work=[some_work(f"o{name}", name, deadline=5.0) for name in "ab"],
                timers=[a_timer(f"t{name}", 5.0, object=name) for name in "ab"],
            )
        )

    async def first(tx: Tx) -> object:
        await tx.objects([Key(NS, "a")])
        return await store.transact(second)

    async def second(tx: Tx) -> tuple[list[str], list[str]]:
        return [work.op for work in await tx.overdue(9)], [timer.id for timer in await tx.due_timers(9)]

    async with opened(postgres_dsn) as store:
        await store.transact(late)
        assert await store.transact(first) == (["ob"], ["tb"])
        assert await store.transact(second) == (["oa", "ob"], ["ta", "tb"])


@in_loop
async def test_a_reaper_and_a_stale_finish_do_not_deadlock(postgres_dsn: str) -> None:
    finishing = asyncio.Event()

    async def stale(tx: Tx) -> None:
        await tx.objects([Key(NS, "a")])
        finishing.set()
        await until_somebody_waits(connection)
        (work,) = await tx.queues([Key(NS, "a")])
        await tx.apply(finished(work, tx.now))

    async def reap(tx: Tx) -> list[WorkItem]:
        owned = await tx.owned("w")
        await tx.objects([Key(work.ns, work.object) for work in owned])
        await tx.apply(Changes(work=[replace(work, owner=None, observe=True) for work in owned]))
        return owned

    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        await store.transact(creates("a"))
        await store.transact(accepts("o", "a"))
        await store.transact(claim)
        late = asyncio.create_task(store.transact(stale))
        await finishing.wait()
        assert await store.transact(reap) == []
        await late
        assert not await connection.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )


@in_loop
async def test_a_worker_is_seen_at_the_time_of_the_database(postgres_dsn: str) -> None:
    async def seen(tx: Tx) -> float:
        await tx.heartbeat(WorkerRecord("w", 15.0, 1.0, "host", 7))
        return tx.now

    async with opened(postgres_dsn) as store:
        now = await store.transact(seen)
        assert await store.reader.workers() == [WorkerRecord("w", 15.0, now, "host", 7)]
