"""Steps with undo and retry, sleeps, signals and results of children."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest

from stateward.engine import (
    ChildOutcome,
    Engine,
    Job,
    Kind,
    KindBuilder,
    ObservedOutcome,
    OperationFailed,
    PastDeadline,
    Permanent,
    Request,
    Retry,
    SignalTimedOut,
    StepFailed,
    Temporary,
    Unknown,
    signals,
)
from stateward.engine.errors import AlreadyEnded, KeyReused, NoSuchOperation, TooManySignals
from stateward.engine.requests import Creation
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import CLOCK, FINAL, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from stateward.store.records import Key, Lane, LaneGroup, Operation, Status
from tests.integration.engine.trip_kinds import TRIP, Agency
from tests.waiting import until

Booking = Callable[..., AbstractAsyncContextManager[Engine]]


@pytest.fixture
def booking(new_store: Callable[[], Store]) -> Booking:
    """Return how to start an engine for an agency."""

    @asynccontextmanager
    async def start(agency: Agency, slots: int = 5, **how: Any) -> AsyncIterator[Engine]:
        async with Engine(new_store(), [agency.kind(**how)], slots=slots) as engine:
            yield engine

    return start


async def begin(engine: Engine, name: str = "trip", action: str = "book") -> str:
    return (await engine.create("ns", name, TRIP.kind, action)).op.id


async def ended(engine: Engine, op: str) -> Operation:
    await engine.wait("ns", op, 30)
    found = await engine.store.reader.operation(Key("ns", op))
    assert found is not None
    return found


async def state(engine: Engine, name: str = "trip") -> str:
    return (await engine.get("ns", name)).state


async def steps_of(engine: Engine, op: str) -> dict[str, Any]:
    found = await engine.store.reader.operation(Key("ns", op))
    assert found is not None
    steps: dict[str, Any] = msgspec.json.decode(found.steps)
    return steps


async def pause_begun(engine: Engine, op: str, prefix: str) -> None:
    """Wait until an operation sleeps or waits, and holds no slot."""
    worker = engine.worker
    assert worker is not None
    await until(
        lambda: steps_of(engine, op), lambda steps: any(key.startswith(prefix) for key in steps) and not worker.busy
    )


async def events(engine: Engine, op: str) -> list[tuple[str, str | None]]:
    journal = await engine.store.reader.journal(0, 100, JournalFilter(ns="ns", op=op))
    return [(entry.event, entry.reason) for entry in journal]


# --- undo -------------------------------------------------------------------------------------------------------------


async def book_and_fail(agency: Agency, job: Job) -> None:
    await agency.step(job, "flight")
    await agency.step(job, "hotel")
    raise Permanent("no car left")


async def test_finished_steps_are_undone_in_reverse_order_before_a_failed_operation_ends(booking: Booking) -> None:
    agency = Agency(book_and_fail)
    async with booking(agency) as engine:
        op = await begin(engine)
        found = await ended(engine, op)
        assert (found.status, found.error, await state(engine)) == (Status.FAILED, "no car left", "not booked")
        assert agency.calls == ["handler", "flight", "hotel", "no hotel", "no flight"]
        assert ("undoes its steps", "no car left") in await events(engine, op)


async def test_a_step_and_its_undo_may_be_plain_functions(booking: Booking) -> None:
    undone: list[Any] = []

    async def book(agency: Agency, job: Job) -> None:
        result = await job.once("seat", lambda: "12A", undo=undone.append, retry=Retry(attempts=2))
        raise Permanent(f"no flight for {result}")

    async with booking(Agency(book)) as engine:
        found = await ended(engine, await begin(engine))
        assert (found.status, found.error, undone) == (Status.FAILED, "no flight for 12A", ["12A"])


async def test_nothing_is_undone_after_success(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> str:
        return str(await agency.step(job, "flight"))

    agency = Agency(book)
    async with booking(agency) as engine:
        assert (await ended(engine, await begin(engine))).result == '"flight of trip"'
        assert agency.work == ["flight"]


async def test_a_bug_and_exhausted_attempts_are_failures_too(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        raise ZeroDivisionError("oops") if job.object == "bug" else Temporary("busy", after=0.01)

    agency = Agency(book)
    async with booking(agency, attempts=2) as engine:
        for name in ("bug", "busy"):
            assert (await ended(engine, await begin(engine, name))).status is Status.FAILED
        assert agency.work == ["flight", "no flight"] * 2
        assert agency.count["handler"] == 3


async def test_an_unclear_failure_stays_unclear_after_the_undo(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        raise Unknown("no answer from the hotel")

    agency = Agency(book)
    async with booking(agency, attempts=1) as engine:
        await ended(engine, await begin(engine))
        assert (await state(engine), agency.work) == ("unclear", ["flight", "no flight"])


async def test_a_handler_that_fails_between_attempts_is_called_again_to_register_its_undos(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        if agency.count["handler"] == 1:
            raise Temporary("wait", after=0.01)
        raise Permanent("full")

    agency = Agency(book)
    async with booking(agency) as engine:
        await ended(engine, await begin(engine))
        assert agency.work == ["flight", "no flight"]


async def test_an_undo_that_fails_for_a_while_is_tried_again_without_the_undos_that_are_done(booking: Booking) -> None:
    agency = Agency(book_and_fail)
    agency.fail("no flight", Temporary("busy", after=0.01), ConnectionError("reset"))
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert (found.error, await state(engine)) == ("no car left", "not booked")
        assert agency.work == ["flight", "hotel", "no hotel", "no flight", "no flight", "no flight"]
        assert agency.booked == set()


async def test_an_undo_that_fails_for_good_is_told_and_the_others_still_run(booking: Booking) -> None:
    agency = Agency(book_and_fail)
    agency.fail("no hotel", Permanent("they do not answer"))
    async with booking(agency) as engine:
        op = await begin(engine)
        found = await ended(engine, op)
        assert found.error == "no car left; hotel could not be undone: they do not answer"
        assert (found.status, await state(engine)) == (Status.FAILED, "unclear")
        assert agency.work == ["flight", "hotel", "no hotel", "no flight"]
        assert ("undo failed", "hotel: they do not answer") in await events(engine, op)
        assert agency.booked == {("trip", "hotel")}


async def test_a_failed_undo_is_a_failure_and_no_time_out_where_no_unknown_state_is_declared(
    new_store: Callable[[], Store],
) -> None:
    trip = KindBuilder("test.tour")

    @trip.creates(to="planned")
    async def plan(job: Job) -> None: ...

    @trip.acts("planned", to="booked")
    async def book(job: Job) -> None:
        # real time: this is a mistake in an undo
        await job.once("flight", lambda: asyncio.sleep(0), undo=lambda _: asyncio.sleep("soon"))  # type: ignore[call-overload]
        raise Permanent("full")

    @trip.deletes()
    async def remove(job: Job) -> None: ...

    async with Engine(new_store(), [trip.build()]) as engine:
        await engine.run("ns", "rome", "plan", kind="test.tour")
        with pytest.raises(OperationFailed, match=r"full; flight could not be undone: TypeError") as failed:
            await engine.run("ns", "rome", "book")
        assert (type(failed.value), await state(engine, "rome")) == (OperationFailed, "planned")
        assert "timed out" not in [entry.event for entry in await engine.history("ns", "rome")]


async def test_an_undo_with_a_bug_is_in_the_log_with_its_traceback(
    booking: Booking, caplog: pytest.LogCaptureFixture
) -> None:
    agency = Agency(book_and_fail)
    agency.fail("no hotel", KeyError("room"))
    async with booking(agency) as engine:
        op = await begin(engine)
        assert (await ended(engine, op)).error == "no car left; hotel could not be undone: KeyError: 'room'"
        assert ("undo failed", "hotel: KeyError: 'room'") in await events(engine, op)
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    first, rest = record.getMessage().split("\n", 1)
    assert first == f"operation {op} (book of test.trip trip in ns) cannot undo its step hotel:"
    assert "trip_kinds.py" in rest
    assert rest.endswith("\nKeyError: 'room'")


async def test_a_cancelled_operation_undoes_its_steps(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        agency.calls.append("handler")
        await asyncio.Event().wait()

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        await until(lambda: agency.count["handler"] >= 2)
        await engine.cancel("ns", op)
        found = await ended(engine, op)
        assert (found.status, agency.work) == (Status.CANCELLED, ["flight", "no flight"])
        assert str(found.error).startswith("cancelled (after ")
        with pytest.raises(AlreadyEnded, match=f"operation {op} was cancelled already; it takes nothing more"):
            await engine.signal("ns", op, "approved")


async def test_an_operation_that_is_found_done_when_it_is_cancelled_undoes_nothing(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await job.wait_for("never")

    async def observe(_: Job) -> ObservedOutcome:
        return ObservedOutcome.DONE

    agency = Agency(book)
    async with booking(agency, observe=observe) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "wait: ")
        await engine.cancel("ns", op)
        assert (await ended(engine, op)).status is Status.SUCCEEDED
        assert agency.work == ["flight"]


async def test_an_operation_that_waits_undoes_its_steps_when_it_is_cancelled(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await job.wait_for("approved")

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "wait: ")
        await engine.cancel("ns", op)
        assert (await ended(engine, op)).status is Status.CANCELLED
        assert agency.calls == ["handler", "flight", "handler", "no flight"]


async def test_steps_that_there_was_no_time_to_undo_are_named_and_nothing_is_stuck(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await job.wait_for("approved")

    agency = Agency(book)
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine, action="hurry"))
        assert (found.status, await state(engine)) == (Status.FAILED, "unclear")
        assert found.error is not None
        assert found.error.endswith("; there was no time to undo flight")
        assert agency.work == ["flight"]


async def test_an_undo_that_lasts_longer_than_the_deadline_ends_with_it(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await job.once("flight", lambda: agency.do(job, "flight"), undo=lambda _: asyncio.Event().wait())
        raise Permanent("full")

    async with booking(Agency(book)) as engine:
        found = await ended(engine, await begin(engine, action="hurry"))
        assert (found.error, await state(engine)) == ("full; there was no time to undo flight", "unclear")


async def test_a_result_that_is_no_json_fails_the_operation_and_earlier_steps_are_undone(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await job.once("odd", lambda: asyncio.sleep(0, object()))

    agency = Agency(book)
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert found.error is not None
        assert found.error.startswith("TypeError")
        assert agency.work == ["flight", "no flight"]


async def test_an_undo_can_begin_nothing_new(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await job.once("flight", lambda: agency.do(job, "flight"), undo=lambda _: job.sleep(0.1, step="rest"))
        raise Permanent("full")

    async with booking(Agency(book)) as engine:
        found = await ended(engine, await begin(engine))
        assert found.error == "full; flight could not be undone: a sleep is not possible in an undo"


@pytest.mark.parametrize("step", ["undo: x", "wait: x", "end: x"])
async def test_a_step_cannot_have_a_name_under_which_something_else_is_stored(booking: Booking, step: str) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await job.once(step, lambda: agency.do(job, "flight"))

    agency = Agency(book)
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert found.error is not None
        assert found.error.startswith(f"BadInput: step: '{step}' must be a name that begins with none of")
        assert agency.work == []


TWICE = {
    "once": lambda job: job.once("rest", lambda: asyncio.sleep(0)),
    "sleep": lambda job: job.sleep(0.01, step="rest"),
    "wait": lambda job: job.wait_for("rest"),
    "spawn": lambda job: job.spawn("rest", []),
}


@pytest.mark.parametrize("what", TWICE)
async def test_a_name_that_is_used_twice_in_one_call_fails_the_operation_which_is_undone(
    booking: Booking, what: str
) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await TWICE[what](job)
        await TWICE[what](job)

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        if what == "wait":
            await engine.signal("ns", op, "rest")
        told = "step 'rest' is used twice in one call of the handler: give each its own name, such as rest-1"
        assert (await ended(engine, op)).error == told
        assert agency.work == ["flight", "no flight"]


async def test_two_steps_of_one_name_that_run_side_by_side_are_refused(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await asyncio.gather(agency.step(job, "flight"), agency.step(job, "flight"))

    agency = Agency(book)
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert (found.error or "").startswith("step 'flight' is used twice in one call")
        assert agency.count["flight"] == 1


async def test_a_step_that_has_failed_may_be_tried_again_under_its_name(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> Any:
        try:
            return await agency.step(job, "flight")
        except Permanent:
            return await agency.step(job, "flight")

    agency = Agency(book)
    agency.fail("flight", Permanent("full"))
    async with booking(agency) as engine:
        assert (await ended(engine, await begin(engine))).result == '"flight of trip"'


# --- groups of errors -------------------------------------------------------------------------------------------------


async def raise_all(*errors: Exception) -> None:
    """Raise errors in a task group, as steps that run side by side do."""

    async def fail(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as tasks:
        for error in errors:
            tasks.create_task(fail(error))


@pytest.mark.parametrize("errors", [[ConnectionError("reset")], [Permanent("closed"), Unknown("no answer")]])
async def test_a_group_with_an_unclear_part_is_unclear_and_is_observed_first(
    booking: Booking, errors: list[Exception]
) -> None:
    async def book(_: Agency, __: Job) -> None:
        await raise_all(*errors)

    async def observe(_: Job) -> ObservedOutcome:
        agency.calls.append("observed")
        return ObservedOutcome.DONE

    agency = Agency(book)
    async with booking(agency, observe=observe) as engine:
        assert (await ended(engine, await begin(engine))).status is Status.SUCCEEDED
        assert agency.calls == ["handler", "observed"]


async def test_a_group_of_temporary_errors_is_tried_again_after_the_longest_time(booking: Booking) -> None:
    times: list[float] = []

    async def book(_: Agency, job: Job) -> None:
        times.append(job.now)
        if job.attempt == 1:
            await raise_all(Temporary("busy", after=0.01), Temporary("full", after=0.4))

    async with booking(Agency(book)) as engine:
        assert (await ended(engine, await begin(engine))).attempts == 2
        assert times[1] - times[0] >= 0.4


async def test_a_group_of_certain_failures_fails_with_the_texts_of_all_parts(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await raise_all(Permanent("closed"), KeyError("room"), Temporary("busy"))

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        snapshot = await engine.wait("ns", op, 30)
        assert (snapshot.error, await state(engine)) == ("closed; KeyError: 'room'; busy", "not booked")
        assert "KeyError: 'room'" in (snapshot.traceback or "")
        assert agency.work == ["flight", "no flight"]


async def test_a_step_that_another_ones_error_interrupts_makes_the_end_unclear(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(job.once("flight", asyncio.Event().wait))
            tasks.create_task(raise_all(Permanent("closed")))

    async with booking(Agency(book)) as engine:
        found = await ended(engine, await begin(engine))
        assert (found.error, await state(engine)) == ("closed; interrupted, maybe with an effect: flight", "unclear")


@pytest.mark.parametrize("what", ["sleep", "wait", "spawn", "retry"])
async def test_what_ends_the_call_of_the_handler_is_refused_in_a_task_group(booking: Booking, what: str) -> None:
    async def book(_: Agency, job: Job) -> None:
        async with asyncio.TaskGroup() as tasks:
            begun = job.once("rest", lambda: asyncio.sleep(0), retry=QUICK) if what == "retry" else TWICE[what](job)
            tasks.create_task(begun)

    async with booking(Agency(book)) as engine:
        found = await ended(engine, await begin(engine))
        assert (found.error or "").endswith(" is not possible in a task group, nor in any task but the handler's own")


async def test_a_step_whose_parts_fail_together_is_tried_again_by_its_policy(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        async def work() -> None:
            agency.calls.append("hotel")
            if agency.count["hotel"] == 1:
                await raise_all(ConnectionError("reset"), Temporary("busy", after=0.01))

        await job.once("hotel", work, retry=QUICK)

    agency = Agency(book)
    async with booking(agency, attempts=1) as engine:
        assert (await ended(engine, await begin(engine))).status is Status.SUCCEEDED
        assert agency.work == ["hotel", "hotel"]


# --- retry ------------------------------------------------------------------------------------------------------------

QUICK = Retry(attempts=3, first_s=0.01, factor=1.0)


async def book_with_retry(agency: Agency, job: Job) -> Any:
    await agency.step(job, "flight")
    return await agency.step(job, "hotel", retry=QUICK)


async def test_a_failed_step_is_tried_again_and_the_attempts_of_the_handler_do_not_count(booking: Booking) -> None:
    agency = Agency(book_with_retry)
    agency.fail("hotel", ConnectionError("reset"), Temporary("busy", after=0.02))
    async with booking(agency, attempts=1) as engine:
        found = await ended(engine, await begin(engine))
        assert (found.status, found.attempts) == (Status.SUCCEEDED, 1)
        assert agency.work == ["flight", "hotel", "hotel", "hotel"]


async def test_a_failed_step_is_tried_again_without_observing_the_operation_first(booking: Booking) -> None:
    async def observe(_: Job) -> ObservedOutcome:
        return ObservedOutcome.DONE

    agency = Agency(book_with_retry)
    agency.fail("hotel", Temporary("busy", after=0.01))
    async with booking(agency, observe=observe) as engine:
        assert (await ended(engine, await begin(engine))).status is Status.SUCCEEDED
        assert agency.work == ["flight", "hotel", "hotel"]


async def test_a_step_that_fails_too_often_fails_the_operation_which_is_undone(booking: Booking) -> None:
    agency = Agency(book_with_retry)
    agency.fail("hotel", *(ConnectionError("reset") for _ in range(3)))
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert found.error == "step 'hotel' has failed in 3 of 3 attempts, the last time with: reset"
        assert agency.work == ["flight", "hotel", "hotel", "hotel", "no flight"]


async def test_other_errors_are_not_tried_again(booking: Booking) -> None:
    agency = Agency(book_with_retry)
    agency.fail("hotel", Permanent("closed"))
    async with booking(agency) as engine:
        assert (await ended(engine, await begin(engine))).error == "closed"
        assert agency.work == ["flight", "hotel", "no flight"]


async def test_a_step_that_was_given_up_fails_again_without_another_attempt(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> str:
        try:
            await agency.step(job, "hotel", retry=QUICK)
        except StepFailed:
            await agency.step(job, "tent")
        if agency.count["handler"] == 3:
            raise Temporary("wait", after=0.01)
        raise Permanent("rain")

    agency = Agency(book)
    agency.fail("hotel", *(ConnectionError("reset") for _ in range(3)))
    async with booking(agency) as engine:
        assert (await ended(engine, await begin(engine))).error == "rain"
        assert agency.work == ["hotel", "hotel", "hotel", "tent", "no tent"]


async def test_a_step_that_waits_for_its_next_attempt_holds_no_slot_and_survives_a_restart(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> Any:
        return await agency.step(job, "hotel", retry=Retry(attempts=3, first_s=1.0))

    agency = Agency(book)
    agency.fail("hotel", ConnectionError("reset"))
    async with booking(agency) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "retry: ")
    async with booking(agency) as engine:
        assert (await steps_of(engine, op))["retry: hotel"] == 1
        assert (await ended(engine, op)).status is Status.SUCCEEDED
        assert agency.count["hotel"] == 2


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"first_s": -1.0}, {"factor": 0.5}, {"most_s": -1.0}, {"first_s": float("nan")}]
)
def test_a_policy_that_cannot_be_followed_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as refused:
        Retry(**wrong)
    assert refused.value.field in wrong


def test_the_intervals_of_a_policy_grow_up_to_the_longest() -> None:
    policy, error = Retry(first_s=1.0, factor=3.0, most_s=10.0), ConnectionError()
    assert [policy.delay_s(failures, error) for failures in (1, 2, 3, 4, 10_000)] == [1.0, 3.0, 9.0, 10.0, 10.0]
    assert policy.delay_s(1, Temporary("busy", after=7.0)) == 7.0


# --- sleep ------------------------------------------------------------------------------------------------------------


async def test_a_sleep_holds_no_slot_and_no_slot_of_its_lane(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await job.sleep(1.0, step="rest")
        await agency.step(job, "hotel")

    agency = Agency(book)
    async with booking(agency, slots=1) as engine:
        await engine.set_limits([LaneGroup("", 10)], [Lane("", "", 1, 0.0, 0.0, 0)])
        ops = [await begin(engine, f"trip {number}") for number in range(5)]
        for op in ops:
            assert (await ended(engine, op)).status is Status.SUCCEEDED
        assert agency.work[:2] == ["flight"] * 2  # the second began while the first slept
        assert Counter(agency.work) == {"flight": 5, "hotel": 5}


async def test_a_sleep_survives_a_restart_and_returns_at_once_after_its_time(booking: Booking) -> None:
    times: list[float] = []

    async def book(agency: Agency, job: Job) -> None:
        times.append(job.now)
        await job.sleep(0.5, step="rest")
        if agency.count["handler"] < 3:
            raise Temporary("again", after=0.01)

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "sleep: ")
    async with booking(agency) as engine:
        assert (await ended(engine, op)).attempts == 2
        assert times[1] - times[0] >= 0.5 - 0.01
        assert len(times) == 3  # a sleep that began again would call the handler once more


async def test_sleep_until_wakes_at_its_time(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> float:
        wake = agency.errors.setdefault("wake", job.now + 0.2)  # type: ignore[arg-type]
        await job.sleep_until(wake)  # type: ignore[arg-type]
        await job.sleep_until(wake)  # type: ignore[arg-type]
        return job.now - wake  # type: ignore[operator]

    agency = Agency(book)
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert 0.0 <= float(found.result or "-1") < 5.0
        assert agency.count["handler"] == 2


async def test_a_sleep_past_the_deadline_is_an_error_with_both_times(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        with pytest.raises(PastDeadline):
            await job.sleep_until(job.deadline + 1)
        with pytest.raises(PastDeadline):
            await job.wait_for("approved", timeout_s=100)
        await job.sleep(100, step="rest")

    agency = Agency(book)
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert found.error is not None
        assert found.error.startswith("it would wait until 20")
        assert ", but its deadline is 20" in found.error
        assert agency.work == ["flight", "no flight"]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
async def test_a_sleep_that_is_no_number_of_seconds_is_refused(booking: Booking, seconds: float) -> None:
    async def book(_: Agency, job: Job) -> None:
        await job.sleep(seconds, step="rest")

    async with booking(Agency(book)) as engine:
        found = await ended(engine, await begin(engine))
        assert found.error == f"BadInput: seconds: {seconds} must be a number of seconds, 0 or more"


async def test_a_handler_that_catches_everything_sleeps_all_the_same(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        try:
            async with asyncio.TaskGroup():
                await job.sleep(0.1, step="rest")
        except Exception:
            agency.calls.append("caught")
        await agency.step(job, "flight")

    agency = Agency(book)
    async with booking(agency) as engine:
        assert (await ended(engine, await begin(engine))).status is Status.SUCCEEDED
        assert agency.calls == ["handler", "handler", "flight"]


async def test_a_cancelled_sleep_ends_at_once(booking: Booking) -> None:
    async def book(_: Agency, job: Job) -> None:
        await job.sleep(50, step="rest")

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "sleep: ")
        await engine.cancel("ns", op)
        assert (await ended(engine, op)).status is Status.CANCELLED


# --- timers -----------------------------------------------------------------------------------------------------------


class Tea(State):
    POURING = "pouring", TRANSITIONAL
    BREWING = "brewing", STABLE
    STRAINING = "straining", TRANSITIONAL
    READY = "ready", FINAL


TEA = declare(
    "test.tea",
    Tea,
    (
        action(NEW, "pour", USER, Tea.POURING, Tea.BREWING, Tea.READY, 1 * MINUTE),
        action(Tea.BREWING, "strain", CLOCK, Tea.STRAINING, Tea.READY, Tea.READY, 1 * MINUTE),
    ),
    USER | CLOCK,
)


async def test_a_handler_lets_the_clock_act_on_its_object_later(new_store: Callable[[], Store]) -> None:
    tea = Kind(TEA)

    @tea.handles("pour")
    async def pour(job: Job) -> None:
        with pytest.raises(UnknownName, match="by the clock"):
            await job.set_timer(job.now, "pour")
        await job.set_timer(job.now, "strain")
        if job.object == "forgotten":
            await job.unset_timer("strain")

    @tea.handles("strain")
    async def strain(job: Job) -> None: ...

    async with Engine(new_store(), [tea]) as engine:
        for name in ("forgotten", "mine"):
            await engine.run("ns", name, "pour", kind="test.tea")
        await until(lambda: state(engine, "mine"), lambda now: now == "ready")
        assert await state(engine, "forgotten") == "brewing"
        assert await engine.store.reader.timers(None, 10) == []


# --- signals ----------------------------------------------------------------------------------------------------------


async def book_when_approved(agency: Agency, job: Job) -> Any:
    await agency.step(job, "flight")
    approved = await job.wait_for("approved")
    await agency.step(job, "hotel")
    return approved


async def test_an_operation_waits_for_its_signal_and_gets_the_payload(booking: Booking) -> None:
    agency = Agency(book_when_approved)
    async with booking(agency) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "wait: ")
        assert await engine.signal("ns", op, "other")
        assert await engine.signal("ns", op, "approved", {"by": "ann"}, who="ann")
        found = await ended(engine, op)
        assert (found.result, agency.work) == ('{"by":"ann"}', ["flight", "hotel"])
        assert ("signal: approved", None) in await events(engine, op)


async def test_a_signal_that_comes_before_the_wait_is_kept(booking: Booking) -> None:
    may_go_on = asyncio.Event()

    async def book(agency: Agency, job: Job) -> Any:
        await may_go_on.wait()
        return await job.wait_for("approved")

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        await engine.signal("ns", op, "approved", 7)
        may_go_on.set()
        assert (await ended(engine, op)).result == "7"
        assert agency.count["handler"] == 1


async def test_signals_of_one_name_queue_in_order_and_each_wait_takes_one(booking: Booking) -> None:
    async def book(_: Agency, job: Job) -> list[Any]:
        return [await job.wait_for("item", step=f"item {number}") for number in range(3)]

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        for number in range(2):
            await engine.signal("ns", op, "item", number)
        await pause_begun(engine, op, "wait: item 2")
        await engine.signal("ns", op, "item", 2)
        assert (await ended(engine, op)).result == "[0,1,2]"


async def test_a_signal_that_does_not_come_in_time_fails_the_operation_which_is_undone(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> None:
        await agency.step(job, "flight")
        await job.wait_for("approved", timeout_s=0.1)

    agency = Agency(book)
    async with booking(agency) as engine:
        found = await ended(engine, await begin(engine))
        assert (found.status, found.error) == (Status.FAILED, "the signal approved did not come in time")
        assert agency.work == ["flight", "no flight"]


async def test_a_wait_that_has_timed_out_stays_so(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> str:
        try:
            await job.wait_for("approved", timeout_s=0)
        except SignalTimedOut:
            if agency.count["handler"] == 1:
                await engine.signal("ns", job.key.id, "approved")
                raise Temporary("again", after=0.01) from None
            return "late"
        return "approved"

    async with booking(Agency(book)) as engine:
        assert (await ended(engine, await begin(engine))).result == '"late"'


async def test_a_wait_survives_a_restart_and_a_signal_is_kept_while_nobody_works(
    booking: Booking, new_store: Callable[[], Store]
) -> None:
    agency = Agency(book_when_approved)
    async with booking(agency) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "wait: ")
    async with Engine(new_store(), [agency.kind()], works=False) as engine:
        await engine.signal("ns", op, "approved", "yes")
    async with booking(agency) as engine:
        assert (await ended(engine, op)).result == '"yes"'
        assert agency.count["handler"] == 2


async def test_a_signal_to_an_operation_that_has_ended_or_does_not_exist_is_refused(booking: Booking) -> None:
    async def book(_: Agency, __: Job) -> None: ...

    async with booking(Agency(book)) as engine:
        op = await begin(engine)
        await ended(engine, op)
        with pytest.raises(AlreadyEnded) as refused:
            await engine.signal("ns", op, "approved")
        assert str(refused.value) == f"operation {op} has succeeded already"
        with pytest.raises(NoSuchOperation):
            await engine.signal("ns", "nothing", "approved")
        with pytest.raises(BadInput):
            await engine.signal("ns", op, "")


async def test_signals_that_nobody_waits_for_are_limited_in_number_and_size(
    booking: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "MAX_WAITING_SIGNALS", 3)
    monkeypatch.setattr(signals, "MAX_WAITING_CHARS", 100)

    async def book(agency: Agency, job: Job) -> Any:
        return [await job.wait_for("item", step="first"), await job.wait_for("last")]

    async with booking(Agency(book)) as engine:
        op = await begin(engine)
        await pause_begun(engine, op, "wait: ")
        with pytest.raises(BadInput, match="payload: must be at most 100 characters of JSON"):
            await engine.signal("ns", op, "other", "x" * 100)
        await engine.signal("ns", op, "other", "x" * 90)
        with pytest.raises(TooManySignals, match="has 1 signals that it has not waited for yet; at most 3 are kept"):
            await engine.signal("ns", op, "other", "x" * 90)
        for _ in range(2):
            await engine.signal("ns", op, "other")
        with pytest.raises(TooManySignals, match="has 3 signals"):
            await engine.signal("ns", op, "last")
        await engine.signal("ns", op, "item")  # it waits for that one
        await pause_begun(engine, op, "wait: last")
        await engine.signal("ns", op, "last")
        assert (await engine.wait_record("ns", op, 30)).status is Status.SUCCEEDED


async def test_a_signal_with_an_idempotency_key_is_sent_once(booking: Booking) -> None:
    async def book(_: Agency, job: Job) -> Any:
        first = await job.wait_for("item")
        return [first, await job.wait_for("item", step="second")]

    agency = Agency(book)
    async with booking(agency) as engine:
        op = await begin(engine)
        assert [await engine.signal("ns", op, "item", 1, key="k") for _ in range(2)] == [True, False]
        with pytest.raises(KeyReused):
            await engine.signal("ns", op, "item", 2, key="k")
        assert await engine.signal("ns", op, "item", 3, key="other")
        assert (await ended(engine, op)).result == "[1,3]"
        assert not await engine.signal("ns", op, "item", 1, key="k")


async def test_a_signal_that_comes_while_the_operation_begins_to_wait_is_not_overlooked(booking: Booking) -> None:
    async def book(_: Agency, job: Job) -> list[Any]:
        return [await job.wait_for("item", step=str(number)) for number in range(20)]

    async with booking(Agency(book)) as engine:
        op = await begin(engine)
        for number in range(20):
            await engine.signal("ns", op, "item", number)
            # real time: signals come before and during waits; all arrive
            await asyncio.sleep(0.002 * (number % 5))
        assert (await ended(engine, op)).result == str(list(range(20))).replace(" ", "")


# --- children ---------------------------------------------------------------------------------------------------------


def part(name: str, **how: Any) -> Request:
    return Request("ns", name, "book", "", creates=Creation(TRIP.kind, "trip"), **how)


async def test_a_handler_reads_how_its_children_have_ended(booking: Booking) -> None:
    outcomes: list[ChildOutcome] = []

    async def book(_: Agency, job: Job) -> Any:
        if job.object == "bad":
            raise Permanent("full")
        if job.object != "trip":
            return {"name": job.object}
        denied = await job.spawn("parts", [part("good"), part("taken"), part("bad"), part("fine")])
        await job.spawn("more", [part("last")])
        outcomes.extend(await job.children("parts"))
        assert [one.object for one in await job.children("more")] == ["last"]
        with pytest.raises(UnknownName):
            await job.children("other")
        return list(denied)

    async with booking(Agency(book)) as engine:
        await ended(engine, await begin(engine, "taken"))
        assert (await ended(engine, await begin(engine))).result == '["taken"]'
        assert outcomes == [
            ChildOutcome("good", "book", Status.SUCCEEDED, {"name": "good"}, None),
            ChildOutcome("bad", "book", Status.FAILED, None, "full"),
            ChildOutcome("fine", "book", Status.SUCCEEDED, {"name": "fine"}, None),
        ]


async def test_children_that_failed_can_fail_their_parent_which_is_undone(booking: Booking) -> None:
    async def book(agency: Agency, job: Job) -> Any:
        if job.object != "trip":
            raise Permanent("full")
        await agency.step(job, "flight")
        await job.spawn("parts", [part("hotel")])
        for child in await job.children("parts"):
            if child.status is not Status.SUCCEEDED:
                raise Permanent(f"{child.object}: {child.error}")

    agency = Agency(book)
    async with booking(agency) as engine:
        assert (await ended(engine, await begin(engine))).error == "hotel: full"
        assert agency.work == ["flight", "no flight"]
