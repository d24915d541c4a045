"""Retention finds and drops old rows, and touches no other row."""

from typing import Any

import pytest
from msgspec.structs import replace

from stateward.store import JournalFilter, Store
from stateward.store.records import Key, Status
from stateward.store.retention import BEFORE_ALL_KEYS, JournalSpan, PruneCandidate
from tests.contract.samples import (
    a_key_record,
    a_lock,
    a_signal,
    a_step,
    a_timer,
    an_entry,
    an_object,
    an_operation,
    key,
    some_work,
)
from tests.contract.store_calls import ask, write

LIMIT = 1000.0
EVERYTHING = JournalSpan(0, 1_000_000)


def ended(name: str, at: float = 200.0, **fields: Any) -> Any:
    """Make an operation that has ended."""
    return replace(an_operation(name), status=Status.SUCCEEDED, ended=at, **fields)


def removed(name: str, since: float = 200.0, **fields: Any) -> Any:
    """Make what is left of an object."""
    return an_object(name, removed=True, state="", since=since, **fields)


async def operations(store: Store, *given: Any, **more: Any) -> set[str]:
    """Write operations, with the line that tells of each, and return those that may go."""
    lines = [an_entry(one.object, op=one.id) for one in given]
    await write(store, operations=list(given), journal=lines, **more)
    return {one.key.id for one in await store.retention.operations(EVERYTHING, LIMIT)}


async def tombstones(store: Store, *given: Any, **more: Any) -> set[str]:
    """Write removed objects, with the line that tells of each, and return those that may go."""
    await write(store, objects=list(given), journal=[an_entry(one.id, at=one.since) for one in given], **more)
    return {one.key.id for one in await store.retention.objects(EVERYTHING, LIMIT)}


async def lines_that_go(store: Store, *given: Any, **more: Any) -> list[str]:
    """Write lines, and return the events of those that may go."""
    await write(store, journal=list(given), **more)
    last = await store.reader.last_journal_seq()
    going = set(await store.retention.journal_entries(EVERYTHING, LIMIT, last))
    return [line.event for line in await store.reader.journal(0, 100, JournalFilter()) if line.seq in going]


# --- spans -----------------------------------------------------------------------------------------------------------


async def test_the_journal_is_walked_in_portions_up_to_a_number(store: Store) -> None:
    await write(store, journal=[an_entry(event=f"{number}") for number in range(5)])
    assert await store.retention.journal_span(0, 4, 3) == JournalSpan(0, 3)
    assert await store.retention.journal_span(3, 4, 3) == JournalSpan(3, 4)
    assert await store.retention.journal_span(4, 4, 3) is None


# --- operations ------------------------------------------------------------------------------------------------------


async def test_an_operation_goes_that_ended_before_the_limit(store: Store) -> None:
    assert await operations(store, ended("old"), ended("new", LIMIT), an_operation("live")) == {"old"}


async def test_an_operation_is_told_where_it_began(store: Store) -> None:
    await write(
        store,
        operations=[ended("x")],
        journal=[an_entry(op="x"), an_entry(op="x", at=200.0), an_entry(op="x", at=LIMIT)],
    )
    assert await store.retention.operations(JournalSpan(0, 1), LIMIT) == [PruneCandidate(key("x"), True)]
    assert await store.retention.operations(JournalSpan(1, 2), LIMIT) == [PruneCandidate(key("x"), False)]
    assert await store.retention.operations(JournalSpan(2, 3), LIMIT) == []


async def test_an_operation_stays_that_holds_an_object(store: Store) -> None:
    assert await operations(store, ended("x", object="a"), objects=[an_object("a", op="x")]) == set()


async def test_an_operation_stays_while_its_worker_may_be_at_it(store: Store) -> None:
    assert await operations(store, ended("x"), new_work=[some_work("x", fenced=True, owner="w")]) == set()


async def test_an_operation_stays_that_holds_a_lock(store: Store) -> None:
    assert await operations(store, ended("x"), locks=[a_lock("x")]) == set()


async def test_a_family_goes_as_a_whole_and_children_come_first(store: Store) -> None:
    family = [ended("top"), ended("middle", parent="top"), ended("leaf", parent="middle"), ended("other", parent="top")]
    assert await operations(store, *family) == {"top", "middle", "leaf", "other"}
    order = [one.key.id for one in await store.retention.operations(EVERYTHING, LIMIT)]
    assert (order[0], order[-1]) == ("leaf", "top")


@pytest.mark.parametrize("late", ["top", "middle", "leaf"])
async def test_a_family_stays_as_a_whole_while_one_of_it_lives(store: Store, late: str) -> None:
    family = {"top": None, "middle": "top", "leaf": "middle", "other": "top"}
    made = [
        an_operation(name, parent=parent) if name == late else ended(name, parent=parent)
        for name, parent in family.items()
    ]
    assert await operations(store, *made) == set()


