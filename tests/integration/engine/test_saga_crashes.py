"""Sagas whose worker dies: at each of its commits, before and after it, another worker goes on where it stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from stateward.engine import Engine, Job, Permanent, Request, Retry, Temporary
from stateward.engine.recovery import release_worker_claims
from stateward.engine.requests import Creation
from stateward.store.port import Store
from stateward.store.records import Key, Operation, Status
from tests.integration.engine.mortal_store import MortalStore
from tests.integration.engine.trip_kinds import TRIP, Agency

LEASE_S = 30.0  # a worker that is slow on a busy machine must not be taken for dead
MOST_COMMITS = 60

Client = Callable[[Engine, str], Coroutine[Any, Any, None]]


async def nothing(_: Engine, __: str) -> None:
    """Be a client that only waits."""


class Crashes:
    """Runs a trip once for each commit of its worker, which dies there."""

    def __init__(self, new_store: Callable[[], Store]) -> None:
        self._new_store = new_store
        self.runs = 0

    async def survive(
        self,
        book: Callable[[Agency, Job], Awaitable[Any]],
        check: Callable[[Agency, Operation], None],
        client: Client = nothing,
        errors: Callable[[Agency], None] = lambda _: None,
    ) -> None:
        """Check the end of a trip after a crash at each commit."""
        agency = Agency(book)
        async with Engine(self._new_store(), [agency.kind()], works=False) as clients:
            for number in range(1, MOST_COMMITS):
                for before in (True, False):
                    agency.calls.clear()
                    errors(agency)
                    name = f"trip-{number}-{before}"
                    ended, has_died = await self._run(clients, agency, name, number, client, before=before)
                    try:
                        check(agency, ended)
                    except AssertionError as wrong:
                        wrong.add_note(f"the worker died {'before' if before else 'after'} commit {number}")
                        raise
                    self.runs += 1
                if not has_died:
                    return
        raise AssertionError("it does not end")

    async def _run(
        self, clients: Engine, agency: Agency, name: str, number: int, client: Client, *, before: bool
    ) -> tuple[Operation, bool]:
        mortal = MortalStore(self._new_store(), number, before=before)
        first = Engine(cast("Store", mortal), [agency.kind()], lease_s=LEASE_S)
        await first.__aenter__()
        op = (await clients.create("ns", name, TRIP.kind, "book")).op.id
        acting = asyncio.create_task(client(clients, op))
        ending = asyncio.create_task(clients.wait("ns", op, 30))
        death = asyncio.create_task(mortal.died.wait())
        await asyncio.wait([ending, death], return_when=asyncio.FIRST_COMPLETED)
        has_died = mortal.died.is_set()
        death.cancel()
        assert first.worker is not None
        for task in (*first.worker._claim_tasks, *first.worker._lease_tasks, *first.worker._operation_tasks()):
            task.cancel()  # as if the process were gone: nothing is given back
        dead = first.worker.name
        await clients.store.transact(lambda tx: release_worker_claims(tx, [dead]))  # as if its lease had expired
        if not ending.done():
            async with Engine(self._new_store(), [agency.kind()], lease_s=LEASE_S):
                await ending
        await acting
        await first._waiters.stop()
        await mortal.bury()
        await ending
        found = await clients.store.reader.operation(Key("ns", op))
        assert found is not None
        return found, has_died


@pytest.fixture
def crashes(new_store: Callable[[], Store]) -> Crashes:
    return Crashes(new_store)


def undone(agency: Agency, ended: Operation) -> None:
    """Check that everything was booked and cancelled, in order, and at most one call was made twice."""
    assert ended.status is Status.FAILED
    assert ended.error == "no car left"
    assert agency.booked == set()
    once = list(dict.fromkeys(agency.work))
    assert once == ["flight", "hotel", "no hotel", "no flight"]
    assert len(agency.work) <= len(once) + 1


async def test_every_step_is_undone_and_the_end_is_the_same_wherever_the_worker_dies(crashes: Crashes) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await agency.step(job, "hotel")
        raise Permanent("no car left")

    await crashes.survive(book, undone)
    assert crashes.runs >= 2 * 7  # claim, two steps, the failure, two undos, the end


async def test_an_undo_that_is_tried_again_survives_a_crash(crashes: Crashes) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        raise Permanent("no car left")

    def errors(agency: Agency) -> None:
        agency.errors["no flight"] = [Temporary("busy", after=0.01)]

    def check(agency: Agency, ended: Operation) -> None:
        assert (ended.error, agency.booked) == ("no car left", set())
        assert 2 <= agency.count["no flight"] <= 3

    await crashes.survive(book, check, errors=errors)


async def test_a_failed_undo_is_told_once_wherever_the_worker_dies(crashes: Crashes) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await agency.step(job, "hotel")
        raise Permanent("no car left")

    def errors(agency: Agency) -> None:
        agency.booked.clear()
        agency.errors["no hotel"] = [Permanent("closed"), Permanent("closed")]

    def check(agency: Agency, ended: Operation) -> None:
        assert ended.error == "no car left; hotel could not be undone: closed"
        assert {part for _, part in agency.booked} == {"hotel"}

    await crashes.survive(book, check, errors=errors)


async def test_a_cancelled_wait_is_undone_wherever_the_worker_dies(crashes: Crashes) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await job.wait_for("approved")

    async def cancel(engine: Engine, op: str) -> None:
        async with asyncio.timeout(30):
            while "wait: approved" not in (await find(engine, op)).steps:
                await asyncio.sleep(0.01)
        await engine.cancel("ns", op)

    def check(agency: Agency, ended: Operation) -> None:
        assert (ended.status, agency.booked) == (Status.CANCELLED, set())
        assert list(dict.fromkeys(agency.work)) == ["flight", "no flight"]
        assert len(agency.work) <= 3

    await crashes.survive(book, check, client=cancel)


async def find(engine: Engine, op: str) -> Operation:
    found = await engine.store.reader.operation(Key("ns", op))
    assert found is not None
    return found


async def test_failures_of_a_step_are_counted_wherever_the_worker_dies(crashes: Crashes) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "hotel", retry=Retry(attempts=3, first_s=0.01))

    def errors(agency: Agency) -> None:
        agency.errors["hotel"] = [ConnectionError("reset") for _ in range(10)]

    def check(agency: Agency, ended: Operation) -> None:
        assert ended.error == "step 'hotel' has failed in 3 of 3 attempts, the last time with: reset"
        assert 3 <= agency.count["hotel"] <= 4  # an attempt whose failure could not be counted is made again

    await crashes.survive(book, check, errors=errors)


async def test_sleeps_and_signals_survive_wherever_the_worker_dies(crashes: Crashes) -> None:
    async def book(agency: Agency, job: Job) -> Any:
        await agency.step(job, "flight")
        await job.sleep(0.05, step="rest")
        items = [await job.wait_for("item", step=f"item {number}") for number in range(2)]
        await agency.step(job, "hotel")
        return items

    async def send(engine: Engine, op: str) -> None:
        await engine.signal("ns", op, "item", "first")
        async with asyncio.timeout(30):
            while "wait: item 1" not in (await find(engine, op)).steps:
                await asyncio.sleep(0.01)
        await engine.signal("ns", op, "item", "second")

    def check(agency: Agency, ended: Operation) -> None:
        assert ended.result == '["first","second"]'
        assert list(dict.fromkeys(agency.work)) == ["flight", "hotel"]
        assert len(agency.work) <= 3

    await crashes.survive(book, check, client=send)
    assert crashes.runs >= 2 * 9


async def test_children_have_one_outcome_wherever_the_worker_dies(crashes: Crashes) -> None:
    async def book(agency: Agency, job: Job) -> Any:
        if job.object.startswith("part"):
            return job.object[-1]
        parts = [f"part of {job.object} {number}" for number in range(2)]
        await agency.step(job, "flight")
        await job.spawn(
            "parts", [Request("ns", part, "book", "", creates=Creation(TRIP.kind, job.object)) for part in parts]
        )
        return [[one.status, one.result] for one in await job.children("parts")]

    def check(agency: Agency, ended: Operation) -> None:
        assert ended.result == '[["succeeded","0"],["succeeded","1"]]'
        assert agency.count["flight"] <= 2

    await crashes.survive(book, check)


@pytest.mark.parametrize("before", [True, False])
async def test_a_signal_with_a_key_arrives_once_whatever_happens_to_its_sender(
    new_store: Callable[[], Store], before: bool
) -> None:
    async def book(_: Agency, job: Job) -> Any:
        return [await job.wait_for("item", step=str(number)) for number in range(2)]

    agency = Agency(book)
    async with Engine(new_store(), [agency.kind()]) as engine:
        op = (await engine.create("ns", "trip", TRIP.kind, "book")).op.id
        mortal = MortalStore(new_store(), 1, before=before)
        sender = Engine(cast("Store", mortal), [agency.kind()], works=False)
        await sender.__aenter__()
        sending = asyncio.create_task(sender.signal("ns", op, "item", 1, key="k"))
        await mortal.died.wait()
        sending.cancel()
        assert await engine.signal("ns", op, "item", 1, key="k") is before
        await engine.signal("ns", op, "item", 2, key="other")
        assert (await engine.wait("ns", op, 30)).result == [1, 2]
        await sender._waiters.stop()
        await mortal.bury()
