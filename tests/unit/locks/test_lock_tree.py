"""The tree of locks: blockers, releases, and costs."""

import copy
import gc
import pickle
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from stateward.errors import BadInput
from stateward.locks import Acquisition, LockBlocker, LockConflict, LockTree, Mode, parse_path

IX, S, SIX, X = Mode.IX, Mode.S, Mode.SIX, Mode.X


def refusal(tree: LockTree, owner: str, path: str, mode: Mode = X) -> LockConflict:
    with pytest.raises(LockConflict) as refused:
        tree.acquire(owner, path, mode)
    return refused.value


def test_a_lock_is_an_intention_on_every_ancestor_and_the_mode_on_its_node() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a/b/c/d", X)
    assert tree.nodes() == {"/": {IX: 1}, "/a": {IX: 1}, "/a/b": {IX: 1}, "/a/b/c": {IX: 1}, "/a/b/c/d": {X: 1}}


def test_the_record_says_who_took_what_and_how() -> None:
    taken = LockTree().acquire("d1", "a//b/", X)
    assert (taken.owner, taken.path, taken.mode) == ("d1", "/a/b", X)


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a/b/c", "/a/b/c/d"])
def test_an_exclusive_lock_refuses_others_above_at_and_below_it(path: str) -> None:
    tree = LockTree()
    tree.acquire("d1", "/a/b", X)
    assert refusal(tree, "d2", path).blockers == (LockBlocker("d1", "/a/b", X),)


@pytest.mark.parametrize("path", ["/ab", "/a/bc", "/a/c", "/b", "/b/a/b"])
def test_disjoint_paths_are_locked_side_by_side(path: str) -> None:
    tree = LockTree()
    tree.acquire("d1", "/a/b", X)
    assert tree.acquire("d2", path, X) in tree.in_progress()


def test_a_lock_on_the_root_is_alone() -> None:
    tree = LockTree()
    tree.acquire("t1", "/", X)
    assert refusal(tree, "d1", "/a/b").blockers == (LockBlocker("t1", "/", X),)


def test_readers_share_and_keep_writers_out() -> None:
    tree = LockTree()
    tree.acquire("r1", "/a", S)
    tree.acquire("r2", "/a/b", S)
    assert [blocker.owner for blocker in refusal(tree, "w", "/a/b/c").blockers] == ["r1", "r2"]


def test_a_reader_that_writes_below_lets_others_read_elsewhere_below() -> None:
    tree = LockTree()
    tree.acquire("o1", "/a", SIX)
    tree.acquire("o1", "/a/b", X)
    tree.acquire("o2", "/a/c", S)
    assert [blocker.path for blocker in refusal(tree, "o3", "/a/b", S).blockers] == ["/a/b"]


def test_a_conflict_names_every_blocker_with_path_and_mode() -> None:
    tree = LockTree()
    for owner, path, mode in (("d1", "/a/b", X), ("d2", "/a/c/d", S), ("d3", "/e", X)):
        tree.acquire(owner, path, mode)
    conflict = refusal(tree, "d4", "/a")
    assert conflict.blockers == (LockBlocker("d1", "/a/b", X), LockBlocker("d2", "/a/c/d", S))
    assert str(conflict) == "d4 cannot have X on /a: in the way are d1 (X on /a/b), d2 (S on /a/c/d)"


def test_a_conflict_with_one_blocker_reads_well() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a", X)
    assert str(refusal(tree, "d2", "/a/b")) == "d2 cannot have X on /a/b: in the way is d1 (X on /a)"


def test_a_message_spells_out_a_few_blockers_and_the_fields_hold_all() -> None:
    tree = LockTree()
    for number in range(2_000):
        tree.acquire(f"d{number}", f"/s{number}", X)
    conflict = refusal(tree, "t", "/")
    assert len(conflict.blockers) == 2_000
    assert str(conflict).endswith("d4 (X on /s4) and 1,995 more")


def test_a_conflict_may_be_retried_and_its_facts_are_its_fields() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a", X)
    conflict = refusal(tree, "d2", "/a")
    assert conflict.retry
    assert conflict.facts() == {"owner": "d2", "path": "/a", "mode": X, "blockers": (LockBlocker("d1", "/a", X),)}


def test_a_conflict_survives_being_copied_and_sent() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a", X)
    conflict = refusal(tree, "d2", "/a")
    assert pickle.loads(pickle.dumps(conflict)).facts() == copy.copy(conflict).facts() == conflict.facts()


def test_a_refused_lock_leaves_the_tree_as_it_was() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a/b", X)
    before = tree.nodes()
    refusal(tree, "d2", "/a/b/c/d")
    assert tree.nodes() == before


def test_a_refused_lock_keeps_what_its_owner_held_before() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a/b", X)
    kept = tree.acquire("d2", "/a/c", X)
    refusal(tree, "d2", "/a/b")
    assert tree.held_by("d2") == (kept,)


def test_taking_the_same_lock_twice_is_one_record() -> None:
    tree = LockTree()
    first = tree.acquire("d1", "/a", X)
    assert tree.acquire("d1", "a/", X) is first
    assert tree.in_progress() == (first,)
    assert tree.nodes() == {"/": {IX: 1}, "/a": {X: 1}}


def test_an_owner_is_never_in_their_own_way() -> None:
    tree = LockTree()
    for path, mode in (("/a/b", X), ("/a", X), ("/", S), ("/a/b/c", X), ("/a/b", SIX)):
        tree.acquire("d1", path, mode)
    assert len(tree) == 5


