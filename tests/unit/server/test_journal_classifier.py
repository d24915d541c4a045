from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stateward.engine import Kind
from stateward.lifecycle import HEALER, USER, WORKER
from stateward.plugin.registry import installed
from stateward.server.telemetry import journal_classifier
from stateward.server.telemetry.journal_classifier import RESULTS, ActionResult, JournalClassifier
from stateward.store.records import JournalEntry

KINDS = [Kind(one) for one in installed().lifecycles]


def line(
    kind: str, actor: str, event: str, source: str | None, target: str | None, op: str | None = "op"
) -> JournalEntry:
    return JournalEntry("ns", "o", kind, op, 0.0, actor, "", event, source, target, None)


def test_an_action_and_its_end_are_counted_under_the_actions_name() -> None:
    read = JournalClassifier(KINDS).classify
    assert read(line("mci.vm", USER, "suspend", "Running", "Suspending")) == ("mci.vm", "suspend", "accepted")
    assert read(line("mci.vm", WORKER, "succeeded", "Suspending", "Suspended")) == ("mci.vm", "suspend", "succeeded")


def test_an_end_whose_beginning_was_not_seen_is_named_by_the_table() -> None:
    read = JournalClassifier(KINDS).classify
    assert read(line("mci.vm", WORKER, "failed", "Rebooting", "Failed")) == ("mci.vm", "reboot", "failed")


def test_of_several_actions_that_lead_through_a_state_the_one_that_was_begun_is_named() -> None:
    read = JournalClassifier(KINDS).classify
    read(line("mci.mci", USER, "scale in", "Running", "Terminating"))
    told = read(line("mci.mci", "controller", "all running", "Terminating", "Running"))
    assert told == ("mci.mci", "scale in", "succeeded")


def test_a_phase_of_a_request_is_a_move_and_its_end_is_the_requests() -> None:
    read = JournalClassifier(KINDS).classify
    assert read(line("mci.mci", USER, "create", "(new)", "Preparing")).result == "accepted"
    assert read(line("mci.mci", "controller", "prepared", "Preparing", "Prepared")).result == "moved"
    told = read(line("mci.mci", "controller", "all running", "Creating", "Running"))
    assert told == ("mci.mci", "create", "succeeded")


def test_every_way_to_end_is_told_apart() -> None:
    read = JournalClassifier(KINDS).classify
    ends = {"timed out": "timed_out", "cancelled": "cancelled", "unknown": "unknown", "failed": "failed"}
    for event, result in ends.items():
        assert read(line("mci.vm", WORKER, event, "Suspending", "somewhere")).result == result


def test_hidden_work_is_counted_when_it_is_accepted_and_when_it_fails() -> None:
    read = JournalClassifier(KINDS).classify
    assert read(line("ovc.vm", "admin", "migrate", None, None)) == ("ovc.vm", "migrate", "accepted")
    assert read(line("ovc.vm", WORKER, "failed", None, None)) == ("ovc.vm", "migrate", "failed")


def test_an_event_of_a_part_is_not_remembered_as_work_that_will_end() -> None:
    classifier = JournalClassifier(KINDS)
    for event in ("fire", "done"):
        assert classifier.classify(line("leases.event", "clock", event, None, None)).result == "moved"
    assert not classifier._actions


def test_a_report_that_did_not_count_is_rejected_and_named() -> None:
    told = JournalClassifier(KINDS).classify(line("mci.vm", WORKER, "rejected: succeeded", None, None))
    assert told == ("mci.vm", "succeeded", "rejected")


def test_work_of_a_lost_worker_is_handed_over() -> None:
    read = JournalClassifier(KINDS).classify
    read(line("mci.vm", USER, "suspend", "Running", "Suspending"))
    assert read(line("mci.vm", HEALER, "put back", None, None)) == ("mci.vm", "suspend", "handed_over")


def test_a_kind_that_this_process_does_not_know_is_counted_all_the_same() -> None:
    read = JournalClassifier([]).classify
    assert read(line("other", USER, "go", "here", "there")) == ("other", journal_classifier.OTHER, "moved")
    assert read(line("other", WORKER, "succeeded", "there", "here")) == ("other", "succeeded", "succeeded")


def test_what_no_table_has_is_no_label_whoever_wrote_it() -> None:
    read = JournalClassifier(KINDS).classify
    booked = line("leases.host", "controller", "booked from 10:00 to 11:00", "up", "up")
    assert read(booked) == ("leases.host", journal_classifier.OTHER, "moved")
    assert read(line("mci.vm", WORKER, "rejected: x" * 9, None, None)) == (
        "mci.vm",
        journal_classifier.OTHER,
        "rejected",
    )


def test_no_more_operations_are_remembered_than_may_be() -> None:
    many = JournalClassifier(KINDS)
    for number in range(journal_classifier.MAX_REMEMBERED_OPERATIONS + 10):
        many.classify(line("mci.vm", USER, "suspend", "Running", "Suspending", f"op-{number}"))
    assert len(many._actions) == journal_classifier.MAX_REMEMBERED_OPERATIONS


MOVES = [(kind.name, move) for kind in KINDS for move in kind.lifecycle.every_move()]


@given(st.integers(0, 2**32))
def test_every_move_of_every_lifecycle_is_told_by_its_meaning(seed: int) -> None:
    kind, move = Random(seed).choice(MOVES)
    told = JournalClassifier(KINDS).classify(
        line(kind, move.actor, move.event, move.source.word, move.target.word, None)
    )
    assert isinstance(told, ActionResult)
    assert told.result in {RESULTS[move.meaning], "unknown"}
