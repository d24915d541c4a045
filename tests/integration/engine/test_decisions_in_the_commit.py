"""What a commit depends on holds when it is written: counts, absence, members of a whole, and what was read before.

Two engines on one PostgreSQL stand for two processes; a gate holds one transaction open while the other one tries.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import msgspec
import pytest

from stateward.engine import Denied, Engine, Key, Object, Request, Selector, UnitOfWork
from stateward.engine.recovery import reap_dead_workers
from stateward.lifecycle import FORCE
from stateward.store.port import Tx
from stateward.store.postgres import PostgresStore
from stateward.store.records import WorkerRecord
from tests.integration.engine.pump_kinds import PUMP, STATION, Plant
from tests.integration.postgres_helpers import looking_at, until_somebody_waits
from tests.servers import PostgresServer

LIMIT_MB = 4096
QUOTA = Key("ns", "memory quota")  # no object has this name


class OverQuota(Denied, code="over_quota"):
    used: int
    text = "{used} MB are in use"


class Gate:
    """Holds the first transaction that reaches it until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def hold_first(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.opened.wait()


class TwoProcesses:
    """Two engines with their own stores on one PostgreSQL, and a connection that observes the server."""

    def __init__(self, first: Engine, second: Engine, server: Any) -> None:
        self.first, self.second, self._server = first, second, server

    async def until_blocked(self, other: "asyncio.Task[Any]") -> None:
        """Return when another transaction waits for a lock, or has ended because nothing was in its way."""
        waiting = asyncio.create_task(until_somebody_waits(self._server))
        await asyncio.wait([waiting, other], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> Iterator[str]:
    dsn = postgres_server.new_migrated_database()
    yield dsn
    postgres_server.drop_later(dsn)


@pytest.fixture
async def open_two(dsn: str) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack, asyncio.timeout(60):

        async def start(**options: Any) -> TwoProcesses:
            engines: list[Engine] = []
            for _ in range(2):
                plant = Plant()
                plant.release()
                pump, station = plant.pump(), plant.station()
                for name, value in options.items():
                    setattr(pump, name, value)
                store = PostgresStore(dsn)
                engines.append(await stack.enter_async_context(Engine(store, [pump, station], works=False)))
            return TwoProcesses(engines[0], engines[1], await stack.enter_async_context(looking_at(dsn)))

        yield start


async def test_two_processes_that_count_a_selection_under_a_locked_key_keep_the_limit(
    open_two: Callable[..., Any],
) -> None:
    gate = Gate()

    def lock_set(_request: Request, _found: Object | None) -> Iterable[Key]:
        return [QUOTA]

    async def guard(uow: UnitOfWork, request: Request, _found: Object) -> None:
        pumps = await uow.select(Selector("ns", PUMP.kind))
        used = sum(msgspec.json.decode(one.spec)["mb"] for one in pumps)
        await gate.hold_first()
        if used + msgspec.json.decode(request.spec or "{}")["mb"] > LIMIT_MB:
            raise OverQuota(used)

    two = await open_two(guard=guard, lock_set=lock_set)
    large = asyncio.create_task(two.first.create("ns", "p1", PUMP.kind, "build", spec={"mb": 4000}))
    await gate.reached.wait()
    other = asyncio.create_task(two.second.create("ns", "p2", PUMP.kind, "build", spec={"mb": 4000}))
    await two.until_blocked(other)
    gate.opened.set()
    assert (await large).object.id == "p1"
    with pytest.raises(OverQuota, match="4000 MB are in use"):
        await other


async def test_a_claim_that_is_committed_after_its_worker_was_removed_is_taken_over(
    open_two: Callable[..., Any],
) -> None:
    two, gate = await open_two(), Gate()
    first, second = two.first.store, two.second.store
    await two.first.create("ns", "p1", PUMP.kind, "build")
    await first.transact(lambda tx: tx.heartbeat(WorkerRecord("silent/1", -1.0, 0.0, "here", 1)))

    async def claim_late(tx: Tx) -> int:
        claims = await tx.claim({"": 10}, "silent/1")
        await gate.hold_first()
        return len(claims)

    claiming = asyncio.create_task(first.transact(claim_late))
    await gate.reached.wait()
    assert await second.transact(lambda tx: reap_dead_workers(tx, "other/1")) == 0
    gate.opened.set()
    assert await claiming == 1
    assert await second.transact(lambda tx: reap_dead_workers(tx, "other/1")) == 1
    (work,) = await second.reader.queue_of(Key("ns", "p1"))
    assert (work.owner, work.observe) == (None, True)


async def test_a_key_that_another_transaction_creates_while_it_is_locked_is_found(
    open_two: Callable[..., Any],
) -> None:
    """The guard of the second process relies on the absence of the object that the first one creates."""
    gate, seen = Gate(), dict[str, bool]()

    def lock_set(_request: Request, _found: Object | None) -> Iterable[Key]:
        return [Key("ns", "p1")]

    async def guard(uow: UnitOfWork, request: Request, _found: Object) -> None:
        seen[request.object] = Key("ns", "p1") in uow.objects
        await gate.hold_first()

    two = await open_two(guard=guard, lock_set=lock_set)
    made = asyncio.create_task(two.first.create("ns", "p1", PUMP.kind, "build"))
    await gate.reached.wait()
    other = asyncio.create_task(two.second.create("ns", "p2", PUMP.kind, "build"))
    await two.until_blocked(other)
    gate.opened.set()
    await asyncio.gather(made, other)
    assert seen == {"p1": False, "p2": True}


async def test_a_key_that_is_locked_against_the_order_conflicts_instead_of_waiting(dsn: str) -> None:
    """The transaction runs again until its turn comes; no deadlock has to be detected."""
    holder, other = PostgresStore(dsn), PostgresStore(dsn)
    first, last = sorted((Key("ns", "a"), Key("ns", "b")), key=holder._names.key_lock)
    held, release, attempts = asyncio.Event(), asyncio.Event(), count(1)

    async def hold_first(tx: Tx) -> None:
        await tx.lock_keys([first])
        held.set()
        await release.wait()

    async def lock_against_the_order(tx: Tx) -> int:
        if (attempt := next(attempts)) == 2:
            release.set()
        await tx.lock_keys([last])
        await tx.lock_keys([first])
        return attempt

    async with asyncio.timeout(60), AsyncExitStack() as stack:
        for store in (holder, other):
            await store.open()
            stack.push_async_callback(store.close)
        holding = asyncio.create_task(holder.transact(hold_first))
        await held.wait()
        assert await other.transact(lock_against_the_order) > 1
        await holding


async def test_a_member_that_is_added_before_the_whole_is_locked_takes_part_in_the_group(
    open_two: Callable[..., Any],
) -> None:
    gate = Gate()

    async def guard(_uow: UnitOfWork, request: Request, _found: Object) -> None:
        if request.object == "p2":
            await gate.hold_first()

    def lock_set(request: Request, _found: Object | None) -> Iterable[Key]:
        return [Key("ns", "s1")] if request.creates is not None else []

    two = await open_two(guard=guard, lock_set=lock_set)
    await two.first.create("ns", "s1", STATION.kind, "found")
    await two.first.create("ns", "p1", PUMP.kind, "build", parent="s1")
    added = asyncio.create_task(two.first.create("ns", "p2", PUMP.kind, "build", parent="s1"))
    await gate.reached.wait()
    members = Selector("ns", PUMP.kind, parent="s1")
    whole = two.second.request("ns", "s1", "pump")
    each = two.second.request("ns", "", "scrap", facts=[FORCE])
    group = asyncio.create_task(two.second.group(whole, members, each))
    await two.until_blocked(group)
    gate.opened.set()
    await added
    verdict = await group
    assert sorted(one.object.id for one in verdict.begun) + sorted(verdict.skipped) == ["p1", "p2"]
