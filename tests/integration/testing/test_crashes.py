"""A process that dies at every point: good handlers pass, and each kind of bad one is found with its line."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stateward.engine import Handler, Job, Kind, ObservedOutcome, OperationFailed, Permanent, Request, Temporary
from stateward.engine.requests import Creation
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import BACK, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.testing import CrashRun, Effects, PromiseBroken, crash_everywhere, crash_world


class Lamp(State):
    MAKING = "making", TRANSITIONAL
    OFF = "off", STABLE
    LIGHTING = "lighting", TRANSITIONAL
    ON = "on", STABLE
    BROKEN = "broken", STABLE


LAMP = declare(
    "lamp",
    Lamp,
    [
        action(NEW, "make", USER, Lamp.MAKING, Lamp.OFF, Lamp.BROKEN, MINUTE),
        action(Lamp.OFF, "light", USER, Lamp.LIGHTING, Lamp.ON, BACK, MINUTE),
    ],
    by=USER,
)

Make = Callable[[Job, Effects], Awaitable[Any]]


def scenario(make: Make, observe: Any = None, result: Any = None) -> Callable[[CrashRun], Any]:
    """A lamp is made by this handler, and then lit by a good one."""

    async def play(run: CrashRun) -> None:
        effects = run.effects

        async def light(job: Job) -> None:
            await effects.apply_once(f"{job.key.id}")

        handlers = {
            "make": Handler(lambda job: make(job, effects), observe and (lambda job: observe(job, effects))),
            "light": Handler(light),
        }
        engine = await run.start([Kind(LAMP, handlers)])
        made = await engine.create("n", "lamp-1", "lamp", "make")
        assert made.operation is not None
        await engine.wait("n", made.operation.id)
        lit = await engine.act("n", "lamp-1", "light")  # refused if it is broken
        assert lit.operation is not None
        await engine.wait("n", lit.operation.id)
        assert (await engine.get("n", "lamp-1")).state == Lamp.ON

    return play


def line_of(text: str) -> int:
    """Return the number of this file's line that ends with a text."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(text)]
    return number


async def idempotent(job: Job, effects: Effects) -> Any:
    await job.progress("begun")
    return await effects.apply_once(job.key.id, {"serial": 7})


def test_handler_with_an_idempotency_key_survives_every_crash() -> None:
    report = crash_everywhere(scenario(idempotent))
    assert report.points == 14  # 5 commits twice, before and after; 4 awaits
    assert report.effects == 2


async def forgetful(job: Job, effects: Effects) -> None:
    await asyncio.sleep(1.0)
    await effects.apply(job.key.id)  # has no key at the provider


def test_effect_that_is_repeated_is_found_with_the_line_of_its_await() -> None:
    with pytest.raises(PromiseBroken, match="happened twice") as found:
        crash_everywhere(scenario(forgetful))
    line = found.value.line
    assert line is not None
    assert (line.file, line.line, line.function) == (__file__, line_of("# has no key at the provider"), "forgetful")
    assert f"{__file__}:{line.line}, in forgetful: await effects.apply(job.key.id)" in str(found.value)


def test_trace_tells_in_order_what_happened_up_to_the_second_effect() -> None:
    with pytest.raises(PromiseBroken) as found:
        crash_everywhere(scenario(forgetful))
    events = [line[10:] for line in found.value.trace]
    marks = ("begins op1 (make lamp-1)", "effect 'op1' at", "CRASH: p1", "p2 starts", "effect 'op1' AGAIN")
    numbers = [next(number for number, event in enumerate(events) if mark in event) for mark in marks]
    assert numbers == sorted(numbers)
    assert found.value.point is not None
    assert found.value.point.moment in str(found.value)


async def observed(job: Job, effects: Effects) -> None:
    await effects.apply(job.key.id)


async def look(job: Job, effects: Effects) -> ObservedOutcome:
    return ObservedOutcome.DONE if job.key.id in effects else ObservedOutcome.NOT_DONE


def test_handler_without_a_key_passes_if_it_observes_first() -> None:
    crash_everywhere(scenario(observed, look))


async def loses_its_result(job: Job, effects: Effects) -> Any:
    if job.key.id in effects:
        return None
    return await effects.apply(job.key.id, {"serial": 7})  # the serial number


def test_result_that_a_crash_loses_is_found_with_the_line() -> None:
    with pytest.raises(PromiseBroken, match=r"make of lamp-1 succeeded and lost its result.*'serial': 7") as found:
        crash_everywhere(scenario(loses_its_result))
    assert found.value.line is not None
    assert found.value.line.line == line_of("# the serial number")