async def test_a_family_is_found_from_any_member(store: Store) -> None:
    await write(store, operations=[ended("top"), ended("leaf", parent="top")], journal=[an_entry(op="leaf")])
    assert {one.key.id for one in await store.retention.operations(EVERYTHING, LIMIT)} == {"top", "leaf"}


async def test_a_child_whose_parent_is_gone_already_goes_too(store: Store) -> None:
    assert await operations(store, ended("leaf", parent="gone before")) == {"leaf"}


async def test_operations_of_the_same_name_elsewhere_are_others(store: Store) -> None:
    assert await operations(store, ended("x"), an_operation("x", ns="other")) == {"x"}
    assert await store.retention.operations(EVERYTHING, LIMIT) == [PruneCandidate(key("x"), True)]


async def test_operations_are_dropped_with_their_progress(store: Store) -> None:
    await operations(store, ended("x"), ended("y"), progress=[a_step("x", "half"), a_step("y", "done")])
    assert await store.retention.drop_operations([key("x"), key("unheard of")]) == 1
    assert await store.reader.operation(key("x")) is None
    assert await store.reader.progress_of(key("x"), 0) == []
    assert [line.text for line in await store.reader.progress_of(key("y"), 0)] == ["done"]


async def test_operations_are_dropped_with_the_signals_that_nobody_took(store: Store) -> None:
    await operations(store, ended("x"), ended("y"), signals=[a_signal("x", "go"), a_signal("y", "stop")])
    assert await store.retention.drop_operations([key("x")]) == 1
    assert [one.name for one in await ask(store, "signals", [key("x"), key("y")])] == ["stop"]


async def test_much_progress_goes_in_portions(store: Store) -> None:
    await operations(store, ended("x"), progress=[a_step("x", f"{number}") for number in range(4_500)])
    assert await store.retention.drop_operations([key("x")]) == 1
    assert await store.reader.progress_of(key("x"), 0) == []


# --- objects ---------------------------------------------------------------------------------------------------------


async def test_an_object_goes_that_was_removed_before_the_limit(store: Store) -> None:
    assert await tombstones(store, removed("old"), removed("new", LIMIT), an_object("live")) == {"old"}


@pytest.mark.parametrize(
    "more",
    [
        {"new_work": [some_work("x", "other", queue="a")]},
        {"new_work": [some_work("x", "a", queue="host")]},
        {"locks": [a_lock("x", tree="a")]},
        {"operations": [an_operation("x", "a")]},
        {"operations": [ended("x", LIMIT, object="a")]},
        {"timers": [a_timer("t", 5.0, object="a")]},
    ],
    ids=["work in its queue", "work on it", "a lock", "an operation", "an operation that has just ended", "a timer"],
)
async def test_a_removed_object_stays_while_something_refers_to_it(store: Store, more: dict[str, Any]) -> None:
    assert await tombstones(store, removed("a", queue="host"), **more) == set()
    assert await store.retention.drop_objects([key("a")], LIMIT) == 0


async def test_a_removed_object_stays_while_it_is_a_parent(store: Store) -> None:
    assert await tombstones(store, removed("a"), an_object("child", parent="a")) == set()
    assert await store.retention.drop_objects([key("a")], LIMIT) == 0


async def test_a_parent_goes_together_with_children_that_were_removed_long_ago(store: Store) -> None:
    assert await tombstones(store, removed("a"), removed("child", parent="a")) == {"a", "child"}


async def test_a_removed_object_stays_while_another_one_uses_its_queue(store: Store) -> None:
    guests = [an_object("guest", queue="host"), removed("former guest", queue="empty"), an_object("alone")]
    assert await tombstones(store, removed("host"), removed("empty"), *guests) == {"empty", "former guest"}
    assert await store.retention.drop_objects([key("host")], LIMIT) == 0


async def test_an_object_that_lives_again_is_not_dropped(store: Store) -> None:
    assert await tombstones(store, removed("a"), removed("b")) == {"a", "b"}
    await write(store, objects=[an_object("a", version=2)])
    assert await store.retention.drop_objects([key("a"), key("b")], LIMIT) == 1
    assert await store.reader.object(key("a")) is not None
    assert await store.reader.object(key("b")) is None


async def test_a_name_that_was_dropped_begins_at_version_1(store: Store) -> None:
    await tombstones(store, removed("a"))
    await store.retention.drop_objects([key("a")], LIMIT)
    await write(store, objects=[an_object("a")])
    assert (await ask(store, "objects", [key("a")]))[key("a")].version == 1


# --- lines -----------------------------------------------------------------------------------------------------------


async def test_of_an_object_the_last_old_line_that_tells_its_state_stays(store: Store) -> None:
    given = [
        an_entry(event="1", at=10.0),
        an_entry(event="2", at=20.0),
        an_entry(event="rejected", at=30.0, source=None, target=None),
        an_entry(event="3", at=LIMIT),
    ]
    assert await lines_that_go(store, *given, objects=[an_object("a")]) == ["1", "rejected"]


