"""What is told of handlers that are missing, raise what they should not, or block the loop."""

import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from stateward.engine import (
    Engine,
    Job,
    Kind,
    KindBuilder,
    MissingHandlers,
    Operation,
    OperationFailed,
    OperationTimedOut,
    Permanent,
    Rules,
    UnitOfWork,
)
from stateward.engine.tracebacks import LONGEST_TRACEBACK
from stateward.engine.worker import loop_watchdog, worker
from stateward.lifecycle import BACK, GONE, MINUTE, NEW, STABLE, TRANSITIONAL, State, action, declare, hidden
from stateward.store import open_store
from stateward.store.changes import Ended
from stateward.store.port import Store
from stateward.store.records import Status
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import Plant


class Bell(State):
    CASTING = "casting", TRANSITIONAL
    HUNG = "hung", STABLE
    RINGING = "ringing", TRANSITIONAL
    MELTING = "melting", TRANSITIONAL


def bell_kind(**how: object) -> Kind:
    rows = [
        action("cast", source=NEW, through=Bell.CASTING, to=Bell.HUNG, within=2.0),
        action("ring", source=Bell.HUNG, through=Bell.RINGING, to=BACK, within=MINUTE),
        hidden("polish", source=Bell.HUNG, within=MINUTE),
        action("melt", source=Bell.HUNG, through=Bell.MELTING, to=GONE, within=MINUTE),
    ]
    kind = Kind(declare("test.bell", Bell, rows), **how)  # type: ignore[arg-type]

    @kind.handles("cast")
    async def cast(job: Job) -> None: ...

    return kind


async def test_an_error_that_no_handler_expects_is_stored_and_logged_once_with_its_traceback(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.built("p1")
    site.plant.fail("pump", ZeroDivisionError("oops"))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.error, ended.result) == ("ZeroDivisionError: oops", None)
    assert ended.traceback is not None
    assert ended.traceback.startswith("Traceback (most recent call last):\n")
    assert "pump_kinds.py" in ended.traceback
    assert "attempt.py" not in ended.traceback
    assert ended.traceback.endswith("\nZeroDivisionError: oops")
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    first, rest = record.getMessage().split("\n", 1)
    assert first == f"operation {ended.id} (pump of test.pump p1 in ns) failed in attempt 1:"
    assert rest == ended.traceback


async def test_an_error_that_says_what_happens_next_has_no_traceback(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.built("p1")
    site.plant.fail("pump", Permanent("the shaft is broken"))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.error, ended.traceback) == ("the shaft is broken", None)
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_a_traceback_keeps_its_end_and_can_always_be_stored(site: Site) -> None:
    await site.built("p1")
    site.plant.fail("pump", ValueError("\0\ud800" + "x" * 2 * LONGEST_TRACEBACK + "end"))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert ended.traceback is not None
    assert len(ended.traceback) < LONGEST_TRACEBACK + 10
    assert ended.traceback.endswith("xxxend")


async def test_hooks_at_the_end_of_an_operation_do_not_get_its_traceback(new_store: Callable[[], Store]) -> None:
    plant, results = Plant(), []
    kind = plant.pump()

    async def on_end(_uow: object, _operation: object, ended: object) -> None:
        results.append(ended.result)  # type: ignore[attr-defined]

    kind.on_end = on_end
    plant.fail("build", ZeroDivisionError("oops"))
    async with Engine(new_store(), [kind]) as engine:
        accepted = await engine.create("ns", "p1", kind, "build")
        ended = await engine.wait("ns", accepted.op.id, 30)
    assert (results, ended.traceback is None) == ([None], False)


async def test_an_operation_whose_handler_does_not_stop_at_its_deadline_ends_without_it(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "STUBBORN_GRACE_S", 0.2)
    kind, is_over = bell_kind(rules=Rules(delegated=("ring", "polish", "melt"))), asyncio.Event()

    async def ignore_all(job: Job) -> None:
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    kind.handles("cast")(ignore_all)
    async with Engine(new_store(), [kind]) as engine:
        accepted = await engine.create("ns", "b1", kind, "cast")
        with pytest.raises(OperationTimedOut, match="and its handler ignores that it is cancelled; it is gone"):
            await engine.wait("ns", accepted.op.id, 30, check=True)
        is_over.set()
    assert f"operation {accepted.op.id} (cast of test.bell b1) ends without its handler" in caplog.text


