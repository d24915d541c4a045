"""Handlers that are plain functions, each in a thread."""

import asyncio
import threading
import time
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from stateward.engine import (
    BlockingJob,
    Engine,
    JobStopped,
    Kind,
    KindBuilder,
    OperationFailed,
    Permanent,
    thread_handlers,
)
from stateward.store import open_store
from stateward.store.records import Key, Status


class Press:
    """The handlers of a press, and what they saw."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.undone: list[Any] = []
        self.stopped = threading.Event()
        self.begun, self.proceed = threading.Event(), threading.Event()
        self.late: SimpleQueue[str] = SimpleQueue()

    def kind(self) -> Kind:
        press = KindBuilder("test.press")
        press.creates(to="idle")(self.make)
        press.acts("idle")(self.work)
        press.acts("idle")(self.fail)
        press.acts("idle")(self.hang)
        press.acts("idle", within=0.5)(self.stall)
        press.acts("idle")(self.undo)
        press.acts("idle")(self.linger)
        press.acts("idle")(self.confirm)
        press.acts("idle")(self.forget)
        press.deletes()(self.scrap)
        return press.build()

    def make(self, job: BlockingJob) -> None: ...

    def scrap(self, job: BlockingJob) -> None: ...

    def work(self, job: BlockingJob) -> dict[str, Any]:
        self.threads.add(threading.get_ident())
        job.progress("half", 1, 2)
        sheets = job.once("press", lambda: job.args["sheets"])
        return {"object": job.object, "sheets": sheets, "attempt": job.attempt, "time": job.time_left_s > 0}

    def fail(self, job: BlockingJob) -> None:
        raise Permanent("no paper")

    def hang(self, job: BlockingJob) -> None:
        self.begun.set()
        try:
            while True:
                job.progress("still there")
                time.sleep(0.01)
        except JobStopped:
            self.stopped.set()
            raise

    def stall(self, job: BlockingJob) -> None:
        while not job.is_stopped:
            time.sleep(0.01)
        self.stopped.set()

    def undo(self, job: BlockingJob) -> None:
        job.once("ink", lambda: "black", undo=self.undone.append)
        raise Permanent("out of ink")

    def linger(self, job: BlockingJob) -> None:
        def print_sheet() -> str:
            self.begun.set()
            self.proceed.wait(30)
            return "sheet"

        job.once("ink", lambda: "black", undo=self.undone.append)
        try:
            job.once("print", print_sheet, undo=self.undone.append)
        except BaseException as error:
            self.late.put(type(error).__name__)
            raise
        self.late.put("stored")

    def confirm(self, job: BlockingJob) -> Any:
        return job.wait_for("go")

    def forget(self, job: BlockingJob) -> Any:
        async def work() -> None: ...

        return work()


@pytest.fixture
def press() -> Press:
    return Press()


async def test_a_plain_handler_runs_in_a_thread_with_a_job_that_blocks(press: Press) -> None:
    async with Engine(open_store(":memory:"), [press.kind()]) as engine:
        await engine.run("ns", "p1", "make", kind="test.press")
        done = await engine.run("ns", "p1", "work", args={"sheets": 7})
        assert done.operation is not None
        assert done.result == {"object": "p1", "sheets": 7, "attempt": 1, "time": True}
        assert done.operation.steps == {"press": 7}
        assert [one.text for one in await engine.store.reader.progress_of(done.operation.key, 0)] == ["half"]
    assert threading.get_ident() not in press.threads


async def test_the_errors_of_a_plain_handler_are_policies_too(press: Press) -> None:
    async with Engine(open_store(":memory:"), [press.kind()]) as engine:
        await engine.run("ns", "p1", "make", kind="test.press")
        with pytest.raises(OperationFailed, match="no paper"):
            await engine.run("ns", "p1", "fail")
        with pytest.raises(OperationFailed, match="out of ink"):
            await engine.run("ns", "p1", "undo")
        assert press.undone == ["black"]
        waits = await engine.act("ns", "p1", "confirm")
        await engine.signal("ns", waits.op.id, "go", {"by": "ann"})
        assert (await engine.wait("ns", waits.op.id, 30)).result == {"by": "ann"}


async def test_a_plain_handler_that_returns_a_coroutine_is_told_to_be_async(press: Press) -> None:
    async with Engine(open_store(":memory:"), [press.kind()]) as engine:
        await engine.run("ns", "p1", "make", kind="test.press")
        with pytest.raises(OperationFailed, match="returned an awaitable: declare it with `async def`"):
            await engine.run("ns", "p1", "forget")


async def test_a_cancelled_plain_handler_is_stopped_by_its_next_use_of_the_job(press: Press) -> None:
    async with Engine(open_store(":memory:"), [press.kind()]) as engine:
        await engine.run("ns", "p1", "make", kind="test.press")
        accepted = await engine.act("ns", "p1", "hang")
        while not press.begun.is_set():
            await engine.get("ns", "p1")
        await engine.cancel("ns", accepted.op.id)
        ended = await engine.wait("ns", accepted.op.id, 30)
        assert (ended.status, press.stopped.is_set()) == (Status.CANCELLED, True)


async def test_a_step_that_ends_after_its_operation_was_undone_is_not_stored(
    press: Press, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_handlers, "CALL_END_TIMEOUT_S", 0.05)
    async with Engine(open_store(":memory:"), [press.kind()]) as engine:
        await engine.run("ns", "p1", "make", kind="test.press")
        op = (await engine.act("ns", "p1", "linger")).op.id
        await asyncio.to_thread(press.begun.wait, 30)
        await engine.cancel("ns", op)
        assert (await engine.wait("ns", op, 30)).status is Status.CANCELLED
        assert press.undone == ["black"]
        press.proceed.set()
        assert await asyncio.to_thread(press.late.get, timeout=30) == "Permanent"
        found = await engine.store.reader.operation(Key("ns", op))
        assert found is not None
        assert "print" not in msgspec.json.decode(found.steps)


async def test_an_overdue_plain_handler_ends_its_operation_and_learns_of_it(press: Press) -> None:
    async with Engine(open_store(":memory:"), [press.kind()]) as engine:
        await engine.run("ns", "p1", "make", kind="test.press")
        with pytest.raises(OperationFailed, match="timed out: not done 0"):
            await engine.run("ns", "p1", "stall", seconds=30)
        assert press.stopped.is_set()
