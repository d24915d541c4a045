"""`decide` against a model that reads the declared rows one by one, knows no compiled table, and is slow."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.errors import UnknownName
from stateward.lifecycle import (
    ADMIN,
    AGENT,
    BACK,
    CANCELLED,
    CLOCK,
    FAILED,
    FINAL,
    GONE,
    HEALER,
    NEW,
    STABLE,
    SUCCEEDED,
    TIMED_OUT,
    TRANSITIONAL,
    UNKNOWN,
    USER,
    WORKER,
    Back,
    Declaration,
    Lifecycle,
    Meaning,
    Move,
    Refusal,
    RefusalCode,
    Row,
    State,
    States,
    action,
    decide,
    failure,
    hidden,
    request,
    step,
    success,
    timeout,
)
from stateward.plugin.registry import installed

DECLARED = installed().lifecycles
DERIVED = {SUCCEEDED: "to", FAILED: "error", TIMED_OUT: "late", UNKNOWN: "lost", CANCELLED: "undone"}


class Outcome(NamedTuple):
    """What the model says of one row: how strongly it applies, and what it does."""

    rank: tuple[int, bool]
    target: State
    desired: State | None = None
    error: State | None = None
    within: float | None = None


class Request(NamedTuple):
    """One question to `decide`."""

    state: str
    event: str
    actor: str
    facts: frozenset[str]
    origin: str | None


def expected(lifecycle: Lifecycle, asked: Request) -> Outcome | None:
    """Return what must come out, or None for a refusal."""
    found = [*_by_rows(lifecycle, asked), *_by_derivation(lifecycle, asked)]
    return max(found, key=lambda one: one.rank, default=None)


def _by_rows(lifecycle: Lifecycle, asked: Request) -> Iterator[Outcome]:
    for row in lifecycle.rows:
        own = asked.actor in row.actors
        applies = asked.state in row.sources and asked.event == row.event and row.needs <= asked.facts
        if not applies or not (own or (asked.actor == ADMIN and _shared(lifecycle, row, asked.state))):
            continue
        here, rank = lifecycle.state(asked.state), (len(row.needs), own)
        if row.via is not None:
            yield Outcome(rank, row.via, _place(row.to, here), _place(row.error, here), row.within)
        elif row.meaning is Meaning.HIDDEN:
            yield Outcome(rank, here, here, here, row.within)
        elif isinstance(row.to, State):
            yield Outcome(rank, row.to, within=row.within)
        elif asked.origin is not None and asked.state in _under_way(lifecycle, asked.origin):
            yield Outcome(rank, _left(lifecycle.state(asked.origin)))


def _shared(lifecycle: Lifecycle, row: Row, state: str) -> bool:
    """Tell whether a user's row serves administrators too: they have no own row for the same."""
    same = [one for one in lifecycle.rows if state in one.sources and (one.event, one.needs) == (row.event, row.needs)]
    return USER in row.actors and not any(ADMIN in one.actors for one in same)


def _under_way(lifecycle: Lifecycle, origin: str) -> set[str]:
    """Return the transitional states of work that began in a resting one."""
    entered: set[str] = set()
    if origin not in lifecycle.states or lifecycle.state(origin).state_class is TRANSITIONAL:
        return entered
    for row in lifecycle.rows:
        if origin in row.sources:
            entered |= {one for one in (row.via or row.to,) if isinstance(one, State) and _moving(one)}
    while True:
        steps = [row for row in lifecycle.rows if row.via is None and entered & set(row.sources)]
        further = {row.to.word for row in steps if isinstance(row.to, State) and _moving(row.to)}
        if further <= entered:
            return entered
        entered |= further


def _by_derivation(lifecycle: Lifecycle, asked: Request) -> Iterator[Outcome]:
    if asked.event not in DERIVED or asked.actor not in ((CLOCK,) if asked.event == TIMED_OUT else (WORKER, HEALER)):
        return
    begun = [row for row in lifecycle.rows if row.via == asked.state and row.meaning is Meaning.ACTION]
    ends = {source: _end(lifecycle, asked.event, row, source) for row in begun for source in row.sources}
    known = {source: end for source, end in ends.items() if end is not None}
    depends = asked.event == CANCELLED or len(set(known.values())) > 1
    for origin, end in known.items():
        if origin == asked.origin or not depends:
            yield Outcome((0, True), end)