async def test_of_an_object_that_is_gone_no_old_line_stays(store: Store) -> None:
    assert await lines_that_go(store, an_entry(event="1"), an_entry(event="2", op="x")) == ["1", "2"]


async def test_the_lines_of_an_operation_stay_with_it(store: Store) -> None:
    given = [an_entry(event="1", op="x"), an_entry(event="2", op="gone"), an_entry(event="3")]
    assert await lines_that_go(store, *given, objects=[an_object("a")], operations=[an_operation("x")]) == ["2"]


async def test_what_is_taken_for_dropped_keeps_no_line(store: Store) -> None:
    await write(
        store,
        objects=[an_object("a"), removed("b")],
        operations=[ended("x")],
        journal=[an_entry(op="x"), an_entry(at=200.0), an_entry("b", at=200.0)],
    )
    assert await store.retention.journal_entries(EVERYTHING, LIMIT, 3) == []
    assert await store.retention.journal_entries(EVERYTHING, LIMIT, 3, [key("x")], [key("b")]) == [1, 3]


async def test_only_lines_up_to_a_number_count_as_later_ones(store: Store) -> None:
    await write(store, objects=[an_object("a")], journal=[an_entry(at=10.0), an_entry(at=20.0)])
    assert await store.retention.journal_entries(EVERYTHING, LIMIT, 1) == []


async def test_lines_are_dropped_by_their_numbers_which_do_not_come_back(store: Store) -> None:
    await write(store, journal=[an_entry(event="1"), an_entry(event="2"), an_entry(event="3")])
    assert await store.retention.drop_journal_entries([1, 3, 99]) == 2
    await write(store, journal=[an_entry(event="4")])
    assert [(line.seq, line.event) for line in await store.reader.journal(0, 9, JournalFilter())] == [
        (2, "2"),
        (4, "4"),
    ]


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_answers_are_walked_in_portions_and_old_ones_told(store: Store) -> None:
    await write(
        store,
        idempotency_records=[
            a_key_record("a"),
            a_key_record("b", at=LIMIT),
            a_key_record("c"),
            a_key_record("a", ns="other"),
        ],
    )
    first = await store.retention.idempotency_records(BEFORE_ALL_KEYS, LIMIT, 2)
    assert (first.keys, first.next) == ([key("a")], key("b"))
    second = await store.retention.idempotency_records(key("b"), LIMIT, 2)
    assert (set(second.keys), second.next) == ({key("c"), Key("other", "a")}, Key("other", "a"))
    end = await store.retention.idempotency_records(Key("other", "a"), LIMIT, 2)
    assert (end.keys, end.next) == ([], None)


async def test_an_answer_is_dropped_only_if_it_is_old(store: Store) -> None:
    await write(
        store,
        idempotency_records=[
            a_key_record("a"),
            a_key_record("b", at=LIMIT),
            a_key_record('it\'s "quoted" 日本'),
        ],
    )
    odd = key('it\'s "quoted" 日本')
    assert await store.retention.drop_idempotency_records([key("a"), key("b"), odd], LIMIT) == 2
    assert set(await ask(store, "idempotency_records", [key("a"), key("b"), odd])) == {key("b")}


async def test_the_answer_of_an_operation_that_has_not_ended_is_kept(store: Store) -> None:
    await write(
        store,
        objects=[an_object("vm")],
        operations=[an_operation("open", "vm")],
        new_work=[some_work("open", "vm")],
        idempotency_records=[a_key_record("a", op="open"), a_key_record("b", op="ended")],
    )
    assert (await store.retention.idempotency_records(BEFORE_ALL_KEYS, LIMIT, 9)).keys == [key("b")]
    assert await store.retention.drop_idempotency_records([key("a"), key("b")], LIMIT) == 1
    assert set(await ask(store, "idempotency_records", [key("a"), key("b")])) == {key("a")}


async def test_a_key_whose_answer_was_dropped_is_answered_anew(store: Store) -> None:
    await write(store, idempotency_records=[a_key_record("a")])
    await store.retention.drop_idempotency_records([key("a")], LIMIT)
    await write(store, idempotency_records=[a_key_record("a", op="second")])
    assert (await ask(store, "idempotency_records", [key("a")]))[key("a")].op == "second"


async def test_nothing_at_all_can_be_pruned(store: Store) -> None:
    assert await store.retention.journal_span(0, 0, 10) is None
    assert await store.retention.operations(EVERYTHING, LIMIT) == []
    assert await store.retention.objects(EVERYTHING, LIMIT) == []
    assert (await store.retention.idempotency_records(BEFORE_ALL_KEYS, LIMIT, 10)).next is None
