"""A second action at every await of a first one: the races between two actions, found without luck.

Code with awaits reads, waits, and decides on what it has read, while somebody else has changed it. A test that runs two
actions at the same time shows one order of their steps, and a race needs another one. In virtual time the awaits of the
first action can be counted, and the second action begun at each of them, one run for each. After every run, once
everything has come to rest, the invariants must hold.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from stateward.errors import BadInput
from stateward.testing.crashes import ENOUGH_FAILURES
from stateward.testing.engines import rare_polls
from stateward.testing.handler_calls import CodeLine
from stateward.testing.interleaving_world import (
    ActionFunction,
    InterleavingPoint,
    InterleavingRun,
    InterleavingWorld,
    Invariant,
    Scenario,
    Way,
)

S = TypeVar("S")

WAYS: tuple[Way, ...] = ("switch", "pause")


class InterleavingReport(Struct, frozen=True):
    """The number of awaits of the first action, of the runs, and of those in which one of the actions was refused."""

    points: int
    runs: int
    refused: int


class RaceFound(AssertionError):
    """An invariant does not hold for one order of two actions. The text has the shortest trace, and the await.

    `problem` says what is wrong, `point` is the await of the first action at which the second one began (None: the
    second one followed the first), `line` its line, and `trace` has the steps of both actions in order.
    """

    def __init__(self, problem: str, point: InterleavingPoint | None, trace: list[str], summary: str) -> None:
        self.problem = problem
        self.point = point
        self.line: CodeLine | None = None if point is None else point.line
        self.trace = trace
        where = [] if point is None else [f"the second action began at {point}"]
        calls = [] if point is None else [f"    in {line}" for line in reversed(point.lines) if line != point.line]
        super().__init__("\n".join((summary, "", *trace, "", problem, *where, *calls)))


def interleave_everywhere(
    first: ActionFunction[S],
    second: ActionFunction[S],
    invariants: Sequence[Invariant[S]] = (),
    *,
    setup: Callable[[InterleavingRun], Awaitable[S] | S],
    ways: Sequence[Way] = WAYS,
    most: int | None = None,
) -> InterleavingReport:
    """Run two actions one after the other, and then once for each await of the first, at which the second begins.

    `setup` gets an `InterleavingRun`, starts processes if the actions need any, and returns what the actions and the
    invariants get; it is called for each run. An action may be refused: it raises an error of Stateward or of the
    store, and has no effect. `ways` says how the second action begins at a point. With `most`, so many points are
    tried, of different awaits if there are enough; otherwise all. Raises `RaceFound` with the shortest trace of all
    failed runs.
    """
    __tracebackhide__ = True  # pytest shows the line that calls it
    scenario = Scenario(setup, first, second, tuple(invariants))
    whole, problem = _run(scenario, None, ways[0])
    if problem is not None:
        raise RaceFound(problem, None, whole.trace, "The actions fail one after the other.")
    if "first" in whole.refused or not whole.points:
        raise BadInput("first", whole.refused.get("first", first.__name__), "an action that succeeds, with an await")
    failed: list[tuple[str, InterleavingWorld[S]]] = []
    runs = refused = 0
    for number in _spread(whole.points, most):
        for way in ways:
            world, problem = _run(scenario, number, way)
            runs, refused = runs + 1, refused + bool(world.refused)
            if problem is not None:
                failed.append((problem, world))
        if len(failed) >= ENOUGH_FAILURES:
            break
    if failed:
        problem, world = min(failed, key=lambda failure: len(failure[1].trace))
        summary = f"{len(failed)} of {runs} orders of two actions break an invariant. The shortest trace:"
        raise RaceFound(problem, world.point, world.trace, summary)
    return InterleavingReport(len(whole.points), runs, refused)


def _run(scenario: Scenario[S], chosen: int | None, way: Way) -> tuple[InterleavingWorld[S], str | None]:
    world = InterleavingWorld(scenario, chosen, way)
    with rare_polls():
        outcome = world.run(InterleavingWorld.play)
    return world, outcome.wrong


def _spread(points: Sequence[tuple[CodeLine, ...]], most: int | None) -> list[int]:
    """Choose so many points, evenly: each await for the first time that the action is there, before any again."""
    if most is None or len(points) <= most:
        return list(range(1, len(points) + 1))
    first = dict[tuple[CodeLine, ...], int]()
    for number, lines in enumerate(points, 1):
        first.setdefault(lines, number)
    among = list(first.values()) if len(first) >= most else list(range(1, len(points) + 1))
    return sorted({among[round(number * (len(among) - 1) / max(most - 1, 1))] for number in range(most)})
