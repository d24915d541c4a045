import pytest

from stateward.errors import UnknownName
from stateward.lifecycle import (
    ADMIN,
    CANCELLED,
    CLOCK,
    FAILED,
    FORCE,
    GONE,
    HEALER,
    NEW,
    PROVIDER,
    SUCCEEDED,
    TIMED_OUT,
    TRANSITIONAL,
    USER,
    WORKER,
    Meaning,
    Move,
    Refusal,
    RefusalCode,
    decide,
    declare,
    step,
)
from stateward.lifecycle.decide import undoing_actions
from tests.unit.lifecycle.door import DOOR, ROWS, Door

INSISTING = frozenset({FORCE})


def moved(*question: object) -> Move:
    answer = decide(DOOR, *question)  # type: ignore[arg-type]
    assert isinstance(answer, Move)
    return answer


def refused(*question: object) -> Refusal:
    answer = decide(DOOR, *question)  # type: ignore[arg-type]
    assert isinstance(answer, Refusal)
    return answer


def test_an_action_enters_its_transitional_state_and_knows_its_ends_and_deadline() -> None:
    move = moved(Door.CLOSED, "open", USER)
    assert (move.target, move.desired, move.error, move.within) == (Door.OPENING, Door.OPEN, Door.CLOSED, 60)
    assert move.begins
    assert not move.preempts


def test_a_stored_word_is_as_good_as_the_enum_member() -> None:
    assert moved("closed", "open", "user") is moved(Door.CLOSED, "open", USER)


def test_success_failure_and_time_out_follow_from_the_action() -> None:
    assert moved(Door.OPENING, SUCCEEDED, WORKER).target == Door.OPEN
    assert moved(Door.OPENING, FAILED, WORKER).target == Door.CLOSED
    assert moved(Door.OPENING, TIMED_OUT, CLOCK).target == Door.CLOSED
    assert moved(Door.OPENING, SUCCEEDED, HEALER).target == Door.OPEN


@pytest.mark.parametrize("origin", [Door.OPEN, Door.CLOSED])
def test_back_means_the_state_in_which_the_work_began(origin: Door) -> None:
    assert moved(Door.PAINTING, SUCCEEDED, WORKER, frozenset(), origin).target == origin
    assert moved(Door.PAINTING, FAILED, WORKER, frozenset(), origin).target == origin


def test_an_ending_that_depends_on_its_origin_is_refused_without_it() -> None:
    refusal = refused(Door.PAINTING, SUCCEEDED, WORKER)
    assert refusal.reason is RefusalCode.OTHER_ORIGIN
    assert set(refusal.sources) == {Door.OPEN, Door.CLOSED}


def test_a_cancelled_action_returns_to_its_origin_and_a_cancelled_creation_to_nothing() -> None:
    assert moved(Door.OPENING, CANCELLED, WORKER, frozenset(), Door.CLOSED).target == Door.CLOSED
    assert moved(Door.HANGING, CANCELLED, WORKER, frozenset(), NEW).target == GONE


def test_hidden_work_leaves_the_state_as_it_is() -> None:
    move = moved(Door.OPEN, "oil", USER)
    assert (move.source, move.target, move.meaning) == (Door.OPEN, Door.OPEN, Meaning.HIDDEN)


def test_an_administrator_may_do_what_a_user_may() -> None:
    assert moved(Door.CLOSED, "open", ADMIN).target == Door.OPENING


@pytest.mark.parametrize("order", [1, -1], ids=["users row first", "admins row first"])
def test_an_administrators_own_row_comes_before_the_users(order: int) -> None:
    rows = (*ROWS, *(step(Door.OPEN, "slam", USER, Door.CLOSED), step(Door.OPEN, "slam", ADMIN, Door.JAMMED))[::order])
    slammed = declare("test.slammed", Door, rows, USER | PROVIDER | CLOCK)
    assert [decide(slammed, Door.OPEN, "slam", who).target for who in (USER, ADMIN)] == [Door.CLOSED, Door.JAMMED]  # type: ignore[union-attr]
    shown = [(one.target, one.actors) for one in slammed.allowed[Door.OPEN] if one.event == "slam"]
    assert sorted(shown) == [(Door.CLOSED, (USER,)), (Door.JAMMED, (ADMIN,))]


def test_force_opens_what_is_refused_without_it_and_pre_empts() -> None:
    refusal = refused(Door.OPENING, "remove", USER)
    assert (refusal.reason, refusal.missing) == (RefusalCode.NEEDS_FACT, (FORCE,))
    assert moved(Door.OPENING, "remove", USER, INSISTING).preempts


def test_a_row_that_needs_nothing_serves_a_request_with_facts_too() -> None:
    assert moved(Door.OPEN, "close", USER, INSISTING).target == Door.CLOSED


def test_a_transitional_state_refuses_and_says_what_is_possible() -> None:
    refusal = refused(Door.OPENING, "open", USER)
    assert refusal.reason is RefusalCode.IN_TRANSITION
    assert (refusal.state, refusal.state_class) == (Door.OPENING, TRANSITIONAL)
    assert (refusal.allowed_to(USER), refusal.allowed_with_facts(USER)) == ((), {"remove": (FORCE,)})
    assert "transitional" in str(refusal)


def test_a_stable_state_refuses_with_the_states_in_which_it_would_be_possible() -> None:
    refusal = refused(Door.OPEN, "open", USER)
    assert (refusal.reason, refusal.sources) == (RefusalCode.NOT_FROM_HERE, (Door.CLOSED,))
    assert "must be closed" in str(refusal)


def test_another_actors_event_is_refused_with_who_may() -> None:
    refusal = refused(Door.OPEN, "wind", USER)
    assert (refusal.reason, refusal.may) == (RefusalCode.NOT_YOURS, (PROVIDER,))
    assert str(refusal).endswith("is open, where the action is for provider only")


def test_an_event_that_is_never_the_actors_is_refused_for_that_reason_in_every_state_at_rest() -> None:
    refusal = refused(Door.JAMMED, "wind", USER)
    assert (refusal.reason, refusal.may) == (RefusalCode.NOT_YOURS, (PROVIDER,))
    assert str(refusal).endswith("is jammed, and the action is for provider only")
    assert refused(Door.OPENING, "wind", USER).reason is RefusalCode.IN_TRANSITION


def test_a_final_state_refuses_everything_but_its_removal() -> None:
    assert refused(Door.REMOVED, "remove", USER, INSISTING).reason is RefusalCode.FINAL_STATE
    assert moved(Door.REMOVED, "forget", USER).target == GONE


@pytest.mark.parametrize(
    ("state", "event", "actor", "what", "nearest"),
    [
        ("opne", "open", USER, "state", "open"),
        ("open", "piant", USER, "action", "paint"),
        ("open", "open", "usr", "actor", "user"),
    ],
)
def test_an_unknown_name_is_an_error_that_says_what_was_probably_meant(
    state: str, event: str, actor: str, what: str, nearest: str
) -> None:
    with pytest.raises(UnknownName) as caught:
        decide(DOOR, state, event, actor)
    assert caught.value.what.startswith(what)
    assert caught.value.nearest == nearest
    assert nearest in caught.value.known


def test_an_action_is_undone_by_the_action_that_leads_back_without_further_facts() -> None:
    assert undoing_actions(DOOR, "open", "closed", USER) == ("open",)
    assert undoing_actions(DOOR, "open", "open", USER) == ()
    assert undoing_actions(DOOR, "closed", GONE.word, USER) == ()
