"""Supervision: loops that fail start again, errors are logged, and nothing outlives its owner."""

import asyncio
import logging

import pytest

from stateward.aio.supervise import background, repeat, supervise, wait_for_event

log = logging.getLogger("test.supervise")


class Lost(Exception):
    """The database is out of reach."""


async def test_a_loop_that_fails_is_logged_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    errors = [Lost("away"), ExceptionGroup("tasks", [Lost("away")]), KeyError("x")]
    started = asyncio.Event()

    async def loop() -> None:
        if errors:
            raise errors.pop(0)
        started.set()
        await asyncio.Event().wait()

    async with background(supervise("the reader", loop, log, transient=Lost, delay_s=0.0)):
        await started.wait()
    records = [one for one in caplog.records if one.name == log.name]  # asyncio logs what other tests left behind
    assert [one.getMessage() for one in records] == [
        "the reader is interrupted: away; it restarts in 0 s",
        "the reader is interrupted: away; it restarts in 0 s",
        "the reader failed; it restarts in 0 s",
    ]
    assert [one.exc_info is not None for one in records] == [False, False, True]


async def test_what_is_repeated_goes_on_after_an_error_and_waits_first(caplog: pytest.LogCaptureFixture) -> None:
    events: list[str] = []
    done = asyncio.Event()

    async def sleep(seconds: float) -> None:
        events.append(f"{seconds:g}")
        if len(events) > 4:
            done.set()
        await asyncio.sleep(0)

    async def run_once() -> None:
        events.append("run")
        raise Lost("away")

    async with background(repeat("the round", run_once, lambda: 7.0, log, transient=Lost, sleep=sleep)):
        await done.wait()
    assert events[:5] == ["7", "run", "7", "run", "7"]
    assert "the round is interrupted: away" in caplog.text


async def test_background_loops_have_ended_when_the_body_ends() -> None:
    ended = asyncio.Event()

    async def loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async def fail_beside_it() -> None:
        async with background(loop()):
            await asyncio.sleep(0)
            raise Lost

    with pytest.raises(Lost):
        await fail_beside_it()
    assert ended.is_set()


async def test_an_event_is_awaited_up_to_a_time() -> None:
    event = asyncio.Event()
    assert not await wait_for_event(event, 0.0)
    event.set()
    assert await wait_for_event(event, None)
