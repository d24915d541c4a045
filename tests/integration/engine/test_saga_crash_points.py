"""Sagas whose process dies at every commit and at every await of their handlers, in virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

from stateward.engine import Handler, Job, Kind, Permanent, Retry, Temporary
from stateward.engine.engine import Engine
from stateward.testing import CrashRun, Effects, crash_everywhere
from tests.integration.engine.trip_kinds import TRIP, Trip

Book = Callable[[Job, Effects], Awaitable[Any]]
Client = Callable[[Engine, str], Awaitable[None]]


async def nothing(_: Engine, __: str) -> None:
    """Be a client that only waits."""


def scenario(book: Book, state: Trip, done: set[str], client: Client = nothing) -> Callable[[CrashRun], Any]:
    """Book a trip; says in which state it must end, and what must have been done."""

    async def play(run: CrashRun) -> None:
        handler = Handler(lambda job: book(job, run.effects))
        engine = await run.start([Kind(TRIP, {"book": handler, "hurry": handler})])
        begun = await engine.create("ns", "trip", TRIP.kind, "book")
        await client(engine, begun.op.id)
        await engine.wait("ns", begun.op.id)
        assert (await engine.get("ns", "trip")).state == state
        assert {what for what in ("flight", "hotel", "no flight", "no hotel") if what in run.effects} == done

    return play


async def book_part(job: Job, effects: Effects, part: str, **how: Any) -> Any:
    """Book a part of a trip in a step that can be undone."""

    async def undo(_: Any) -> None:
        await effects.apply_once(f"no {part}")

    return await job.once(part, lambda: effects.apply_once(part, 7), undo=undo, **how)


def test_steps_are_undone_once_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> None:
        await book_part(job, effects, "flight")
        await job.sleep(5.0, step="rest")
        await book_part(job, effects, "hotel")
        raise Permanent("no car left")

    report = crash_everywhere(scenario(book, Trip.FAILED, {"flight", "hotel", "no flight", "no hotel"}))
    assert report.effects == 4


def test_retries_sleeps_and_signals_survive_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> Any:
        async def busy_at_first() -> Any:
            if "asked" not in effects:
                await effects.apply_once("asked")
                raise Temporary("busy")
            return await effects.apply_once("flight", 7)

        flight = await job.once("flight", busy_at_first, retry=Retry(attempts=3))
        await job.sleep(5.0, step="rest")
        approved = await job.wait_for("approved", timeout_s=30)
        await book_part(job, effects, "hotel")
        return [flight, approved]

    async def approve(engine: Engine, op: str) -> None:
        await engine.signal("ns", op, "approved", "yes", key="k")

    crash_everywhere(scenario(book, Trip.BOOKED, {"flight", "hotel"}, approve))


def test_a_wait_that_times_out_is_undone_at_whatever_point_the_process_dies() -> None:
    async def book(job: Job, effects: Effects) -> None:
        await book_part(job, effects, "flight")
        await job.wait_for("approved", timeout_s=10)

    crash_everywhere(scenario(book, Trip.FAILED, {"flight", "no flight"}))