def test_an_owner_above_their_own_locks_is_still_stopped_by_others_there() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a/b", X)
    tree.acquire("d2", "/a/c", X)
    assert refusal(tree, "d1", "/a").blockers == (LockBlocker("d2", "/a/c", X),)


def test_releasing_one_path_keeps_the_owners_others() -> None:
    tree = LockTree()
    first, second = tree.acquire("d1", "/a/b", X), tree.acquire("d1", "/a/c", X)
    assert tree.release(first)
    assert tree.in_progress() == (second,)
    assert tree.nodes() == {"/": {IX: 1}, "/a": {IX: 1}, "/a/c": {X: 1}}


def test_a_second_release_does_nothing() -> None:
    tree = LockTree()
    first, second = tree.acquire("d1", "/a/b", IX), tree.acquire("d2", "/a/b", IX)
    assert tree.release(first)
    assert not tree.release(first)
    assert tree.in_progress() == (second,)


def test_an_old_record_cannot_give_back_the_same_lock_taken_again() -> None:
    tree = LockTree()
    old = tree.acquire("d1", "/a", X)
    tree.release(old)
    new = tree.acquire("d1", "/a", X)
    assert not tree.release(old)
    assert tree.in_progress() == (new,)


def test_a_record_with_the_number_of_another_gives_nothing_back() -> None:
    tree = LockTree()
    held = tree.acquire("d1", "/a", X)
    assert not tree.release(Acquisition("d1", "/b", X, held.number))
    assert not tree.release(Acquisition("d2", "/a", X, held.number))
    assert tree.in_progress() == (held,)


def test_releasing_all_gives_back_one_owners_locks_and_no_others() -> None:
    tree = LockTree()
    mine = (tree.acquire("d1", "/a", X), tree.acquire("d1", "/b/c", X))
    other = tree.acquire("d2", "/b/d", X)
    assert tree.release_all("d1") == mine
    assert tree.in_progress() == (other,)
    assert tree.release_all("d1") == ()


def test_nodes_vanish_with_the_last_lock_on_them() -> None:
    tree = LockTree()
    for number in range(100):
        tree.acquire(f"d{number % 7}", f"/a/{number % 10}/{number}", IX)
    for owner in range(7):
        tree.release_all(f"d{owner}")
    root = tree._ledger._root
    assert (root.counts, root.children, root.shares, tree._ledger._owned) == (0, {}, {}, {})


def test_blockers_can_be_asked_for_without_taking_anything() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a", X)
    assert tree.blockers("d2", "/", X) == (LockBlocker("d1", "/a", X),)
    assert tree.blockers("d2", "/b", X) == ()
    assert len(tree) == 1


def test_composed_and_decomposed_names_are_one_node() -> None:
    tree = LockTree()
    tree.acquire("d1", "/caf\u00e9", X)
    assert refusal(tree, "d2", "/cafe\u0301").blockers == (LockBlocker("d1", "/caf\u00e9", X),)


def test_paths_of_a_thousand_levels_are_locked_and_given_back() -> None:
    tree = LockTree()
    held = tree.acquire("d1", "/x" * 1_000, X)
    assert len(refusal(tree, "d2", "/").blockers) == 1
    assert len(tree.nodes()) == 1_001
    tree.release(held)
    assert tree.nodes() == {}


@pytest.mark.parametrize(
    ("owner", "path", "mode", "field"),
    [
        ("", "/a", "X", "owner"),
        (7, "/a", "X", "owner"),
        ("d", "", "X", "path"),
        ("d", None, "X", "path"),
        ("d", "/", "Z", "mode"),
    ],
)
def test_bad_input_is_refused_with_its_field(owner: str, path: str, mode: Mode, field: str) -> None:
    tree = LockTree()
    with pytest.raises(BadInput) as refused:
        tree.acquire(owner, path, mode)
    assert refused.value.field == field
    assert tree.nodes() == {}


def calls_made_by(work: Callable[[], object]) -> int:
    """Count every call, of Python and of C, that the work makes."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # a collection in between would be counted too
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@pytest.mark.parametrize("owner", ["other", "holder"])
def test_the_work_for_one_lock_does_not_grow_with_the_locks_held(owner: str) -> None:
    tree, path = LockTree(), parse_path("/a/b/c/d/e/f/g/h/i/mine")
    work = []
    for held in range(5_000):
        if held in (10, 1_000, 4_999):
            work.append(calls_made_by(lambda: tree.release(tree.acquire(owner, path, X))))
        tree.acquire("holder" if held % 2 else f"d{held}", f"/a/b/c/d/e/f/g/h/i/{held}", X)
    assert work[0] == work[1] == work[2]


def test_widening_a_lock_over_many_of_ones_own_does_not_look_at_them() -> None:
    tree = LockTree()
    for number in range(2_000):
        tree.acquire("d1", f"/a/{number}", X)
    assert calls_made_by(lambda: tree.acquire("d1", "/a", X)) < 100


def test_a_refusal_looks_only_at_what_is_in_the_way() -> None:
    tree = LockTree()
    tree.acquire("d1", "/a/b", X)
    for number in range(2_000):
        tree.acquire(f"d{number}", f"/c/{number}", X)
    assert calls_made_by(lambda: tree.blockers("d2", "/a", X)) < 100