async def in_steps(job: Job, effects: Effects) -> Any:
    serial = await job.once("body", lambda: effects.apply_once(f"{job.key.id}/body", 7))
    await job.once("bulb", lambda: effects.apply_once(f"{job.key.id}/bulb"))
    return serial


def test_steps_with_checkpoints_and_keys_survive_every_crash() -> None:
    report = crash_everywhere(scenario(in_steps))
    assert report.effects == 3


def test_finished_step_that_runs_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    once = Job.once

    async def forgets(job: Job, step: str, work: Any, **how: Any) -> Any:
        job._steps.pop(step, None)
        return await once(job, step, work, **how)

    monkeypatch.setattr(Job, "once", forgets)
    with pytest.raises(PromiseBroken, match=r"the step 'body' of make of lamp-1 .* runs again, and was finished"):
        crash_everywhere(scenario(in_steps))


async def trip(job: Job, effects: Effects) -> None:
    key = job.key.id
    await job.once(
        "body",
        lambda: effects.apply_once(f"{key}/body"),
        undo=lambda _: effects.apply_once(f"{key}/body undone"),
    )
    await job.sleep(5.0, step="paint dries")
    await effects.apply_once(f"{key}/tried")
    raise Permanent("no bulbs")


async def failed_trip(run: CrashRun) -> None:
    effects = run.effects
    engine = await run.start(
        [Kind(LAMP, {"make": Handler(lambda job: trip(job, effects)), "light": Handler(trip_not)})]
    )
    with pytest.raises(OperationFailed, match="no bulbs"):
        await engine.run("n", "lamp-1", "make", kind="lamp")
    assert list(effects) == ["op1/body", "op1/tried", "op1/body undone"]


async def trip_not(job: Job) -> None:
    """Do nothing."""


def test_steps_with_undo_and_sleeps_survive_every_crash() -> None:
    crash_everywhere(failed_trip)


async def careless_trip(job: Job, effects: Effects) -> None:
    await job.once("body", trip_nothing, undo=lambda _: effects.apply("body undone"))  # cannot be undone twice
    raise Permanent("no bulbs")


async def trip_nothing() -> None:
    """Do nothing."""


def test_undo_that_cannot_be_repeated_is_found_with_its_line() -> None:
    async def play(run: CrashRun) -> None:
        make = Handler(lambda job: careless_trip(job, run.effects))
        engine = await run.start([Kind(LAMP, {"make": make, "light": Handler(trip_not)})])
        with pytest.raises(OperationFailed):
            await engine.run("n", "lamp-1", "make", kind="lamp")

    with pytest.raises(PromiseBroken, match="the effect 'body undone' happened twice") as found:
        crash_everywhere(play)
    assert found.value.line is not None
    assert found.value.line.line == line_of("# cannot be undone twice")


def test_cancelled_operation_ends_once_after_every_crash() -> None:
    async def play(run: CrashRun) -> None:
        async def slow(job: Job) -> None:
            await asyncio.sleep(20.0)
            await run.effects.apply_once(job.key.id)

        engine = await run.start([Kind(LAMP, {"make": Handler(trip_not), "light": Handler(slow)})])
        await engine.run("n", "lamp-1", "make", kind="lamp")
        lit = await engine.act("n", "lamp-1", "light")
        assert lit.operation is not None
        with suppress(StatewardError):  # the answer to the first call was lost, or it has ended meanwhile
            await engine.cancel("n", lit.operation.id)
        ended = await engine.wait("n", lit.operation.id)
        assert (ended.status == "succeeded") == (lit.operation.id in run.effects)

    crash_everywhere(play)


def test_children_survive_every_crash() -> None:
    async def play(run: CrashRun) -> None:
        async def make(job: Job) -> Any:
            if job.object == "lamp-1":
                requests = [Request(job.ns, name, "make", "", creates=Creation("lamp")) for name in ("a", "b")]
                await job.spawn("others", requests)
            return await run.effects.apply_once(job.object, job.object)

        engine = await run.start([Kind(LAMP, {"make": Handler(make), "light": Handler(make)})])
        await engine.run("n", "lamp-1", "make", kind="lamp")
        assert sorted(run.effects) == ["a", "b", "lamp-1"]

    crash_everywhere(play)


def test_scenario_that_waits_for_ever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_world, "LIMIT_S", 432.0)

    async def play(run: CrashRun) -> None:
        await run.start([Kind(LAMP, {"make": Handler(trip_not), "light": Handler(trip_not)})])
        await asyncio.Event().wait()

    with pytest.raises(PromiseBroken, match=r"Stuck: the test still waits after 0\.005 virtual days"):
        crash_everywhere(play)


