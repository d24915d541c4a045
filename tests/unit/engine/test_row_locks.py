"""The durable locks, compared with their definition: a lock is an intention on each ancestor, and waits in a queue."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.engine.row_locks import conflicting_locks, conflicts, grantable_operations
from stateward.locks import Mode, compatible, intention, parse_path
from stateward.store.records import Lock

PATHS = ["/", "/a", "/ab", "/a/b", "/a/bc", "/a/b/c", "/b", "/b/c/d"]
OPS = ["o1", "o2", "o3", "o4", "o5"]


def lock(op: str, path: str, mode: str, *, waiting: bool = False, seq: int = 0) -> Lock:
    return Lock("n", "t", path, mode, op, waiting, seq)


def test_locks_on_unrelated_paths_go_together() -> None:
    assert not conflicts(lock("o1", "/a", "X"), lock("o2", "/ab", "X"))


def test_a_lock_speaks_for_everything_below() -> None:
    assert conflicts(lock("o1", "/a", "S"), lock("o2", "/a/b/c", "X"))
    assert not conflicts(lock("o1", "/a", "S"), lock("o2", "/a/b/c", "S"))


def test_an_operation_is_never_in_its_own_way() -> None:
    assert not conflicts(lock("o1", "/a", "X"), lock("o1", "/a/b", "X"))


def test_paths_are_compared_as_paths() -> None:
    assert conflicts(lock("o1", "/a/", "X"), lock("o2", "//a", "X"))


def test_a_wish_waits_for_those_who_only_wait_too() -> None:
    earlier = lock("o1", "/a", "X", waiting=True)
    assert conflicting_locks(lock("o2", "/a", "S"), [earlier]) == [earlier]


def test_an_operation_is_granted_all_of_its_wishes_or_none() -> None:
    held = lock("o1", "/a", "X")
    wishes = [lock("o2", "/a", "X", waiting=True), lock("o2", "/b", "X", waiting=True)]
    assert grantable_operations([held, *wishes]) == []
    assert grantable_operations(wishes) == ["o2"]


def test_a_wish_does_not_overtake_an_earlier_one_that_it_goes_against() -> None:
    held = lock("o1", "/a", "S")
    locks = [held, lock("o2", "/a", "X", waiting=True), lock("o3", "/a", "S", waiting=True)]
    assert grantable_operations(locks) == []


def test_a_wish_that_meets_nobody_overtakes_freely() -> None:
    locks = [lock("o1", "/a", "S"), lock("o2", "/a", "X", waiting=True), lock("o3", "/b", "X", waiting=True)]
    assert grantable_operations(locks) == ["o3"]


def test_several_are_granted_at_once_that_go_together() -> None:
    locks = [lock("o1", "/a", "S", waiting=True), lock("o2", "/a", "S", waiting=True)]
    assert grantable_operations(locks) == ["o1", "o2"]


any_lock = st.builds(lock, st.sampled_from(OPS), st.sampled_from(PATHS), st.sampled_from(Mode).map(str))


def spelled_out(lock: Lock) -> dict[tuple[str, ...], Mode]:
    """Return every node that a lock touches, with the mode in which it does."""
    path, mode = parse_path(lock.path), Mode(lock.mode)
    return {**{path[:depth]: intention(mode) for depth in range(len(path))}, path: mode}


def clash(one: Lock, other: Lock) -> bool:
    mine, theirs = spelled_out(one), spelled_out(other)
    return one.op != other.op and any(not compatible(mine[node], theirs[node]) for node in mine.keys() & theirs.keys())


@given(any_lock, any_lock)
def test_two_locks_clash_exactly_where_they_clash_on_a_node(one: Lock, other: Lock) -> None:
    assert conflicts(one, other) == clash(one, other) == conflicts(other, one)


wishes_of_all = st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(Mode)), min_size=1, max_size=5)


@given(wishes_of_all, st.data())
def test_a_wish_waits_exactly_while_an_earlier_one_clashes(wishes: list[tuple[str, Mode]], data: st.DataObject) -> None:
    """Operations with one lock each ask in turn, then leave in any order."""
    rows: list[Lock] = []
    for op, (path, mode) in zip(OPS, wishes, strict=False):
        wish = lock(op, path, mode)
        rows.append(replace(wish, waiting=bool(conflicting_locks(wish, rows))))
    for op in data.draw(st.permutations([row.op for row in rows])):
        for number, row in enumerate(rows):
            assert row.waiting == any(clash(row, earlier) for earlier in rows[:number])
        rows = [row for row in rows if row.op != op]
        lucky = grantable_operations(rows)
        rows = [replace(row, waiting=row.waiting and row.op not in lucky) for row in rows]


@given(st.lists(any_lock, max_size=8))
def test_what_is_granted_never_clashes_with_what_is_held(wishes: list[Lock]) -> None:
    """All of an operation's wishes wait if one of them has to; whatever is granted then goes together."""
    by_op: dict[str, list[Lock]] = {}
    for wish in wishes:
        by_op.setdefault(wish.op, []).append(wish)
    rows: list[Lock] = []
    for mine in by_op.values():
        waiting = any(conflicting_locks(wish, rows) for wish in mine)
        rows += [replace(wish, waiting=waiting) for wish in mine]
    while rows:
        held = [row for row in rows if not row.waiting]
        assert held, "somebody must be able to go on"
        assert not any(conflicts(one, other) for one in held for other in held)
        rows = [row for row in rows if row.op != held[0].op]
        lucky = grantable_operations(rows)
        rows = [replace(row, waiting=row.waiting and row.op not in lucky) for row in rows]
