"""Lifecycles: a declaration compiled once into the table that decisions are looked up in."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from stateward.errors import BadInput, UnknownName
from stateward.lifecycle.actors import ADMIN, CLOCK, HEALER, USER, WORKER, Actor, Actors, with_implied_actors
from stateward.lifecycle.declaration import Declaration, DeclarationError
from stateward.lifecycle.moves import AllowedEvent, Move
from stateward.lifecycle.rows import BEGINNINGS, CANCELLED, FAILED, SUCCEEDED, TIMED_OUT, UNKNOWN, Meaning, Row
from stateward.lifecycle.states import GONE, NEW, TRANSITIONAL, Back, State, States

Key: TypeAlias = tuple[str, str, str]

ACTION_ENDINGS = (
    # event      who brings it about   what it means
    (SUCCEEDED, WORKER | HEALER, Meaning.SUCCESS),
    (FAILED, WORKER | HEALER, Meaning.FAILURE),
    (UNKNOWN, WORKER | HEALER, Meaning.FAILURE),
    (TIMED_OUT, Actors((CLOCK,)), Meaning.TIMEOUT),
    (CANCELLED, WORKER | HEALER, Meaning.CANCEL),
)


class Lifecycle:
    """A compiled lifecycle: what it was declared as, and every legal move by (state, event, actor)."""

    __slots__ = ("_sources", "_words", "allowed", "declaration", "events", "kind", "moves", "states")

    def __init__(self, declaration: Declaration) -> None:
        faults = declaration.faults()
        if faults:
            raise DeclarationError(declaration.kind, faults)
        self.declaration = declaration
        self.kind = declaration.kind
        moves = tuple(_all_moves(declaration))
        self.states: States = _states(declaration, moves)
        self.moves: dict[Key, Move] = _chained(moves)
        self.allowed: dict[str, tuple[AllowedEvent, ...]] = {state: _allowed(state, moves) for state in self.states}
        self.events: tuple[str, ...] = tuple(dict.fromkeys(move.event for move in moves))
        self._sources = {event: _sources(event, moves) for event in self.events}
        self._words: dict[str, State] = {state.word: state for state in self.states}

    @property
    def initial(self) -> State:
        """The state that an object is in before anything happened to it."""
        return self.declaration.initial

    def creating_action(self, wanted: str | None = None) -> str:
        """Return the action that creates an object: the requested one, `create`, or the only one there is."""
        ways = dict.fromkeys(allowed.event for allowed in self.allowed[self.initial])
        if wanted is not None and wanted not in self.events:
            raise BadInput("action", wanted, f"one of {', '.join(ways)}")
        if wanted is not None or "create" in ways:
            return wanted or "create"
        if len(ways) != 1:
            raise BadInput("action", None, f"given: {self.kind} begins with one of {', '.join(ways)}")
        return next(iter(ways))

    @property
    def actors(self) -> Actors:
        """Everybody who acts in this lifecycle."""
        return self.declaration.all_actors

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table as it was written."""
        return self.declaration.rows

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of what can be begun, in the order of the table."""
        begun = (row.event for row in self.rows if row.meaning in BEGINNINGS)
        return tuple(dict.fromkeys(begun))

    def has_state(self, word: str) -> bool:
        """Return whether a word stands for a state."""
        return word in self._words

    def has_event(self, event: str) -> bool:
        """Return whether there is an action or an event of this name."""
        return event in self._sources

    def state(self, word: str) -> State:
        """Return the state that a word stands for, or raise with the words that exist."""
        try:
            return self._words[word]
        except KeyError:
            raise UnknownName(f"state of {self.kind}", word, self._words) from None

    def sources(self, event: str) -> States:
        """Return the states in which an event can happen at all, or raise with the events that exist."""
        try:
            return self._sources[event]
        except KeyError:
            raise UnknownName(f"action or event of {self.kind}", event, self.events) from None

    def exits(self, word: str) -> Iterator[Move]:
        """Walk over all moves out of a state."""
        return (move for move in self.every_move() if move.source == word)

    def every_move(self) -> Iterator[Move]:
        """Walk over all compiled moves, those behind others included."""
        for first in self.moves.values():
            move: Move | None = first
            while move is not None:
                yield move
                move = move.otherwise

    def __repr__(self) -> str:
        return f"<Lifecycle {self.kind}: {len(self.states)} states, {len(self.rows)} rows, {len(self.moves)} moves>"


def declare(
    kind: str,
    states: type[State],
    rows: Iterable[Row],
    by: Actor | Actors = USER,
    *,
    initial: State = NEW,
    unknown: State | None = None,
    about: str = "",
) -> Lifecycle:
    """Declare and compile a lifecycle; a fault in its rows raises with every faulty row named."""
    actors = Actors((by,)) if isinstance(by, Actor) else by
    return Lifecycle(Declaration(kind, states, tuple(rows), actors, initial, unknown, about))


def _all_moves(declaration: Declaration) -> Iterator[Move]:
    origins = _origins(declaration.rows)
    own = {
        (source, row.event, row.needs, ADMIN)
        for row in declaration.rows
        if ADMIN in row.actors
        for source in row.sources
    }
    for row in declaration.rows:
        yield from _moves_of(row, origins, own)
    for via in declaration.states:
        begun = [row for row in declaration.rows if row.via == via and row.meaning is Meaning.ACTION]
        if begun:
            yield from _endings_of(via, begun, declaration.unknown)


def _moves_of(
    row: Row, origins: dict[State, States], own: set[tuple[State, str, frozenset[str], Actor]]
) -> Iterator[Move]:
    for source in row.sources:
        for actor in with_implied_actors(row.actors):
            if actor not in row.actors and (source, row.event, row.needs, actor) in own:
                continue  # the table has the administrator's own row for it
            if row.via is not None:
                desired, error = _resolve(row.to, source), _resolve(row.error or row.to, source)
                yield Move(source, row.event, actor, row.via, row.meaning, desired, error, row.within, row.needs)
            elif row.meaning is Meaning.HIDDEN:
                yield Move(source, row.event, actor, source, row.meaning, source, source, row.within, row.needs)
            elif isinstance(row.to, State):
                yield Move(source, row.event, actor, row.to, row.meaning, within=row.within, needs=row.needs)
            else:
                for origin in origins.get(source, ()):
                    left = _origin_left(origin)
                    yield Move(source, row.event, actor, left, row.meaning, needs=row.needs, origin=origin)


def _endings_of(via: State, begun: list[Row], unknown: State | None) -> Iterator[Move]:
    """Derive the ends of an action; where they depend on where it began, one move per origin."""
    origins = [(source, row) for row in begun for source in row.sources]
    for event, actors, meaning in ACTION_ENDINGS:
        ends = {source: end for source, row in origins if (end := _end(event, source, row, unknown)) is not None}
        same = len(set(ends.values())) == 1 and meaning is not Meaning.CANCEL
        for origin, target in list(ends.items())[: 1 if same else None]:
            for actor in actors:
                yield Move(via, event, actor, target, meaning, origin=None if same else origin)


def _end(event: str, source: State, row: Row, unknown: State | None) -> State | None:
    if event == SUCCEEDED:
        return _resolve(row.to, source)
    if event == FAILED:
        return _resolve(row.error or row.to, source)
    if event == TIMED_OUT:
        return unknown or _resolve(row.error or row.to, source)
    if event == UNKNOWN:
        return unknown
    if source.state_class is TRANSITIONAL:
        return None  # what it pre-empted is fenced off: there is nothing to go back to
    return _origin_left(source)


def _resolve(place: State | Back, source: State) -> State:
    return _origin_left(source) if isinstance(place, Back) else place


def _origin_left(source: State) -> State:
    """Return where an object is that goes back: one that did not exist before is gone."""
    return GONE if source == NEW else source


def _origins(rows: tuple[Row, ...]) -> dict[State, States]:
    """Return, for each transitional state, the states in which the work that leads there can have begun."""
    origins: dict[State, States] = defaultdict(States)
    for row in rows:
        if row.via is not None:
            origins[row.via] |= row.sources
    while True:
        before = dict(origins)
        for row in rows:
            if row.via is None and isinstance(row.to, State) and row.to.state_class is TRANSITIONAL:
                for source in row.sources:
                    origins[row.to] |= origins[source] if source.state_class is TRANSITIONAL else source
        if origins == before:
            return {
                via: States(s for s in sources if s.state_class is not TRANSITIONAL) for via, sources in origins.items()
            }


def _chained(moves: tuple[Move, ...]) -> dict[Key, Move]:
    """File the moves by key; several under one key are tried from the most demanding to the least."""
    filed: dict[Key, list[Move]] = defaultdict(list)
    for move in moves:
        filed[move.source, move.event, move.actor].append(move)
    table: dict[Key, Move] = {}
    for key, several in filed.items():
        link: Move | None = None
        for move in sorted(several, key=lambda candidate: len(candidate.needs)):
            link = replace(move, otherwise=link)
        if link is not None:
            table[key] = link
    return table


def _allowed(state: State, moves: tuple[Move, ...]) -> tuple[AllowedEvent, ...]:
    """Fold the moves out of a state into what a person wants to read: one line per event and outcome."""
    lines: dict[tuple[object, ...], list[Move]] = defaultdict(list)
    for move in moves:
        if move.source == state:
            lines[move.event, move.target, move.needs, move.desired, move.error].append(move)
    return tuple(
        AllowedEvent(
            event=first.event,
            actors=Actors(dict.fromkeys(move.actor for move in same)),
            target=first.target,
            meaning=first.meaning,
            desired=first.desired,
            error=first.error,
            within=first.within,
            needs=tuple(sorted(first.needs)),
            origins=States(dict.fromkeys(move.origin for move in same if move.origin is not None)),
        )
        for same in lines.values()
        for first in same[:1]
    )


def _states(declaration: Declaration, moves: tuple[Move, ...]) -> States:
    """Return every state, with the boundary (new, gone) where the lifecycle has one."""
    reached = {move.target for move in moves}
    before, after = (NEW,) if declaration.initial == NEW else (), (GONE,) if GONE in reached else ()
    return States((*before, *declaration.states, *after))


def _sources(event: str, moves: tuple[Move, ...]) -> States:
    return States(dict.fromkeys(move.source for move in moves if move.event == event))
