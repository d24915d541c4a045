"""The fair queue: first come, first served, without starvation and deadlocks."""

import pickle

import pytest

from stateward.errors import BadInput
from stateward.locks import Acquisition, Deadlock, GrantedLock, LockBlocker, LockConflict, LockQueue, Mode, WaitTicket

IX, S, X = Mode.IX, Mode.S, Mode.X


def granted(queue: LockQueue, owner: str, path: str, mode: Mode = X) -> Acquisition:
    answer = queue.request(owner, path, mode)
    assert isinstance(answer, GrantedLock)
    return answer.acquisition


def waiting(queue: LockQueue, owner: str, path: str, mode: Mode = X) -> WaitTicket:
    answer = queue.request(owner, path, mode)
    assert isinstance(answer, WaitTicket)
    return answer


def owners(tickets: tuple[GrantedLock, ...]) -> list[str]:
    return [ticket.acquisition.owner for ticket in tickets]


def test_a_free_lock_is_granted_at_once() -> None:
    queue = LockQueue()
    held = granted(queue, "d1", "/a")
    assert queue.in_progress() == (held,)


def test_a_lock_that_is_held_makes_the_next_one_wait_and_names_the_holder() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    ticket = waiting(queue, "d2", "/a/b")
    assert ticket.blockers == (LockBlocker("d1", "/a", X),)
    assert queue.waiting() == (ticket.acquisition,)


def test_a_release_grants_who_waited() -> None:
    queue = LockQueue()
    held = granted(queue, "d1", "/a")
    ticket = waiting(queue, "d2", "/a/b")
    assert queue.release(held) == (GrantedLock(ticket.acquisition),)
    assert queue.in_progress() == (ticket.acquisition,)
    assert queue.waiting() == ()


def test_the_queue_is_first_come_first_served() -> None:
    queue = LockQueue()
    held = granted(queue, "d1", "/a")
    second, _third = waiting(queue, "d2", "/a"), waiting(queue, "d3", "/a")
    assert owners(queue.release(held)) == ["d2"]
    assert owners(queue.release(second.acquisition)) == ["d3"]


def test_all_that_go_together_are_granted_at_once_in_order() -> None:
    queue = LockQueue()
    held = granted(queue, "t", "/")
    for owner, path in (("d3", "/c"), ("d1", "/a"), ("d2", "/b"), ("d4", "/a/b")):
        waiting(queue, owner, path)
    assert owners(queue.release(held)) == ["d3", "d1", "d2"]
    assert [claim.owner for claim in queue.waiting()] == ["d4"]


def test_a_stream_of_deploys_does_not_starve_a_teardown() -> None:
    queue = LockQueue()
    running = [granted(queue, "d0", "/s0")]
    teardown = waiting(queue, "t", "/")
    for number in range(1, 50):
        waiting(queue, f"d{number}", f"/s{number}")
    assert owners(queue.release(running[0])) == ["t"]
    assert len(queue.release(teardown.acquisition)) == 49


def test_a_newcomer_that_meets_a_waiter_waits_for_it() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    waiting(queue, "t", "/")
    assert waiting(queue, "d2", "/b").blockers == (LockBlocker("t", "/", X, waiting=True),)


def test_a_newcomer_that_does_not_wait_is_refused_and_the_waiter_named_as_waiting() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    waiting(queue, "t", "/")
    with pytest.raises(LockConflict) as refused:
        queue.acquire("d2", "/b", X)
    assert refused.value.blockers == (LockBlocker("t", "/", X, waiting=True),)
    assert str(refused.value) == "d2 cannot have X on /b: in the way is t (waiting for X on /)"
    assert len(queue) == 2


def test_disjoint_requests_overtake_freely() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    waiting(queue, "d2", "/a")
    assert granted(queue, "d3", "/b") in queue.in_progress()
    assert queue.acquire("d4", "/c", X) in queue.in_progress()


def test_readers_behind_a_waiting_writer_wait_their_turn_and_are_let_in_together() -> None:
    queue = LockQueue()
    reader = granted(queue, "r1", "/a", S)
    writer = waiting(queue, "w", "/a", X)
    waiting(queue, "r2", "/a", S)
    waiting(queue, "r3", "/a", S)
    assert owners(queue.release(reader)) == ["w"]
    assert owners(queue.release(writer.acquisition)) == ["r2", "r3"]


def test_a_ticket_that_is_withdrawn_lets_those_behind_it_pass() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    teardown = waiting(queue, "t", "/")
    waiting(queue, "d2", "/b")
    assert owners(queue.withdraw(teardown)) == ["d2"]
    assert queue.waiting() == ()


def test_a_ticket_withdrawn_twice_changes_nothing_more() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    ticket = waiting(queue, "d2", "/a")
    queue.withdraw(ticket)
    assert queue.withdraw(ticket) == ()
    assert len(queue) == 1


def test_a_ticket_granted_before_it_is_withdrawn_is_given_back() -> None:
    queue = LockQueue()
    held = granted(queue, "d1", "/a")
    ticket = waiting(queue, "d2", "/a")
    waiting(queue, "d3", "/a")
    queue.release(held)
    assert owners(queue.withdraw(ticket)) == ["d3"]


