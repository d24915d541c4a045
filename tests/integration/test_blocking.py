"""The engine for programs without asyncio."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stateward.blocking import BlockingEngine, CalledInLoop, NotRunning, UsedAfterFork
from stateward.engine import (
    BlockingJob,
    Job,
    Kind,
    KindBuilder,
    MissingHandlers,
    NotFound,
    OperationCancelled,
    OperationFailed,
    Permanent,
)
from stateward.lifecycle import BACK, MINUTE, STABLE, TRANSITIONAL, State, action, declare
from stateward.store.records import Status
from stateward.store.sqlite import SqliteStore
from tests.stores import fresh_store


def boats(engines: list[BlockingEngine]) -> Kind:
    boat = KindBuilder("test.boat")

    @boat.creates(to="moored")
    def build(job: BlockingJob) -> None: ...

    @boat.acts("moored")
    async def sail(job: Job) -> dict[str, Any]:
        return {"miles": job.args["miles"]}

    @boat.acts("moored")
    def sink(job: BlockingJob) -> None:
        raise Permanent("a leak")

    @boat.acts("moored")
    async def wait(job: Job) -> Any:
        return await job.wait_for("go")

    @boat.acts("moored")
    def tow(job: BlockingJob) -> Any:
        return engines[0].get(job.ns, "b2").state

    @boat.acts("moored")
    async def lock(job: Job) -> Any:
        return engines[0].get(job.ns, "b2").state

    @boat.deletes()
    def scrap(job: BlockingJob) -> None: ...

    return boat.build()


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Iterator[BlockingEngine]:
    engines: list[BlockingEngine] = []
    with BlockingEngine(fresh_store(request.param, request)(), [boats(engines)]) as opened:
        engines.append(opened)
        opened.run("ns", "b1", "build", kind="test.boat", spec={"masts": 2})
        yield opened


def test_every_method_blocks_until_it_is_done(engine: BlockingEngine) -> None:
    assert engine.run("ns", "b1", "sail", args={"miles": 3}).result == {"miles": 3}
    assert (engine.get("ns", "b1").state, engine.get("ns", "b1").spec) == ("moored", {"masts": 2})
    assert [one.event for one in engine.history("ns", "b1")] == ["build", "succeeded", "sail", "succeeded"]
    with pytest.raises(OperationFailed, match="a leak"):
        engine.run("ns", "b1", "sink")
    (verdict,) = engine.plan([engine.request("ns", "b1", "sail", args={"miles": 1})])
    assert verdict.object.state == "sailing"  # type: ignore[union-attr]
    with pytest.raises(NotFound):
        engine.get("ns", "b9")


def test_operations_are_waited_for_cancelled_and_signalled(engine: BlockingEngine) -> None:
    waiting = engine.act("ns", "b1", "wait")
    with pytest.raises(TimeoutError):
        engine.wait("ns", waiting.op.id, 0.1)
    assert engine.signal("ns", waiting.op.id, "go", 5)
    assert engine.wait("ns", waiting.op.id, 30).result == 5
    waiting = engine.act("ns", "b1", "wait")
    engine.cancel("ns", waiting.op.id)
    with pytest.raises(OperationCancelled):
        engine.wait("ns", waiting.op.id, 30, check=True)
    made = engine.create("ns", "b2", "test.boat", "build")
    assert engine.wait("ns", made.op.id, 30).status is Status.SUCCEEDED


def test_threads_share_an_engine(engine: BlockingEngine) -> None:
    def build(number: int) -> str:
        return engine.run("ns", f"t{number}", "build", kind="test.boat").object.state

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(build, range(16))) == {"moored"}


def test_a_plain_handler_may_use_the_engine_and_an_async_one_is_told_why_not(engine: BlockingEngine) -> None:
    engine.run("ns", "b2", "build", kind="test.boat")
    assert engine.run("ns", "b1", "tow").result == "moored"
    with pytest.raises(OperationFailed, match="CalledInLoop: an async handler cannot wait for its own loop"):
        engine.run("ns", "b1", "lock")
    assert issubclass(CalledInLoop, Exception)


def test_an_engine_is_used_inside_of_its_context_only() -> None:
    engine = BlockingEngine(":memory:", [boats([])])
    with pytest.raises(NotRunning, match="use it inside of `with BlockingEngine"):
        engine.get("ns", "b1")
    with engine:
        pass
    with pytest.raises(NotRunning):
        engine.act("ns", "b1", "sail")
    with engine:  # a database in memory begins anew
        engine.run("ns", "b1", "build", kind="test.boat")
    assert "stateward engine" not in {one.name for one in threading.enumerate()}


def test_a_handler_that_still_runs_when_the_context_is_left_uses_the_engine_to_its_end(tmp_path: Path) -> None:
    begun, proceed, engines = threading.Event(), threading.Event(), list[BlockingEngine]()
    boat = KindBuilder("test.boat")

    @boat.creates(to="moored")
    def build(job: BlockingJob) -> str:
        begun.set()
        proceed.wait(30)
        return engines[0].get(job.ns, job.object).state

    @boat.deletes()
    def scrap(job: BlockingJob) -> None: ...

    database = str(tmp_path / "boats.db")
    with BlockingEngine(database, [boat.build()]) as engine:
        engines.append(engine)
        op = engine.create("ns", "b1", "test.boat").op.id
        begun.wait(30)
        engine._loop.call_soon_threadsafe(  # the handler proceeds when the engine is being left
            lambda: engine._loop.create_task(_proceed_when_left(engine._left, proceed))
        )
    with BlockingEngine(database, [boat.build()]) as engine:
        assert engine.wait("ns", op, 30).status is Status.SUCCEEDED
        assert engine.get("ns", "b1").state == "moored"


async def _proceed_when_left(left: asyncio.Event, proceed: threading.Event) -> None:
    await left.wait()
    await asyncio.sleep(0)  # the engine begins to close
    proceed.set()


def test_an_interrupt_while_the_engine_starts_leaves_no_thread_behind() -> None:
    opening, proceed = threading.Event(), threading.Event()

    class SlowStore(SqliteStore):
        async def open(self) -> None:
            opening.set()
            await asyncio.to_thread(proceed.wait, 30)
            await super().open()

    def interrupt() -> None:
        opening.wait(30)
        signal.raise_signal(signal.SIGINT)
        proceed.set()

    threading.Thread(target=interrupt).start()
    engine = BlockingEngine(SlowStore(":memory:"), [boats([])])
    with pytest.raises(KeyboardInterrupt), engine:
        pytest.fail("it was entered")
    assert "stateward engine" not in {one.name for one in threading.enumerate()}


def test_what_is_wrong_with_the_engine_is_raised_when_it_is_entered() -> None:
    class Buoy(State):
        LAYING = "laying", TRANSITIONAL
        LAID = "laid", STABLE

    rows = [action("lay", source=Buoy.LAID, through=Buoy.LAYING, to=BACK, within=MINUTE)]
    buoy = Kind(declare("test.buoy", Buoy, rows, initial=Buoy.LAID))
    with pytest.raises(MissingHandlers, match="has no handler for lay"), BlockingEngine(":memory:", [buoy]):
        pass


def test_an_empty_postgresql_database_is_used_by_its_url(postgres_dsn: str) -> None:
    with BlockingEngine(postgres_dsn, [boats([])], migrate=True) as engine:
        assert engine.run("ns", "b1", "build", kind="test.boat").object.state == "moored"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_engine_that_is_used_after_a_fork_raises_instead_of_waiting_for_ever() -> None:
    reading, writing = os.pipe()
    with BlockingEngine(":memory:", [boats([])]) as engine:
        child = os.fork()
        if child == 0:
            try:
                engine.get("ns", "b1")
            except UsedAfterFork as error:
                os.write(writing, str(error).encode())
            finally:
                engine.__exit__()
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as told:
            text = told.read()
        engine.run("ns", "b1", "build", kind="test.boat")
    assert text.startswith(
        f"the engine was entered in process {os.getpid()}, and process {child} is a fork of that one"
    )