async def test_missing_handlers_are_told_when_the_engine_is_entered() -> None:
    with pytest.raises(MissingHandlers, match=r"^test.bell has no handler for ring, polish, melt: write one with "):
        async with Engine(open_store(":memory:"), [bell_kind()]):
            pass


async def test_a_kind_whose_actions_are_carried_out_elsewhere_needs_no_handlers() -> None:
    async with Engine(open_store(":memory:"), [bell_kind(rules=Rules(delegated=("ring", "polish", "melt")))]):
        pass


async def test_an_engine_without_a_worker_needs_no_handlers() -> None:
    async with Engine(open_store(":memory:"), [bell_kind()], works=False):
        pass


async def test_a_handler_that_blocks_the_loop_is_reported_with_its_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_watchdog, "PROBE_INTERVAL_S", 0.01)
    monkeypatch.setattr(loop_watchdog, "BLOCKED_AFTER_S", 0.3)
    kind, reported = bell_kind(rules=Rules(delegated=("polish", "melt"))), threading.Event()

    @kind.handles("ring")
    async def ring(job: Job) -> None:
        reported.wait(30)

    def notice(record: logging.LogRecord) -> bool:
        if "(ring of" in record.getMessage():
            reported.set()
        return True

    monkeypatch.setattr(loop_watchdog.log, "filters", [notice])
    async with Engine(open_store(":memory:"), [kind]) as engine:
        await engine.run("ns", "b1", "cast", kind=kind)
        done = await engine.run("ns", "b1", "ring", seconds=60)
    assert done.operation is not None
    (report, *_) = [one.getMessage() for one in caplog.records if "(ring of" in one.getMessage()]
    assert report.startswith(f"operation {done.operation.id} (ring of test.bell b1) blocks the event loop for ")
    assert f"at {__file__}:" in report
    assert "in ring: reported.wait(30)" in report


async def test_a_handler_that_waits_does_not_block_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    kind, waits, goes_on = bell_kind(rules=Rules(delegated=("polish", "ring"))), asyncio.Event(), asyncio.Event()

    @kind.handles("melt")
    async def melt(job: Job) -> None:
        waits.set()
        await goes_on.wait()

    async with Engine(open_store(":memory:"), [kind]) as engine:
        await engine.run("ns", "b1", "cast", kind=kind)
        melting = asyncio.create_task(engine.run("ns", "b1", "melt", seconds=30))
        await waits.wait()
        assert engine.worker is not None
        engine.worker._watchdog._report(asyncio.get_running_loop(), sys._getframe(), 60.0)
        goes_on.set()
        await melting
    assert "(melt of" not in caplog.text


async def test_a_handler_that_exits_fails_and_the_engine_goes_on(new_store: Callable[[], Store]) -> None:
    bell = bell_kind()

    @bell.handles("ring")
    async def leave(job: Job) -> None:
        sys.exit(f"{job.object} has enough")

    @bell.handles("polish")
    @bell.handles("melt")
    async def work(job: Job) -> None: ...

    async with Engine(new_store(), [bell]) as engine:
        await engine.run("ns", "b1", "cast", kind=bell)
        with pytest.raises(OperationFailed, match="SystemExit: b1 has enough"):
            await engine.run("ns", "b1", "ring", seconds=30)
        await engine.run("ns", "b1", "melt", seconds=30)


async def test_an_end_hook_that_fails_is_tried_again_later_and_shown(new_store: Callable[[], Store]) -> None:
    calls = Counter[str]()
    boat = KindBuilder("test.boat")

    @boat.creates(to="moored")
    async def build(job: Job) -> None:
        calls["handler"] += 1

    @boat.deletes()
    async def scrap(job: Job) -> None: ...

    async def on_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
        calls["hook"] += 1
        if calls["hook"] <= 3:
            raise KeyError("mast")

    kind = boat.build()
    kind.on_end = on_end
    async with Engine(new_store(), [kind]) as engine:
        op = (await engine.create("ns", "b1", "test.boat")).op.id
        assert (await engine.wait("ns", op, 60)).status is Status.SUCCEEDED
        reasons = [one.reason for one in await engine.history("ns", "b1") if one.reason is not None]
    assert "its end cannot be recorded: its end hook failed (KeyError)" in reasons[0]
    assert calls == {"handler": 4, "hook": 4}
