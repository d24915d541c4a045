"""The single lock: granted at once or refused, and released once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.compat import IntentionLock, Unlocker
from stateward.errors import BadInput
from stateward.locks import Mode, compatible


def taken(lock: IntentionLock, mode: Mode) -> Unlocker:
    unlocker = lock.try_lock(mode)
    assert unlocker is not None
    return unlocker


@pytest.mark.parametrize("mode", Mode)
def test_a_free_lock_is_had_in_any_mode(mode: Mode) -> None:
    assert taken(IntentionLock(), mode).mode is mode


@pytest.mark.parametrize("first", Mode)
@pytest.mark.parametrize("second", Mode)
def test_a_held_lock_is_had_if_the_modes_go_together(first: Mode, second: Mode) -> None:
    lock = IntentionLock()
    taken(lock, first)
    assert (lock.try_lock(second) is not None) is compatible(first, second)


def test_a_refused_lock_leaves_no_trace() -> None:
    lock = IntentionLock()
    held = taken(lock, Mode.X)
    assert lock.try_lock(Mode.IX) is None
    held.unlock()
    assert lock.held() == {}


def test_an_unlocker_gives_back_the_mode_it_was_made_for() -> None:
    lock = IntentionLock()
    first, _second, _third = taken(lock, Mode.IS), taken(lock, Mode.IX), taken(lock, Mode.IX)
    first.unlock()
    assert lock.held() == {Mode.IX: 2}


def test_a_second_unlock_does_nothing() -> None:
    lock = IntentionLock()
    first, second = taken(lock, Mode.IX), taken(lock, Mode.IX)
    first.unlock()
    first.unlock()
    assert lock.try_lock(Mode.X) is None
    second.unlock()
    assert lock.try_lock(Mode.X) is not None


def test_an_unlocker_works_as_a_context_manager() -> None:
    lock = IntentionLock()
    with taken(lock, Mode.X) as unlocker:
        assert lock.held() == {unlocker.mode: 1}
    assert lock.held() == {}


def test_a_context_left_by_an_error_gives_the_lock_back() -> None:
    lock = IntentionLock()
    with pytest.raises(ZeroDivisionError), taken(lock, Mode.X):
        raise ZeroDivisionError
    assert lock.held() == {}


def test_an_unlock_inside_its_context_is_not_repeated_at_the_end() -> None:
    lock = IntentionLock()
    with taken(lock, Mode.S) as unlocker:
        unlocker.unlock()
        taken(lock, Mode.S)
    assert lock.held() == {Mode.S: 1}


def test_an_unknown_mode_is_refused_as_bad_input() -> None:
    with pytest.raises(BadInput):
        IntentionLock().try_lock("Y")  # type: ignore[arg-type]


def test_a_lock_shows_how_it_is_held() -> None:
    lock = IntentionLock()
    assert repr(lock) == "<IntentionLock free>"
    taken(lock, Mode.IX)
    assert repr(lock) == "<IntentionLock 1 IX>"


@given(st.lists(st.one_of(st.sampled_from(Mode), st.integers(min_value=0, max_value=30))))
def test_it_behaves_like_a_list_of_modes(steps: list[Mode | int]) -> None:
    lock = IntentionLock()
    held: list[Unlocker] = []
    for step in steps:
        if isinstance(step, Mode):
            unlocker = lock.try_lock(step)
            assert (unlocker is not None) is all(compatible(step, other.mode) for other in held)
            held += [unlocker] if unlocker is not None else []
        elif step < len(held):
            held.pop(step).unlock()
        assert sum(lock.held().values()) == len(held)
