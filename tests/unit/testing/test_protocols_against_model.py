"""The search against a simple model: whole states in sets, without numbers or caches."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.testing.protocols import (
    Bounds,
    Exploration,
    FaultBudget,
    ModelMessage,
    ModelParty,
    Predicate,
    Protocol,
    Step,
    ViolationKind,
    explore,
)
from tests.long_forms import examples

NAMES = ("a", "b")
COPIES, IN_FLIGHT = 2, 3

Outcome = tuple[int, tuple[tuple[str, int], ...]]  # the new state, and the messages sent: (to, body)
SENT = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1)), max_size=2).map(tuple)
OUTCOMES = st.lists(st.tuples(st.integers(0, 2), SENT), max_size=2)


class Table(NamedTuple):
    acts: dict[int, list[Outcome]]
    hears: dict[tuple[int, int], list[Outcome]]
    left: dict[int, int]


TABLES = st.builds(
    Table,
    st.dictionaries(st.integers(0, 2), OUTCOMES, max_size=3),
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 1)), OUTCOMES, max_size=4),
    st.dictionaries(st.integers(0, 2), st.integers(0, 2), max_size=2),
)


class World(NamedTuple):
    states: tuple[int, int]
    down: tuple[int, int]  # 1 for one who is down
    flying: tuple[tuple[str, int], ...]
    losses: int
    doubles: int
    crashes: tuple[int, int]


class Plain:
    """The reference."""

    def __init__(self, tables: tuple[Table, Table], bad: tuple[int, int], rests: set[int]) -> None:
        self.tables, self.bad, self.rests = tables, bad, rests
        self.cut = False

    def onward(self, world: World) -> Iterator[World]:
        for nth, table in enumerate(self.tables):
            if world.down[nth]:
                yield world._replace(down=_set(world.down, nth, 0))
                continue
            for state, sent in table.acts.get(world.states[nth], []):
                yield from self.sent(world._replace(states=_set(world.states, nth, state)), sent)
        for message in set(world.flying):
            yield from self.delivered(world, message, keep=False)

    def delivered(self, world: World, message: tuple[str, int], keep: bool) -> Iterator[World]:
        nth = NAMES.index(message[0])
        left = world if keep else world._replace(flying=_without(world.flying, message))
        outcomes = [] if world.down[nth] else self.tables[nth].hears.get((world.states[nth], message[1]), [])
        for state, sent in outcomes:
            if not keep or sent or state != world.states[nth]:
                yield from self.sent(left._replace(states=_set(world.states, nth, state)), sent)
        if not outcomes and not keep:
            yield left

    def faults(self, world: World) -> Iterator[World]:
        for message in set(world.flying):
            if world.losses:
                yield world._replace(flying=_without(world.flying, message), losses=world.losses - 1)
            if world.doubles:
                yield from self.delivered(world._replace(doubles=world.doubles - 1), message, keep=True)
        for nth, table in enumerate(self.tables):
            if world.crashes[nth] and not world.down[nth]:
                yield world._replace(
                    states=_set(world.states, nth, table.left.get(world.states[nth], 0)),
                    down=_set(world.down, nth, 1),
                    crashes=_set(world.crashes, nth, world.crashes[nth] - 1),
                )

    def sent(self, world: World, messages: tuple[tuple[str, int], ...]) -> Iterator[World]:
        flying = list(world.flying)
        for message in messages:
            if flying.count(message) < COPIES:
                flying.append(message)
        if messages and len(flying) > IN_FLIGHT:
            self.cut = True
        else:
            yield world._replace(flying=tuple(sorted(flying)))

    def at_rest(self, world: World) -> bool:
        return world.states[0] in self.rests and not any(world.down)

    def search(self, start: World) -> tuple[ViolationKind | None, int, int, bool]:
        depth, ahead = {start: 0}, deque([start])
        if start.states == self.bad:
            return ViolationKind.BROKEN, 0, 1, False
        while ahead:
            world = ahead.popleft()
            cut, self.cut = self.cut, False
            onward = [one for one in self.onward(world) if one != world]
            end = not onward and not self.cut and not self.at_rest(world)
            for after in (*onward, *self.faults(world)):
                if after not in depth:
                    depth[after] = depth[world] + 1
                    if after.states == self.bad:
                        return ViolationKind.BROKEN, depth[after], 0, False
                    ahead.append(after)
            if end:
                return ViolationKind.DEAD_END, depth[world], 0, False
            self.cut |= cut
        stuck = set() if self.cut else set(depth) - self.calm(set(depth))
        if stuck:
            return ViolationKind.NO_REST, min(depth[world] for world in stuck), len(depth), False
        return None, 0, len(depth), not self.cut

    def calm(self, worlds: set[World]) -> set[World]:
        calm = {world for world in worlds if self.at_rest(world)}
        while more := {world for world in worlds - calm if calm & set(self.onward(world))}:
            calm |= more
        return calm


def _set(pair: tuple[int, int], nth: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if nth == 0 else (pair[0], value)


def _without(flying: tuple[tuple[str, int], ...], message: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    at = flying.index(message)
    return flying[:at] + flying[at + 1 :]


def _steps(outcomes: list[Outcome]) -> list[Step[int]]:
    return [Step(state, "steps", tuple(ModelMessage(to, body) for to, body in sent)) for state, sent in outcomes]


def _party(name: str, table: Table) -> ModelParty[int]:
    return ModelParty(
        name,
        0,
        lambda now: _steps(table.acts.get(now, [])),
        lambda now, body: _steps(table.hears.get((now, body), [])),
        lambda now: (table.left.get(now, 0),),
    )


def _explored(tables: tuple[Table, Table], bad: tuple[int, int], rests: set[int], start: World) -> Exploration:
    parties = (_party("a", tables[0]), _party("b", tables[1]))
    protocol = Protocol(
        parties,
        Predicate("rest", ("a",), lambda now: now in rests),
        (Predicate("good", NAMES, lambda one, other: (one, other) != bad),),
    )
    faults = FaultBudget(start.losses, start.doubles, dict(zip(NAMES, start.crashes, strict=True)))
    return explore(protocol, faults, Bounds(copies=COPIES, in_flight=IN_FLIGHT))


@given(
    tables=st.tuples(TABLES, TABLES),
    bad=st.tuples(st.integers(1, 3), st.integers(0, 3)),
    rests=st.sets(st.integers(0, 2), min_size=1),
    budgets=st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)),
)
@settings(max_examples=examples(150), deadline=None)
def test_it_finds_what_the_plain_search_finds_and_as_short(
    tables: tuple[Table, Table], bad: tuple[int, int], rests: set[int], budgets: tuple[int, int, int, int]
) -> None:
    start = World((0, 0), (0, 0), (), budgets[0], budgets[1], budgets[2:])
    kind, length, visited, complete = Plain(tables, bad, rests).search(start)
    found = _explored(tables, bad, rests, start)
    if kind is None or found.violation is None:
        assert (kind, found.violation) == (None, None)
        assert (found.visited, found.complete) == (visited, complete)
    elif found.violation.kind is kind:
        assert len(found.violation.trace.steps) == length
    else:  # of two that are as near, either may be met first
        assert {found.violation.kind, kind} == {ViolationKind.BROKEN, ViolationKind.DEAD_END}
