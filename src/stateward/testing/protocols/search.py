"""The search: breadth first, so that the first violation has the shortest trace.

There are three violations: an invariant that does not hold, a step that breaks a rule, and a state without progress. A
state without any step is found at once. The others are found at the end, by walking back from the states of rest: a
state that this walk does not reach is stuck, even if steps are possible in it (livelock). Faults and steps of free
parties do not count as progress, because no party may depend on a crash or on a user to go on.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from stateward.testing.protocols.party_states import FIELD, Transition
from stateward.testing.protocols.protocol_model import Bounds, FaultBudget, Predicate, Protocol
from stateward.testing.protocols.state_space import StateSpace


class ViolationKind(StrEnum):
    """The kind of a violation."""

    BROKEN = "an invariant does not hold"
    BREACH = "a step breaks a rule"
    DEAD_END = "nothing can happen any more"
    NO_REST = "no state of rest can be reached any more"


class Trace(Struct, frozen=True):
    """The steps that lead to a state, and the state of each party at the end."""

    steps: tuple[str, ...]
    end: tuple[str, ...]

    def __str__(self) -> str:
        steps = (f"{nth:3}. {step}" for nth, step in enumerate(self.steps, start=1))
        return "\n".join((*steps, *(f"     {line}" for line in self.end)))


class ProtocolViolation(Struct, frozen=True):
    """A violation, with the shortest trace that leads to it."""

    kind: ViolationKind
    name: str
    trace: Trace

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}\n{self.trace}"


class Exploration(Struct, frozen=True):
    """The size of the search, and the first violation. It is `complete` if no bound cut anything off.

    A search ends at its first violation, and is not complete then.
    """

    visited: int
    transitions: int
    depth: int
    complete: bool
    violation: ProtocolViolation | None = None

    def __str__(self) -> str:
        how = "all there is" if self.complete else "not all there is"
        seen = f"{self.visited} states, {self.transitions} transitions, depth {self.depth}: {how}"
        return f"{seen}\n{self.violation}" if self.violation is not None else seen


def explore(protocol: Protocol, faults: FaultBudget | None = None, bounds: Bounds | None = None) -> Exploration:
    """Try all possible steps within the budgets, and report the shortest way to a violation, if there is one."""
    return _Search(protocol, faults or FaultBudget(), bounds or Bounds()).run()


class _Search:
    def __init__(self, protocol: Protocol, faults: FaultBudget, bounds: Bounds) -> None:
        self.world = StateSpace(protocol, faults, bounds)
        self.bounds = bounds
        self.complete = True
        self.broken = tuple(self._checker(claims) for claims in _by_subject(protocol.invariants))
        self.unrest = self._checker((protocol.rest,))
        self.parents: dict[int, int] = {self.world.start: self.world.start}
        self.sound: set[int] = set()
        self.transitions = self.depth = 0

    def run(self) -> Exploration:
        violation = self._broken(self.world.start) or self._walk()
        if violation is None and self.complete:
            violation = self._restless()
        complete = self.complete and violation is None
        return Exploration(len(self.parents), self.transitions, self.depth, complete, violation)

    def _walk(self) -> ProtocolViolation | None:
        level = [self.world.start]
        while level:
            reached: list[int] = []
            for state in level:
                violation = self._expand(state, reached)
                if violation is not None:
                    return violation
                if len(self.parents) >= self.bounds.states:
                    self.complete = False
                    return None
            if reached and self.depth >= self.bounds.depth:
                self.complete = False
                return None
            self.depth += bool(reached)
            level = reached
        return None

    def _expand(self, state: int, reached: list[int]) -> ProtocolViolation | None:
        parents, core, sound = self.parents, self.world.core, self.sound
        ways = self.world.transitions(state)
        self.transitions += len(ways)
        for after, way in ways:
            if way.breach is not None:
                return ProtocolViolation(ViolationKind.BREACH, way.breach, self._trace(state, (after, way)))
            if after not in parents:
                parents[after] = state
                reached.append(after)
                if after & core not in sound:
                    sound.add(after & core)
                    violation = self._broken(after)
                    if violation is not None:
                        return violation
        return self._dead_end(state)

    def _dead_end(self, state: int) -> ProtocolViolation | None:
        exits = self.world.exits(state)
        if exits.cut or state & exits.cut_faults:
            self.complete = False
        if exits.cut or any(way.is_progress and adds for adds, way in exits.ways) or self._rests(state):
            return None
        return self._stuck(ViolationKind.DEAD_END, state)

    def _broken(self, state: int) -> ProtocolViolation | None:
        for check in self.broken:
            name = check(state)
            if name is not None:
                return ProtocolViolation(ViolationKind.BROKEN, name, self._trace(state))
        return None

    def _rests(self, state: int) -> bool:
        return self.unrest(state) is None and not self.world.anybody_down(state)

    def _stuck(self, kind: ViolationKind, state: int) -> ProtocolViolation:
        return ProtocolViolation(kind, self.unrest(state) or "somebody is down", self._trace(state))

    def _checker(self, claims: tuple[Predicate, ...]) -> Callable[[int], str | None]:
        """Return a cached function of a state: the name of the first predicate that does not hold in it, or None."""
        world, shifts, known = self.world, self.world.shifts(claims[0]), dict[tuple[int, ...], str | None]()

        def check(state: int) -> str | None:
            key = tuple([state >> shift & FIELD for shift in shifts])
            if key not in known:
                known[key] = next((claim.name for claim in claims if not world.holds(claim, key)), None)
            return known[key]

        return check

    def _restless(self) -> ProtocolViolation | None:
        """Return the first state from which no progress leads to a state of rest.

        Budgets do not matter here, so cores are enough. Most steps lead to cores that were found later, so a pass from
        the last core to the first decides most of them. Only the others need lists of their predecessors.
        """
        cores = dict.fromkeys(state & self.world.core for state in self.parents)
        calm = {core for core in cores if self._rests(core)}
        doubtful = []
        for core in reversed(cores):
            if core not in calm:
                if any(after in calm for after in self._progress_targets(core)):
                    calm.add(core)
                else:
                    doubtful.append(core)
        self._spread(calm, doubtful)
        lost = next((state for state in self.parents if state & self.world.core not in calm), None)
        return None if lost is None else self._stuck(ViolationKind.NO_REST, lost)

    def _spread(self, calm: set[int], doubtful: list[int]) -> None:
        before: dict[int, list[int]] = defaultdict(list)
        fresh = []
        for core in doubtful:
            for after in self._progress_targets(core):
                before[after].append(core)
                if after in calm:
                    fresh.append(after)
        while fresh:
            for core in before.pop(fresh.pop(), ()):
                if core not in calm:
                    calm.add(core)
                    fresh.append(core)

    def _progress_targets(self, core: int) -> Iterator[int]:
        return (core + adds for adds, way in self.world.exits(core).ways if way.is_progress)

    def _trace(self, state: int, last: tuple[int, Transition] | None = None) -> Trace:
        steps = [last[1].text] if last is not None else []
        end = last[0] if last is not None else state
        while (before := self.parents[state]) != state:
            steps.append(next(way.text for after, way in self.world.transitions(before) if after == state))
            state = before
        return Trace(tuple(reversed(steps)), self.world.describe(end))


def _by_subject(claims: Iterable[Predicate]) -> Iterator[tuple[Predicate, ...]]:
    """Group predicates on the same parties, so that one look-up checks them all."""
    groups: dict[tuple[str, ...], list[Predicate]] = defaultdict(list)
    for claim in claims:
        groups[claim.of].append(claim)
    return (tuple(group) for group in groups.values())
