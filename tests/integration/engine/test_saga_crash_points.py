"""Sagas whose process dies at every commit and at every await of their handlers, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from stateward.engine import Handler, Job, Kind, Permanent, Request, Retry, Temporary
from stateward.engine.engine import Engine
from stateward.engine.errors import AlreadyEnded
from stateward.engine.requests import Creation
from stateward.testing import CrashRun, Effects, crash_everywhere
from tests.integration.engine.trip_kinds import TRIP, Trip

Book = Callable[[Job, Effects], Awaitable[Any]]
Client = Callable[[Engine, str], Awaitable[None]]

ATTEMPT = "attempt "


async def nothing(_: Engine, __: str) -> None:
    """Be a client that only waits."""


def scenario(
    book: Book,
    state: Trip | None,
    effects: Sequence[str],
    client: Client = nothing,
    error: str = "",
    result: Any = None,
) -> Callable[[CrashRun], Any]:
    """Book a trip; says in which state it must end, what must have been done in which order, and with which answer."""

    async def play(run: CrashRun) -> None:
        handler = Handler(lambda job: book(job, run.effects))
        engine = await run.start([Kind(TRIP, {"book": handler, "hurry": handler})])
        begun = await engine.create("ns", "trip", TRIP.kind, "book")
        await client(engine, begun.op.id)
        ended = await engine.wait("ns", begun.op.id)
        assert ((ended.error or "").partition(" (after ")[0], ended.result) == (error, result)
        assert state is None or (await engine.get("ns", "trip")).state == state
        assert [effect for effect in run.effects if not effect.startswith(ATTEMPT)] == list(effects)

    return play


async def attempt(effects: Effects) -> int:
    """Count a call that may be made again; returns its number."""
    number = sum(effect.startswith(ATTEMPT) for effect in effects) + 1
    await effects.apply_once(f"{ATTEMPT}{number}")
    return number


async def book_part(job: Job, effects: Effects, part: str, **how: Any) -> Any:
    """Book a part of a trip in a step that can be undone."""

    async def undo(_: Any) -> None:
        await effects.apply_once(f"no {part}")

    return await job.once(part, lambda: effects.apply_once(part, 7), **({"undo": undo} | how))


def test_steps_are_undone_once_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> None:
        await book_part(job, effects, "flight")
        await job.sleep(5.0, step="rest")
        await book_part(job, effects, "hotel")
        raise Permanent("no car left")

    order = ("flight", "hotel", "no hotel", "no flight")
    crash_everywhere(scenario(book, Trip.FAILED, order, error="no car left"))


def test_an_undo_that_is_tried_again_is_done_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> None:
        async def undo(_: Any) -> None:
            if await attempt(effects) == 1:
                raise Temporary("busy", after=0.01)
            await effects.apply_once("no flight")

        await book_part(job, effects, "flight", undo=undo)
        raise Permanent("no car left")

    crash_everywhere(scenario(book, Trip.FAILED, ("flight", "no flight"), error="no car left"))


def test_a_failed_undo_is_reported_once_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> None:
        async def undo(_: Any) -> None:
            raise Permanent("closed")

        await book_part(job, effects, "flight")
        await book_part(job, effects, "hotel", undo=undo)
        raise Permanent("no car left")

    error = "no car left; hotel could not be undone: closed"
    crash_everywhere(scenario(book, Trip.UNCLEAR, ("flight", "hotel", "no flight"), error=error))


def test_failures_of_a_step_are_counted_at_whatever_point_the_process_dies() -> None:
    attempts = set()

    async def book(job: Job, effects: Effects) -> None:
        async def fail() -> None:
            attempts.add(await attempt(effects))
            raise ConnectionError("reset")

        await job.once("hotel", fail, retry=Retry(attempts=3, first_s=0.01))

    error = "step 'hotel' has failed in 3 of 3 attempts, the last time with: reset"
    crash_everywhere(scenario(book, Trip.FAILED, (), error=error))
    assert attempts == {1, 2, 3, 4}  # an attempt whose failure could not be counted is made again


def test_retries_sleeps_and_signals_survive_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> Any:
        async def busy_at_first() -> Any:
            if "asked" not in effects:
                await effects.apply_once("asked")
                raise Temporary("busy")
            return await effects.apply_once("flight", 7)

        flight = await job.once("flight", busy_at_first, retry=Retry(attempts=3))
        await job.sleep(5.0, step="rest")
        items = [await job.wait_for("item", step=f"item {number}", timeout_s=30) for number in range(2)]
        await book_part(job, effects, "hotel")
        return [flight, *items]

    async def send(engine: Engine, op: str) -> None:
        await engine.signal("ns", op, "item", "first", key="k")
        await engine.signal("ns", op, "item", "first", key="k")
        await engine.signal("ns", op, "item", "second", key="other")

    order = ("asked", "flight", "hotel")
    crash_everywhere(scenario(book, Trip.BOOKED, order, send, result=[7, "first", "second"]))


def test_a_wait_that_times_out_is_undone_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> None:
        await book_part(job, effects, "flight")
        await job.wait_for("approved", timeout_s=10)

    order = ("flight", "no flight")
    crash_everywhere(scenario(book, Trip.FAILED, order, error="the signal approved did not come in time"))


def test_a_cancelled_wait_is_undone_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> None:
        await book_part(job, effects, "flight")
        await job.wait_for("approved")

    async def cancel(engine: Engine, op: str) -> None:
        await asyncio.sleep(40)  # the next process has come to the wait too
        with suppress(AlreadyEnded):  # the answer to the first try was lost
            await engine.cancel("ns", op)

    crash_everywhere(scenario(book, None, ("flight", "no flight"), cancel, error="cancelled"))


def test_children_have_one_outcome_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> Any:
        if job.object.startswith("part"):
            return job.object[-1]
        parts = [Request("ns", f"part {number}", "book", "", creates=Creation(TRIP.kind, "trip")) for number in "01"]
        await book_part(job, effects, "flight")
        await job.spawn("parts", parts)
        return [[child.status, child.result] for child in await job.children("parts")]

    result = [["succeeded", "0"], ["succeeded", "1"]]
    crash_everywhere(scenario(book, Trip.BOOKED, ("flight",), result=result))
