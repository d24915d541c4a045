"""A process that dies at every point: good handlers pass, and each kind of bad one is found with its line."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stateward.engine import Handler, Job, Kind, ObservedOutcome, Temporary
from stateward.lifecycle import BACK, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.testing import CrashRun, Effects, PromiseBroken, crash_everywhere


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


def test_same_scenario_has_the_same_points() -> None:
    assert crash_everywhere(scenario(idempotent)) == crash_everywhere(scenario(idempotent))


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


class Repeating(Job):
    """A job whose `once` forgets what is finished."""

    __slots__ = ()

    async def once(self, step: str, work: Callable[[], Awaitable[Any]], **how: Any) -> Any:
        self._steps.pop(step, None)
        return await super().once(step, work, **how)


def test_finished_step_that_runs_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateward.engine.worker.worker.Job", Repeating)
    with pytest.raises(PromiseBroken, match="operation op1 ran a step again that was finished: body"):
        crash_everywhere(scenario(in_steps))


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