def _end(lifecycle: Lifecycle, event: str, row: Row, source: State) -> State | None:
    unknown = lifecycle.declaration.unknown
    if DERIVED[event] == "undone":
        return None if _moving(source) else _left(source)
    if DERIVED[event] == "lost":
        return unknown
    if DERIVED[event] == "late" and unknown is not None:
        return unknown
    return _place(row.to if DERIVED[event] == "to" else row.error, source)


def _place(place: State | Back | None, source: State) -> State | None:
    return _left(source) if isinstance(place, Back) else place


def _left(source: State) -> State:
    """Return where an object is that goes back; one that did not exist before is gone."""
    return GONE if source == NEW else source


def _moving(place: object) -> bool:
    return isinstance(place, State) and place.state_class is TRANSITIONAL


# --- lifecycles and questions -----------------------------------------------------------------------------------------

ACTORS = USER | ADMIN | AGENT
NEEDS = st.sampled_from([(), (), ("force",), ("force", "odd"), ("mode=a",), ("mode=b",)])


class Generated(State):
    REST = "rest", STABLE
    IDLE = "idle", STABLE
    WORK = "work", TRANSITIONAL
    UNDO = "undo", TRANSITIONAL
    LOST = "lost", STABLE
    DONE = "done", FINAL


ANYWHERE = st.lists(st.sampled_from([NEW, *Generated]), min_size=1, max_size=3, unique=True).map(States)
PLACES = st.sampled_from([*Generated, GONE])
PLACES_OR_BACK = PLACES | st.just(BACK)
MOVING = st.sampled_from([one for one in Generated if _moving(one)])
EVENTS = st.sampled_from(["go", "stop", "say"])
BY = st.sampled_from([USER, ADMIN, AGENT, USER | AGENT])
ROWS = st.one_of(
    st.builds(action, ANYWHERE, EVENTS, BY, MOVING, PLACES_OR_BACK, PLACES_OR_BACK, st.just(9.0), NEEDS),
    st.builds(request, ANYWHERE, EVENTS, BY, MOVING, PLACES_OR_BACK, PLACES_OR_BACK, st.just(8.0), NEEDS),
    st.builds(hidden, ANYWHERE, EVENTS, BY, st.just(7.0), NEEDS),
    st.builds(step, ANYWHERE, EVENTS, BY, PLACES, st.just(6.0), NEEDS),
    st.builds(step, ANYWHERE, EVENTS, BY, st.just(BACK), st.none(), NEEDS),
    st.builds(success, MOVING, EVENTS, BY, PLACES_OR_BACK, NEEDS),
    st.builds(failure, MOVING, EVENTS, BY, PLACES_OR_BACK, NEEDS),
    st.builds(timeout, MOVING, PLACES_OR_BACK),
)


@st.composite
def generated(draw: st.DrawFn) -> Lifecycle:
    """Draw rows, and keep those that can stand beside the ones before them."""
    unknown = draw(st.sampled_from([None, Generated.LOST]))
    kept = Declaration("generated", Generated, (step(NEW, "begin", USER, Generated.REST),), ACTORS, unknown=unknown)
    for row in draw(st.lists(ROWS, max_size=10)):
        longer = Declaration("generated", Generated, (*kept.rows, row), ACTORS, unknown=unknown)
        kept = kept if longer.faults() else longer
    return Lifecycle(kept)


LIFECYCLES = generated() | st.sampled_from(DECLARED)


def facts_of(lifecycle: Lifecycle) -> st.SearchStrategy[frozenset[str]]:
    """Draw some of the facts that a lifecycle knows; of facts that exclude each other, one."""
    known = sorted({fact for row in lifecycle.rows for fact in row.needs} | {"moonlight"})
    return st.lists(st.sampled_from(known), unique_by=lambda fact: fact.partition("=")[0]).map(frozenset)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Lifecycle, Request]:
    """Draw a lifecycle, and a question in its words."""
    lifecycle = draw(LIFECYCLES)
    states = [state.word for state in lifecycle.states]
    return lifecycle, Request(
        state=draw(st.sampled_from(states)),
        event=draw(st.sampled_from(lifecycle.events)),
        actor=draw(st.sampled_from(lifecycle.actors)),
        facts=draw(facts_of(lifecycle)),
        origin=draw(st.sampled_from([None, *states, "elsewhere"])),
    )


@st.composite
def refusals(draw: st.DrawFn) -> tuple[Lifecycle, Request, Refusal]:
    """Draw a question whose answer is no."""
    lifecycle, asked = draw(questions().filter(lambda one: isinstance(decide(one[0], *one[1]), Refusal)))
    refusal = decide(lifecycle, *asked)
    assert isinstance(refusal, Refusal)
    return lifecycle, asked, refusal


