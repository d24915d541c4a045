"""Steps that finish while another write of the same job is under way: neither write loses what the other stores."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any

import msgspec
import pytest

from stateward.aio.backoff import GrowingIntervals
from stateward.engine import Engine, Handler, Job, Kind
from stateward.engine.finish.claim_reports import ClaimReport
from stateward.engine.finish.completion import record_claim_reports
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.engine.worker.job_store import JobStore
from stateward.lifecycle import CONTROLLER
from stateward.store.port import Store
from tests.integration.engine.pump_kinds import Plant
from tests.integration.engine.test_fencing import OWNER, VALVE


class HeldStore:
    """A store whose next transaction can be held, before it begins or between its commit and the answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.held, self.release = asyncio.Event(), asyncio.Event()
        self._held_at = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def hold_next(self, where: str) -> None:
        self._held_at = where

    async def transact(self, function: Any) -> Any:
        where, self._held_at = self._held_at, ""
        if where == "begin":
            await self._hold()
        answer = await self._store.transact(function)
        if where == "answer":
            await self._hold()
        return answer

    async def _hold(self) -> None:
        self.held.set()
        await self.release.wait()


class Valve:
    """A claimed `open` of a valve, whose job writes to a store that can be held."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.store: Any = HeldStore(engine.store)
        reports: TransactionBatcher[ClaimReport, bool] = TransactionBatcher(self._report, Random(1))
        self.notes = JobStore(self.store, engine.kinds, OWNER, reports, GrowingIntervals(lambda: 0.0))

    async def claim(self) -> Job:
        (claim,) = await self.engine.store.transact(lambda tx: tx.claim({"": 10}, OWNER))
        return Job(claim, self.notes)

    async def _report(self, reports: Any) -> list[bool]:
        return list(await self.store.transact(lambda tx: record_claim_reports(tx, self.engine.kinds, reports)))

    async def finish_step_during(self, job: Job, write: Coroutine[Any, Any, Any], held_at: str = "begin") -> None:
        """Finish a step with an undo while a write is held; the step either ends before it or waits for it."""
        self.store.hold_next(held_at)
        writing = job.task = asyncio.create_task(write)  # the handler's own task, which alone may wait for a signal
        await self.store.held.wait()
        finished = asyncio.Event()

        async def create() -> str:
            finished.set()
            return "machine"

        async def remove(_result: str) -> None:
            """Undo nothing: the test looks for the record."""

        step = asyncio.create_task(job.once("create", create, undo=remove))
        await finished.wait()
        await asyncio.wait([step], timeout=0.2)  # it ends in this time only if nothing makes it wait
        self.store.release.set()
        await asyncio.gather(writing, step)

    async def stored(self, job: Job) -> set[str]:
        found = await self.engine.store.reader.operation(job.key)
        assert found is not None
        return {step for step in msgspec.json.decode(found.steps) if not step.startswith("time: ")}


@pytest.fixture
async def valve(new_store: Callable[[], Store]) -> AsyncIterator[Valve]:
    async with Engine(new_store(), [Kind(VALVE, {"open": Handler(Plant().run)})], works=False) as engine:
        await engine.create("ns", "v1", VALVE.kind, "make")
        await engine.act("ns", "v1", "open")
        yield Valve(engine)


async def prepare() -> str:
    return "ready"


async def test_a_step_that_finishes_while_another_one_is_stored_stays_stored(valve: Valve) -> None:
    job = await valve.claim()
    await valve.finish_step_during(job, job.once("prepare", prepare))
    assert await valve.stored(job) == {"prepare", "create", "undo: create"}


async def test_a_step_that_finishes_during_a_phase_keeps_its_undo(valve: Valve) -> None:
    job = await valve.claim()
    await valve.finish_step_during(job, job.phase("turn", CONTROLLER))
    assert job.pending_undos == ["create"]
    assert await valve.stored(job) == {"phase: turn", "create", "undo: create"}


async def test_a_step_that_finishes_while_a_signal_is_taken_keeps_its_undo(valve: Valve) -> None:
    job = await valve.claim()
    await valve.engine.signal("ns", job.key.id, "approved", {"by": "ops"})
    await valve.finish_step_during(job, job.wait_for("approved"), "answer")
    assert job.pending_undos == ["create"]
    assert await valve.stored(job) == {"wait: approved", "create", "undo: create"}


async def test_a_result_that_is_no_json_fails_only_its_own_step(valve: Valve) -> None:
    job = await valve.claim()

    async def nothing_storable() -> object:
        return object()

    with pytest.raises(TypeError):
        await job.once("bad", nothing_storable)
    await job.once("prepare", prepare)
    assert await valve.stored(job) == {"prepare"}
