"""The checks themselves: each planted fault is found, and allowed outcomes are not."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.agents.messages import Existing
from stateward.domains.edge.lifecycle import CLUSTERINST
from stateward.store.records import JournalEntry
from tests.chaos.aftermath import Stored
from tests.rehearsal.load import longest
from tests.rehearsal.outcome_checks import contradicting_states, ended_twice, lost, mismatched_instances, unfinished

NOTHING_LEFT = {"work": 0, "locks": 0, "timers": 3}


def line(seq: int, source: str, target: str, op: str = "op-1") -> JournalEntry:
    return JournalEntry(
        "lab", "s:c", CLUSTERINST.kind, op, 0.0, "user", "ann", "create", source, target, None, None, seq
    )


def found(*lines: JournalEntry, state: str = "Ready", op: str | None = None, **operations: str) -> Stored:
    rows: dict[str, tuple[str, str | None, str]] = {name: (status, None, "s:c") for name, status in operations.items()}
    return Stored({"s:c": (state, op)}, rows, list(lines), NOTHING_LEFT)


def test_what_was_accepted_and_is_not_there_is_found() -> None:
    assert list(lost(found(a="succeeded"), ["a", "b"])) == ["b was accepted and is not there"]


def test_what_has_not_ended_is_found() -> None:
    assert list(lost(found(a="running"), ["a"])) == ["a on s:c has not ended: running"]


def test_an_object_that_is_held_is_found_and_timers_may_be_left() -> None:
    assert list(unfinished(found(op="op-1", state="Creating"))) == ["s:c is Creating, held by op-1"]
    assert list(unfinished(found())) == []


def test_two_endings_of_one_operation_are_found() -> None:
    ending = line(2, "Creating", "Ready")
    assert list(ended_twice([line(1, "NotPresent", "Creating"), ending])) == []
    assert list(ended_twice([ending, line(3, "Creating", "Ready")])) == ["op-1 ended 2 times"]


def test_a_gap_in_the_journal_is_found_and_a_first_line_is_none() -> None:
    whole = (line(1, "NotPresent", "Creating"), line(2, "Creating", "Ready"))
    assert list(contradicting_states(found(*whole))) == []
    (gap,) = contradicting_states(found(whole[0], line(2, "Updating", "Ready")))
    assert gap == "line 2: s:c goes from Updating to Ready, but was Creating"
    assert list(contradicting_states(found(*whole, state="Deleting"))) == [
        "s:c is Deleting, but its journal leads to Ready"
    ]


def test_what_exists_only_here_or_only_there_is_found() -> None:
    assert list(mismatched_instances(found(), {"s:c": Existing(7)})) == []
    assert list(mismatched_instances(found(), {"s:c": Existing(0)})) == ["s:c is Ready, but does not exist at its site"]
    assert list(mismatched_instances(found(state="NotPresent"), {"s:c": Existing(7)})) == [
        "s:c exists at its site, but is not Ready"
    ]


@given(st.lists(st.floats(0, 100)))
def test_the_longest_pause_is_never_longer_than_the_span_and_never_shorter_than_its_share(times: list[float]) -> None:
    pause = longest(sorted(times), 10, 90)
    assert 80 / (len(times) + 1) <= pause + 1e-9
    assert pause <= 80