def test_a_withdrawn_ticket_leaves_nothing_with_those_it_waited_for() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    for _ in range(100):
        queue.withdraw(waiting(queue, "d2", "/a"))
    assert queue._behind == {}
    assert queue._missing == {}


def test_asking_again_for_what_one_waits_for_is_the_same_ticket() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    ticket = waiting(queue, "d2", "/a")
    waiting(queue, "d3", "/a")
    assert waiting(queue, "d2", "/a/") == ticket
    assert [claim.owner for claim in queue.waiting()] == ["d2", "d3"]


def test_asking_again_for_what_one_holds_is_the_same_lock() -> None:
    queue = LockQueue()
    held = granted(queue, "d1", "/a")
    waiting(queue, "t", "/")
    assert granted(queue, "d1", "/a") == held
    assert queue.acquire("d1", "/a", X) == held


def test_what_one_waits_for_cannot_be_had_at_once() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    waiting(queue, "d2", "/a")
    waiting(queue, "d3", "/a")
    with pytest.raises(LockConflict) as refused:
        queue.acquire("d2", "/a", X)
    assert refused.value.blockers == (LockBlocker("d1", "/a", X),)


def test_releasing_all_gives_back_what_is_held_and_withdraws_what_is_awaited() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    granted(queue, "d2", "/b")
    waiting(queue, "d1", "/b/c")
    waiting(queue, "d3", "/a")
    assert owners(queue.release_all("d1")) == ["d3"]
    assert [claim.owner for claim in queue.in_progress()] == ["d2", "d3"]
    assert queue.waiting() == ()


def test_an_owner_does_not_wait_for_itself() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    granted(queue, "d1", "/")
    granted(queue, "d1", "/a/b")
    assert len(queue.in_progress()) == 3


def test_two_owners_who_would_wait_for_each_other_are_told_so() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    granted(queue, "d2", "/b")
    waiting(queue, "d1", "/b")
    with pytest.raises(Deadlock) as refused:
        queue.request("d2", "/a", X)
    assert refused.value.cycle == (LockBlocker("d2", "/a", X, waiting=True), LockBlocker("d1", "/b", X, waiting=True))
    assert refused.value.blockers == (LockBlocker("d1", "/a", X),)
    assert str(refused.value) == (
        "d2 cannot wait for X on /a: deadlock d2 (waiting for X on /a) -> d1 (waiting for X on /b) -> d2"
    )


def test_a_refused_wait_leaves_the_queue_as_it_was() -> None:
    queue = LockQueue()
    held = granted(queue, "d1", "/a")
    granted(queue, "d2", "/b")
    ticket = waiting(queue, "d1", "/b")
    before = queue.nodes()
    with pytest.raises(Deadlock):
        queue.request("d2", "/a", X)
    assert queue.nodes() == before
    assert owners(queue.release_all("d2")) == ["d1"]
    assert queue.in_progress() == (held, ticket.acquisition)


def test_a_long_circle_is_named_in_full_and_by_the_shortest_way() -> None:
    queue = LockQueue()
    for number in range(5):
        granted(queue, f"d{number}", f"/{number}")
    for number in range(4):
        waiting(queue, f"d{number}", f"/{number + 1}")
    with pytest.raises(Deadlock) as refused:
        queue.request("d4", "/0", X)
    assert [link.owner for link in refused.value.cycle] == ["d4", "d0", "d1", "d2", "d3"]


def test_a_holder_who_would_queue_behind_those_waiting_for_it_is_told_so() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    waiting(queue, "t", "/")
    with pytest.raises(Deadlock) as refused:
        queue.request("d1", "/b", X)
    assert [link.owner for link in refused.value.cycle] == ["d1", "t"]


def test_a_deadlock_is_a_conflict_that_can_be_sent() -> None:
    queue = LockQueue()
    granted(queue, "d1", "/a")
    waiting(queue, "t", "/")
    with pytest.raises(LockConflict) as refused:
        queue.request("d1", "/b", X)
    assert pickle.loads(pickle.dumps(refused.value)).facts() == refused.value.facts()


def test_an_old_record_changes_nothing() -> None:
    queue = LockQueue()
    held = granted(queue, "d1", "/a")
    queue.release(held)
    granted(queue, "d1", "/a")
    waiting(queue, "d2", "/a")
    assert queue.release(held) == ()


def test_nothing_is_left_when_all_have_gone() -> None:
    queue = LockQueue()
    for number in range(20):
        queue.request(f"d{number}", f"/a/{number % 3}", X)
    for number in range(20):
        queue.release_all(f"d{number}")
    assert (queue.nodes(), len(queue)) == ({}, 0)
    assert (queue._queue, queue._missing, queue._behind) == ({}, {}, {})


@pytest.mark.parametrize(("owner", "path", "mode"), [("", "/", "X"), ("d1", "", "X"), ("d1", "/", "Q")])
def test_bad_input_is_refused(owner: str, path: str, mode: Mode) -> None:
    queue = LockQueue()
    for attempt in (queue.request, queue.acquire):
        with pytest.raises(BadInput):
            attempt(owner, path, mode)
    assert len(queue) == 0
