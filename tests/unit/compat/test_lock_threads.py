"""Locks under many threads: mutual exclusion holds, and no lock is lost or left."""

import sys
from collections.abc import Callable, Iterator
from threading import Barrier, Thread

import pytest

from stateward.compat import IntentionLock, LifecycleActionManager, LockConflict
from stateward.locks import Mode

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
