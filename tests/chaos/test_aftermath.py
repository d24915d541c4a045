"""The checks of `aftermath` find every fault that is planted in a store."""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.engine import Request
from stateward.store.records import JournalEntry
from tests.chaos.aftermath import (
    Stored,
    ended_twice,
    foreign,
    lost,
    misapplied,
    misreplayed,
    misrung,
    misseen,
    restless,
)
from tests.chaos.notes import Answered, Asked, Notes, Sort


def an_entry(seq: int, source: str | None, target: str | None, op: str = "x", **facts: str) -> JournalEntry:
    event, actor, who = facts.get("event", "lift"), facts.get("actor", "user"), facts.get("who", "")
    return JournalEntry(
        "harbour", "crane-0", "chaos.crane", op, 1.0, actor, who, event, source, target, None, None, seq
    )


GOOD = Stored(
    objects={"crane-0": ("idle", None)},
    operations={"x": ("succeeded", None, "crane-0")},
    lines=[an_entry(1, "(new)", "raising", event="raise"), an_entry(2, "raising", "idle", event="succeeded")],
    left={"work": 0, "locks": 0, "timers": 0},
)


def noted(*answers: Answered, sort: Sort = Sort.ACTION, op: str = "x") -> list[Notes]:
    asked = Asked(sort, Request("harbour", "crane-0", "raise", op))
    return [Notes({op: asked}, {answer.op: answer for answer in answers})]


ACCEPTED = noted(Answered("x", "accepted", ("x",)))


def test_a_good_ending_has_no_faults() -> None:
    checks: Iterable[Iterable[str]] = (
        lost(GOOD, ACCEPTED),
        foreign(GOOD, ACCEPTED),
        ended_twice(GOOD),
        restless(GOOD),
        misreplayed(GOOD),
        misrung(GOOD, ACCEPTED),
        misseen(GOOD.lines, GOOD),
        misapplied(GOOD, frozenset({"x"})),
    )
    assert [fault for check in checks for fault in check] == []


def test_an_accepted_operation_that_is_gone_is_found() -> None:
    assert list(lost(replace(GOOD, operations={}), ACCEPTED)) == ["x was accepted and is not there"]


def test_an_operation_that_has_not_ended_is_found() -> None:
    unended = replace(GOOD, operations={"x": ("waiting", None, "crane-0")})
    assert list(lost(unended, ACCEPTED)) == ["x on crane-0 has not ended: waiting"]


def test_a_denied_operation_that_is_there_is_found() -> None:
    assert list(lost(GOOD, noted(Answered("x", "denied")))) == ["x was denied and is there"]


def test_an_operation_that_nobody_asked_for_is_found() -> None:
    assert list(foreign(GOOD, noted(op="y"))) == ["x on crane-0 was asked for by nobody"]


def test_two_endings_of_one_operation_are_found() -> None:
    twice = [*GOOD.lines, an_entry(3, "raising", "idle", event="succeeded")]
    assert list(ended_twice(replace(GOOD, lines=twice))) == ["x ended 2 times"]


def test_an_object_in_transition_and_rows_left_behind_are_found() -> None:
    left = replace(GOOD, objects={"crane-0": ("lifting", "x")}, left={"work": 1, "locks": 2, "timers": 0})
    assert list(restless(left)) == [
        "crane-0 is lifting, held by x",
        "1 rows are left in work",
        "2 rows are left in locks",
    ]


def test_a_journal_that_leads_elsewhere_is_found() -> None:
    assert list(misreplayed(replace(GOOD, objects={"crane-0": ("broken", None)})))
    assert list(misreplayed(replace(GOOD, lines=GOOD.lines[1:])))


def test_a_timer_that_rang_twice_or_never_is_found() -> None:
    timer = noted(Answered("t", "accepted"), sort=Sort.TIMER, op="t")
    rang = an_entry(3, "idle", "lifting", actor="clock", who="t")
    assert list(misrung(GOOD, timer)) == ["timer t rang 0 times"]
    assert not list(misrung(replace(GOOD, lines=[*GOOD.lines, rang]), timer))
    assert list(misrung(replace(GOOD, lines=[*GOOD.lines, rang, rang]), timer)) == ["timer t rang 2 times"]


def test_gaps_duplicates_and_disorder_in_a_stream_are_found() -> None:
    first, second = GOOD.lines
    assert list(misseen([second], GOOD)) == ["1 lines were never shown, such as [1]"]
    assert list(misseen([first, first, second], GOOD)) == ["1 lines were shown twice"]
    assert list(misseen([second, first], GOOD)) == ["lines were shown out of order"]
    assert list(misseen([first, replace(second, event="failed")], GOOD)) == ["lines were shown with another content"]


def test_a_success_without_effect_and_an_effect_of_nothing_are_found() -> None:
    assert list(misapplied(GOOD, frozenset())) == ["x on crane-0 succeeded, but its effect never took place"]
    assert list(misapplied(GOOD, frozenset({"x", "y"}))) == ["the effect of y took place, but it was never accepted"]
