"""Crashes at every point of a scenario: at each commit, before and after it, and at each await of the handlers.

A handler that is idempotent by hope fails in the one moment that no test by example names. A scenario is deterministic
in virtual time, so its points can be counted, and the process killed at each of them, one run for each. After every
crash, the next process has to keep the promises: each accepted operation ends once, only by moves of its table, no
effect happens twice, and no finished step runs again.
"""

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any

from msgspec import Struct

from stateward.errors import BadInput
from stateward.store.records import Status
from stateward.testing.crash_world import CrashPoint, CrashRun, CrashWorld, Results, play
from stateward.testing.engines import rare_polls
from stateward.testing.handler_calls import CodeLine

ENOUGH_FAILURES = 25
"""After how many failed runs the search for the shortest trace ends."""

Scenario = Callable[[CrashRun], Coroutine[Any, Any, None]]


class CrashReport(Struct, frozen=True):
    """The number of crash points at which a scenario was killed, and of the effects that it has."""

    points: int
    effects: int


class PromiseBroken(AssertionError):
    """A promise does not hold after a crash. The text has the shortest trace, and the handler's line at fault.

    `problem` says what is wrong, `point` where the process was killed (None: without a crash), `trace` what happened in
    order, and `line` is the await of the handler that cannot be repeated, if one is to blame.
    """

    def __init__(
        self, problem: str, point: CrashPoint | None, trace: list[str], lines: tuple[CodeLine, ...], summary: str
    ) -> None:
        self.problem = problem
        self.point = point
        self.trace = trace
        self.line = lines[0] if lines else None
        where = [f"the handler cannot be repeated at {self.line}"] if self.line is not None else []
        calls = [f"    which calls {line}" for line in lines[1:]]
        super().__init__("\n".join((summary, "", *trace, "", problem, *where, *calls)))


def crash_everywhere(scenario: Scenario) -> CrashReport:
    """Run a scenario once without a crash, and once for each point at which its process can die.

    The scenario is an async function of a `CrashRun`. It starts the process, plays the client, and may assert at its
    end what must be true after every crash. Raises `PromiseBroken` with the shortest trace of all failed runs.
    """
    __tracebackhide__ = True  # pytest shows the line that calls it
    if not iscoroutinefunction(scenario):
        raise BadInput("scenario", repr(scenario), "an async function of a CrashRun")
    whole, problem = _run(scenario, None)
    if problem is not None:
        raise PromiseBroken(problem, None, whole.trace, whole.culprit, "The scenario fails without a crash.")
    if not whole.points:
        raise BadInput("scenario", scenario.__name__, "one that starts a process and writes something")
    expected = whole.results
    failed: list[tuple[str, CrashWorld]] = []
    for number in range(1, whole.points + 1):
        world, problem = _run(scenario, number)
        problem = problem or _lost_result(expected, world)
        if problem is not None:
            failed.append((problem, world))
        if len(failed) >= ENOUGH_FAILURES:
            break
    if failed:
        problem, world = min(failed, key=lambda failure: len(failure[1].trace))
        lines = world.culprit or (world.crash.lines if world.crash is not None else ())
        tried = f"{number} of {whole.points}" if number < whole.points else f"all {number}"
        summary = f"{len(failed)} crashes break a promise ({tried} crash points tried). The shortest trace:"
        raise PromiseBroken(problem, world.crash, world.trace, lines, summary)
    return CrashReport(whole.points, len(whole.effects))


def _run(scenario: Scenario, victim: int | None) -> tuple[CrashWorld, str | None]:
    world = CrashWorld(victim)
    with rare_polls():
        outcome = world.run(lambda crash_world: play(crash_world, scenario))
    return world, outcome.wrong


def _lost_result(expected: Results, world: CrashWorld) -> str | None:
    """Say which operation has succeeded without the result that it has without a crash."""
    ended = world.results
    for key, (status, result) in expected.items():
        now = ended.get(key)
        if result is not None and status is Status.SUCCEEDED and now == (Status.SUCCEEDED, None):
            name, action, _ = key
            return f"{action} of {name} succeeded and lost its result, which is {result!r} without a crash"
    return None