# --- the properties ---------------------------------------------------------------------------------------------------


@given(questions())
def test_decision_is_what_the_rows_say(question: tuple[Lifecycle, Request]) -> None:
    lifecycle, asked = question
    outcome, decision = expected(lifecycle, asked), decide(lifecycle, *asked)
    if outcome is None:
        assert isinstance(decision, Refusal)
    else:
        assert isinstance(decision, Move)
        assert decision.target is outcome.target
        assert (decision.desired, decision.error, decision.within) == (outcome.desired, outcome.error, outcome.within)
        assert (decision.source, decision.event, decision.actor) == (asked.state, asked.event, asked.actor)


@pytest.mark.parametrize("lifecycle", DECLARED, ids=lambda one: one.kind)
def test_declared_lifecycles_agree_with_their_rows_in_every_case(lifecycle: Lifecycle) -> None:
    for facts in consistent_facts(lifecycle):
        agree_everywhere(lifecycle, facts, None)
        for origin in lifecycle.states:
            agree(lifecycle, (Request(*key, facts, origin) for key in lifecycle.moves))


@given(generated(), st.data())
def test_generated_lifecycles_agree_with_their_rows_at_every_key(lifecycle: Lifecycle, data: st.DataObject) -> None:
    facts = data.draw(facts_of(lifecycle))
    agree_everywhere(lifecycle, facts, data.draw(st.sampled_from([None, *lifecycle.states])))


def agree_everywhere(lifecycle: Lifecycle, facts: frozenset[str], origin: str | None) -> None:
    keys = product(lifecycle.states, lifecycle.events, lifecycle.actors)
    agree(lifecycle, (Request(*key, facts, origin) for key in keys))


def agree(lifecycle: Lifecycle, asks: Iterable[Request]) -> None:
    for asked in asks:
        outcome, decision = expected(lifecycle, asked), decide(lifecycle, *asked)
        assert (outcome and outcome.target) == (decision.target if isinstance(decision, Move) else None), asked


def consistent_facts(lifecycle: Lifecycle) -> set[frozenset[str]]:
    """Return no facts, the facts of each row, and all facts but one, where they do not exclude each other."""
    known = frozenset(fact for row in lifecycle.rows for fact in row.needs)
    several = {frozenset[str](), *(row.needs for row in lifecycle.rows), *(known - {fact} for fact in known)}
    return {facts for facts in several if len({fact.partition("=")[0] for fact in facts}) == len(facts)}


@given(questions())
def test_plain_words_are_decided_like_states(question: tuple[Lifecycle, Request]) -> None:
    lifecycle, asked = question
    stated = asked._replace(state=lifecycle.state(asked.state))
    assert decide(lifecycle, *asked) == decide(lifecycle, *stated)


@given(questions(), st.sampled_from(["state", "event", "actor"]))
def test_unknown_name_says_what_was_probably_meant(question: tuple[Lifecycle, Request], field: str) -> None:
    lifecycle, asked = question
    wrong = f"{getattr(asked, field)}~"
    known = {"state": lifecycle.states, "event": lifecycle.events, "actor": lifecycle.actors}[field]
    mistaken = {
        "state": asked._replace(state=wrong),
        "event": asked._replace(event=wrong),
        "actor": asked._replace(actor=wrong),
    }[field]
    with pytest.raises(UnknownName) as caught:
        decide(lifecycle, *mistaken)
    assert caught.value.known == tuple(map(str, known))
    assert caught.value.nearest in caught.value.known
    assert caught.value.name == wrong


@given(LIFECYCLES, st.text(), st.text(), st.text(), st.frozensets(st.text()), st.none() | st.text())
def test_nonsense_is_refused_or_named_and_nothing_else(
    lifecycle: Lifecycle, state: str, event: str, actor: str, facts: frozenset[str], origin: str | None
) -> None:
    with suppress(UnknownName):
        assert isinstance(decide(lifecycle, state, event, actor, facts, origin), Move | Refusal)


@given(refusals())
def test_refusal_repeats_the_question(refused: tuple[Lifecycle, Request, Refusal]) -> None:
    lifecycle, asked, refusal = refused
    assert refusal.kind == lifecycle.kind
    assert (refusal.state.word, refusal.event, refusal.actor) == (asked.state, asked.event, asked.actor)
    assert refusal.state_class is refusal.state.state_class
    assert str(refusal).startswith(f"{asked.event!r} ")
    assert f"{refusal.kind} is {asked.state}" in str(refusal)


