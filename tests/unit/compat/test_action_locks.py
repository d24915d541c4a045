"""The locks of deploys, teardowns and deletes of systems."""

import pytest

from stateward.compat import LifecycleActionManager, LockConflict
from stateward.errors import BadInput


def test_deploys_of_disjoint_paths_run_side_by_side() -> None:
    actions = LifecycleActionManager()
    actions.deploy("shop", "d1", "/a/b")
    actions.deploy("shop", "d2", "/a/c")
    actions.deploy("shop", "d3", "/a/bc")
    assert [held.path for held in actions.in_progress("shop")] == ["/a/b", "/a/c", "/a/bc"]


@pytest.mark.parametrize("path", ["/a", "/a/b", "/a/b/c"])
def test_a_deploy_refuses_others_above_at_and_below_its_path(path: str) -> None:
    actions = LifecycleActionManager()
    held = actions.deploy("shop", "d1", "/a/b").lock
    with pytest.raises(LockConflict) as refused:
        actions.deploy("shop", "d2", path)
    assert refused.value.blockers == (held,)
    assert str(refused.value) == f"d2 cannot lock {path}, because of d1 (X on /a/b)"


def test_a_teardown_is_the_only_action_on_its_system() -> None:
    actions = LifecycleActionManager()
    with actions.teardown("shop", "t1"):
        for attempt in (actions.teardown, actions.delete):
            with pytest.raises(LockConflict):
                attempt("shop", "t2")
        with pytest.raises(LockConflict):
            actions.deploy("shop", "d1", "/a")
    actions.deploy("shop", "d1", "/a")


def test_a_teardown_is_refused_and_names_every_deploy() -> None:
    actions = LifecycleActionManager()
    actions.deploy("shop", "d1", "/a")
    actions.deploy("shop", "d2", "/b/c")
    with pytest.raises(LockConflict) as refused:
        actions.teardown("shop", "t1")
    assert [blocker.owner for blocker in refused.value.blockers] == ["d1", "d2"]


def test_a_conflict_with_many_names_some_and_counts_the_rest() -> None:
    actions = LifecycleActionManager()
    for number in range(7):
        actions.deploy("shop", f"d{number}", f"/{number}")
    with pytest.raises(LockConflict, match=r"d4 \(X on /4\) and 2 more$"):
        actions.teardown("shop", "t1")


def test_a_delete_is_refused_while_a_deploy_runs() -> None:
    actions = LifecycleActionManager()
    actions.deploy("shop", "d1", "/a")
    with pytest.raises(LockConflict):
        actions.delete("shop", "x1")


def test_systems_do_not_know_each_other() -> None:
    actions = LifecycleActionManager()
    actions.teardown("shop", "t1")
    actions.teardown("bank", "t2")
    assert actions.systems() == ("shop", "bank")


def test_an_action_that_ends_by_an_error_gives_its_lock_back() -> None:
    actions = LifecycleActionManager()
    with pytest.raises(ZeroDivisionError), actions.deploy("shop", "d1", "/a"):
        raise ZeroDivisionError
    assert actions.in_progress("shop") == ()


def test_a_system_with_nothing_held_is_forgotten() -> None:
    actions = LifecycleActionManager()
    first, second = actions.deploy("shop", "d1", "/a"), actions.deploy("shop", "d2", "/b")
    first.unlock()
    assert actions.systems() == ("shop",)
    second.unlock()
    assert actions.systems() == ()


@pytest.mark.parametrize("path", ["", "/..", "\x00"])
def test_a_refused_path_leaves_no_system_behind(path: str) -> None:
    actions = LifecycleActionManager()
    with pytest.raises(BadInput):
        actions.deploy("shop", "d1", path)
    assert actions.systems() == ()


def test_a_system_without_a_name_is_refused() -> None:
    with pytest.raises(BadInput) as refused:
        LifecycleActionManager().teardown("", "t1")
    assert refused.value.field == "system"


def test_the_unlocker_knows_what_it_will_give_back() -> None:
    unlocker = LifecycleActionManager().deploy("shop", "d1", "a/b/")
    assert (unlocker.lock.system, unlocker.lock.path) == ("shop", "/a/b")


def test_a_second_unlock_does_nothing() -> None:
    actions = LifecycleActionManager()
    unlocker = actions.deploy("shop", "d1", "/a")
    unlocker.unlock()
    actions.deploy("shop", "d1", "/a")
    unlocker.unlock()
    assert len(actions.in_progress("shop")) == 1


def test_an_old_unlocker_means_nothing_to_a_system_that_returned() -> None:
    actions = LifecycleActionManager()
    first, second = actions.deploy("shop", "d1", "/a"), actions.deploy("shop", "d1", "/a")
    first.unlock()
    actions.deploy("shop", "d1", "/a")
    second.unlock()
    assert len(actions.in_progress("shop")) == 1


def test_a_deploy_that_locks_its_path_twice_holds_it_once() -> None:
    actions = LifecycleActionManager()
    first, second = actions.deploy("shop", "d1", "/a"), actions.deploy("shop", "d1", "/a")
    assert first.lock == second.lock
    assert actions.in_progress("shop") == (first.lock,)


def test_releasing_an_action_gives_back_all_its_paths() -> None:
    actions = LifecycleActionManager()
    held = (actions.deploy("shop", "d1", "/a").lock, actions.deploy("shop", "d1", "/b").lock)
    actions.deploy("shop", "d2", "/c")
    assert actions.release("shop", "d1") == held
    assert [one.owner for one in actions.in_progress("shop")] == ["d2"]


def test_releasing_what_is_not_held_does_nothing() -> None:
    actions = LifecycleActionManager()
    assert actions.release("shop", "d1") == ()
    assert actions.in_progress("shop") == ()


def test_releasing_an_actions_last_lock_forgets_the_system() -> None:
    actions = LifecycleActionManager()
    actions.teardown("shop", "t1")
    actions.release("shop", "t1")
    assert actions.systems() == ()
