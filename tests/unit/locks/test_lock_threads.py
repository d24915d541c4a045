"""Locks under many threads: mutual exclusion holds, and no lock is lost or left."""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from threading import Barrier, Thread

import pytest

from stateward.locks import GrantedLock, IntentionLock, LifecycleActionManager, LockConflict, LockQueue, LockTree, Mode

THREADS = 8
ROUNDS = 300


@pytest.fixture(autouse=True)
def _switch_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_together(work: Callable[[int], None]) -> None:
    """Run the work in many threads that start at once, and raise what any of them raised."""
    start, errors = Barrier(THREADS), list[BaseException]()

    def body(number: int) -> None:
        start.wait()
        try:
            for _ in range(ROUNDS):
                work(number)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=body, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Room:
    """Where at most one may be; takes note of who was not alone."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.crowds: list[tuple[int, ...]] = []
        self.visits = 0

    def visit(self, number: int) -> None:
        self.inside.append(number)
        if len(self.inside) > 1:
            self.crowds.append(tuple(self.inside))
        self.visits += 1
        self.inside.remove(number)


def test_an_exclusive_lock_is_never_held_by_two_threads() -> None:
    lock, room = IntentionLock(), Room()

    def work(number: int) -> None:
        unlocker = lock.try_lock(Mode.X)
        if unlocker is not None:
            with unlocker:
                room.visit(number)

    run_together(work)
    assert room.visits
    assert room.crowds == []
    assert lock.held() == {}


def test_a_lock_is_checked_under_its_guard() -> None:
    """Some interpreters happen never to switch threads between the check and the taking; do not rely on them."""
    lock, guarded = IntentionLock(), list[bool]()

    class Watched(int):
        def __and__(self, other: int) -> int:
            guarded.append(lock._guard.locked())
            return super().__and__(other)

    lock._counts = Watched()
    assert lock.try_lock(Mode.X) is not None
    assert guarded == [True]


def test_threads_that_unlock_the_same_unlocker_give_back_once() -> None:
    lock = IntentionLock()
    kept = lock.try_lock(Mode.IX)
    shared = [lock.try_lock(Mode.IX) for _ in range(ROUNDS)]

    def work(_number: int) -> None:
        for unlocker in shared:
            assert unlocker is not None
            unlocker.unlock()

    run_together(work)
    assert kept is not None
    assert lock.held() == {Mode.IX: 1}


def test_an_exclusive_path_is_never_held_by_two_threads() -> None:
    tree, room = LockTree(), Room()

    def work(number: int) -> None:
        try:
            held = tree.acquire(f"t{number}", "/a/b" if number % 2 else "/a", Mode.X)
        except LockConflict:
            return
        room.visit(number)
        assert tree.release(held)

    run_together(work)
    assert room.visits
    assert room.crowds == []
    assert tree.nodes() == {}


def test_threads_on_disjoint_paths_never_refuse_each_other() -> None:
    tree = LockTree()

    def work(number: int) -> None:
        tree.release(tree.acquire(f"t{number}", f"/a/{number}/b", Mode.X))

    run_together(work)
    assert tree.nodes() == {}


def test_everybody_who_waits_gets_a_turn_and_is_alone_in_it() -> None:
    queue, room, numbers = LockQueue(), Room(), count()

    def work(_number: int) -> None:
        visitor = next(numbers)
        answer = queue.request(f"t{visitor}", "/a", Mode.X)
        turns = [answer] if isinstance(answer, GrantedLock) else []
        while turns:
            turn = turns.pop().acquisition
            room.visit(turn.number)
            turns += queue.release(turn)

    run_together(work)
    assert room.visits == THREADS * ROUNDS
    assert room.crowds == []
    assert len(queue) == 0


def test_a_system_is_never_torn_down_twice_at_once() -> None:
    actions, room = LifecycleActionManager(), Room()

    def work(number: int) -> None:
        try:
            unlocker = actions.teardown("shop", f"t{number}")
        except LockConflict:
            return
        with unlocker:
            room.visit(number)

    run_together(work)
    assert room.visits
    assert room.crowds == []
    assert actions.systems() == ()