@given(refusals())
def test_what_a_refusal_lists_as_allowed_is_allowed(refused: tuple[Lifecycle, Request, Refusal]) -> None:
    lifecycle, asked, refusal = refused
    for line in refusal.allowed:
        for actor in line.actors:
            for origin in line.origins or (None,):
                decision = decide(lifecycle, asked.state, line.event, actor, frozenset(line.needs), origin)
                assert isinstance(decision, Move)
                assert (decision.target, decision.desired) == (line.target, line.desired)


@given(refusals())
def test_a_refusal_tells_apart_what_is_allowed_as_it_is_and_what_needs_facts(
    refused: tuple[Lifecycle, Request, Refusal],
) -> None:
    lifecycle, asked, refusal = refused
    plain, conditional = refusal.allowed_to(asked.actor), refusal.allowed_with_facts(asked.actor)
    assert asked.event not in plain
    assert not set(plain) & set(conditional)
    lines = [one for one in refusal.allowed if asked.actor in one.actors and not one.needs]
    for event in plain:
        origin = next((origin for one in lines if one.event == event for origin in one.origins), None)
        assert isinstance(decide(lifecycle, asked.state, event, asked.actor, origin=origin), Move)
    for event, needs in conditional.items():
        assert needs
        found = decide(lifecycle, asked.state, event, asked.actor, frozenset(needs))
        assert isinstance(found, Move) or found.reason is RefusalCode.OTHER_ORIGIN


@given(questions())
def test_what_is_allowed_is_listed(question: tuple[Lifecycle, Request]) -> None:
    lifecycle, asked = question
    decision = decide(lifecycle, *asked)
    if isinstance(decision, Move):
        assert any(
            (line.event, line.target) == (asked.event, decision.target)
            and asked.actor in line.actors
            and asked.facts >= set(line.needs)
            for line in lifecycle.allowed[asked.state]
        )


@given(refusals())
def test_missing_facts_are_what_was_missing(refused: tuple[Lifecycle, Request, Refusal]) -> None:
    lifecycle, asked, refusal = refused
    assert bool(refusal.missing) == (refusal.reason is RefusalCode.NEEDS_FACT)
    assert not asked.facts & set(refusal.missing)
    if refusal.missing:
        given_them = decide(lifecycle, *asked._replace(facts=asked.facts | set(refusal.missing)))
        assert isinstance(given_them, Move) or given_them.reason is RefusalCode.OTHER_ORIGIN


@given(refusals())
def test_reason_follows_from_who_can_do_what_and_where(refused: tuple[Lifecycle, Request, Refusal]) -> None:
    lifecycle, asked, refusal = refused
    here = {actor for actor in lifecycle.actors if _could(lifecycle, asked._replace(actor=actor))}
    anywhere = {
        actor
        for state in lifecycle.states
        for actor in lifecycle.actors
        if _could(lifecycle, asked._replace(state=state, actor=actor))
    }
    assert set(refusal.may) == (here or anywhere)
    if asked.actor in here:
        assert refusal.reason in (RefusalCode.NEEDS_FACT, RefusalCode.OTHER_ORIGIN)
    elif here or (asked.actor not in anywhere and refusal.state_class is not TRANSITIONAL):
        assert refusal.reason is RefusalCode.NOT_YOURS
    else:
        at_rest = {
            FINAL: RefusalCode.FINAL_STATE,
            TRANSITIONAL: RefusalCode.IN_TRANSITION,
            STABLE: RefusalCode.NOT_FROM_HERE,
        }
        assert refusal.reason is at_rest[refusal.state_class]


@given(refusals())
def test_sources_are_where_it_would_be_possible(refused: tuple[Lifecycle, Request, Refusal]) -> None:
    lifecycle, asked, refusal = refused
    if refusal.reason is RefusalCode.OTHER_ORIGIN:
        for origin in refusal.sources:
            assert isinstance(decide(lifecycle, *asked._replace(origin=origin)), Move)
    else:
        possible = {
            state
            for state in lifecycle.states
            for actor in lifecycle.actors
            if _could(lifecycle, asked._replace(state=state, actor=actor))
        }
        assert set(refusal.sources) == possible


def _could(lifecycle: Lifecycle, asked: Request) -> bool:
    """Tell whether some facts and some origin would make it legal."""
    needs = {frozenset[str](), *(row.needs for row in lifecycle.rows)}
    origins = (None, *(state.word for state in lifecycle.states))
    asks = (asked._replace(facts=facts, origin=origin) for facts in needs for origin in origins)
    return any(expected(lifecycle, one) is not None for one in asks)