async def half_in_steps(job: Job, effects: Effects) -> None:
    await job.once("body", lambda: effects.apply_once(f"{job.key.id}/body"))
    await effects.apply(f"{job.key.id}/bulb")  # outside of a step
    await job.once("test", lambda: effects.apply_once(f"{job.key.id}/test"))


def test_effect_outside_of_a_step_is_found_with_its_line() -> None:
    with pytest.raises(PromiseBroken, match="the effect 'op1/bulb' happened twice") as found:
        crash_everywhere(scenario(half_in_steps))
    assert found.value.line is not None
    assert found.value.line.line == line_of("# outside of a step")


async def provision(job: Job, effects: Effects) -> None:
    await effects.apply(job.key.id)  # two functions below the handler


async def delegating(job: Job, effects: Effects) -> None:
    await asyncio.gather(provision(job, effects))  # in a task of its own


async def calling(job: Job, effects: Effects) -> None:
    await provision(job, effects)  # in the same task


def test_line_is_that_of_the_handler_also_if_a_task_of_its_own_has_the_effect() -> None:
    with pytest.raises(PromiseBroken) as found:
        crash_everywhere(scenario(delegating))
    assert found.value.line is not None
    assert found.value.line.line == line_of("# in a task of its own")


def test_functions_that_the_handler_calls_are_named_below_it() -> None:
    with pytest.raises(PromiseBroken) as found:
        crash_everywhere(scenario(calling))
    assert found.value.line is not None
    assert found.value.line.line == line_of("# in the same task")
    assert f"{__file__}:{line_of('# two functions below the handler')}, in provision" in str(found.value)


def test_scenario_that_fails_without_a_crash_says_so() -> None:
    async def broken(job: Job, effects: Effects) -> None:
        raise Temporary("never")

    with pytest.raises(PromiseBroken, match="fails without a crash") as found:
        crash_everywhere(scenario(broken))
    assert found.value.point is None
    assert f"({__file__}:{line_of('# refused if it is broken')})" in found.value.problem


def test_assertion_of_the_scenario_that_a_crash_breaks_is_told_with_the_crash_point() -> None:
    async def play(run: CrashRun) -> None:
        attempts: list[int] = []

        async def make(job: Job) -> None:
            attempts.append(job.attempt)
            await asyncio.sleep(1.0)

        engine = await run.start([Kind(LAMP, {"make": Handler(make), "light": Handler(make)})])
        made = await engine.create("n", "lamp-1", "lamp", "make")
        assert made.operation is not None
        await engine.wait("n", made.operation.id)
        assert attempts == [1], "tried again"

    with pytest.raises(PromiseBroken, match="the scenario failed: AssertionError: tried again") as found:
        crash_everywhere(play)
    assert found.value.point is not None


def test_kinds_made_anew_lose_what_a_process_has_in_memory() -> None:
    memories: list[dict[str, int]] = []

    async def play(run: CrashRun) -> None:
        def kinds() -> list[Kind]:
            memory: dict[str, int] = {}
            memories.append(memory)

            async def make(job: Job) -> None:
                assert job.key.id not in memory
                memory[job.key.id] = 1
                await asyncio.sleep(1.0)

            return [Kind(LAMP, {"make": Handler(make), "light": Handler(make)})]

        engine = await run.start(kinds)
        made = await engine.create("n", "lamp-1", "lamp", "make")
        assert made.operation is not None
        await engine.wait("n", made.operation.id)

    crash_everywhere(play)
    assert any(memories)


def test_scenario_that_is_not_async_is_refused() -> None:
    with pytest.raises(BadInput, match=r"scenario: .* must be an async function of a CrashRun"):
        crash_everywhere(lambda run: None)  # type: ignore[arg-type,return-value]


def test_scenario_that_does_nothing_is_refused_because_it_proves_nothing() -> None:
    async def nothing(run: CrashRun) -> None:
        """Do nothing."""

    with pytest.raises(BadInput, match="scenario: 'nothing' must be one that starts a process and writes something"):
        crash_everywhere(nothing)


def test_kinds_that_are_none_are_refused() -> None:
    async def play(run: CrashRun) -> None:
        await run.start([LAMP])  # type: ignore[list-item]

    with pytest.raises(PromiseBroken, match="kinds: 'Lifecycle' must be a domain, kinds, or a function"):
        crash_everywhere(play)
