"""The checks of `verdict` find every planted fault, and nothing that is allowed."""

# real time: the leases are those of recorded events, no clock runs
from tests.chaos.ledger import Entry, What
from tests.chaos.runs import runs_of
from tests.chaos.verdict import collisions, continuations, crowds, doubled, effects_of, lock_violations, never_ended

LEASE = 1.0
A, B = "worker a", "worker b"


def line(at: float, what: What, worker: str, op: str = "", epoch: int = 1, **facts: str) -> Entry:
    return Entry(
        at, what, worker, op, facts.get("object", "crane-0"), facts.get("lane", ""), epoch, facts.get("lock", "")
    )


def runs(*lines: Entry) -> list[str]:
    """Return all faults that are found in these lines."""
    found = runs_of(lines, LEASE)
    checks = (collisions, lock_violations, crowds, doubled, never_ended)
    return [fault for check in checks for fault in check(found)]


def test_work_one_after_the_other_is_no_collision() -> None:
    assert not runs(
        line(1, What.BEGIN, A, "x"), line(2, What.END, A, "x"), line(2, What.BEGIN, B, "y"), line(3, What.END, B, "y")
    )


def test_two_operations_at_work_on_one_object_are_found() -> None:
    (fault,) = runs(
        line(1, What.BEGIN, A, "x"), line(2, What.BEGIN, B, "y"), line(3, What.END, A, "x"), line(4, What.END, B, "y")
    )
    assert "at once on crane-0: x epoch 1 by worker a" in fault


def test_one_operation_at_work_twice_at_once_is_found() -> None:
    assert runs(
        line(1, What.BEGIN, A, "x"),
        line(2, What.BEGIN, B, "x", 2),
        line(3, What.END, A, "x"),
        line(4, What.END, B, "x", 2),
    )


def test_a_killed_worker_is_no_longer_at_work() -> None:
    assert not runs(
        line(1, What.BEGIN, A, "x"),
        line(2, What.KILLED, A),
        line(3, What.BEGIN, B, "x", 2),
        line(4, What.END, B, "x", 2),
    )


def test_a_worker_that_stood_still_may_overlap_with_its_heir_and_its_token_is_recognised() -> None:
    lines = [
        line(1, What.BEGIN, A, "x"),
        line(1.5, What.STOPPING, A),
        line(3, What.BEGIN, B, "x", 2),
        line(3.1, What.APPLY, B, "x", 2),
        line(3.2, What.WOKEN, A),
        line(3.3, What.APPLY, A, "x"),
        line(3.4, What.END, A, "x"),
        line(3.5, What.END, B, "x", 2),
    ]
    assert not runs(*lines)
    assert effects_of(lines) == effects_of([*lines, line(4, What.LOOK, A, "x")])
    assert (effects_of(lines).applied, effects_of(lines).recognised) == (frozenset("x"), 1)


def test_an_effect_asked_for_twice_by_wakeful_workers_is_found() -> None:
    assert runs(
        line(1, What.BEGIN, A, "x"),
        line(2, What.APPLY, A, "x"),
        line(3, What.END, A, "x"),
        line(4, What.BEGIN, B, "x", 2),
        line(5, What.APPLY, B, "x", 2),
        line(6, What.END, B, "x", 2),
    )


def test_a_lane_beyond_its_capacity_is_found() -> None:
    crowd = [line(n, What.BEGIN, A, f"x{n}", object=f"crane-{n}", lane="port/0") for n in range(4)]
    gone = [line(9, What.END, A, f"x{n}", object=f"crane-{n}", lane="port/0") for n in range(4)]
    assert runs(*crowd, *gone) == ["4 at work in lane port/0 at line 3"]
    assert not runs(*crowd[:3], *gone[:3])


def test_more_active_lanes_than_the_group_allows_are_found() -> None:
    crowd = [line(n, What.BEGIN, A, f"x{n}", object=f"crane-{n}", lane=f"port/{n}") for n in range(3)]
    gone = [line(9, What.END, A, f"x{n}", object=f"crane-{n}", lane=f"port/{n}") for n in range(3)]
    assert runs(*crowd, *gone) == ["3 lanes active at line 2: port/0, port/1, port/2"]


def test_locks_that_exclude_each_other_are_found_and_shared_ones_are_not() -> None:
    def both(first: str, second: str) -> list[str]:
        return runs(
            line(1, What.BEGIN, A, "x", object="crane-0", lock=first),
            line(2, What.BEGIN, B, "y", object="crane-1", lock=second),
            line(3, What.END, A, "x", object="crane-0", lock=first),
            line(4, What.END, B, "y", object="crane-1", lock=second),
        )

    assert both("S /berth/0", "X /berth/0")
    assert not both("S /berth/0", "S /berth/0")
    assert not both("X /berth/0", "X /berth/1")


def test_a_handler_that_is_never_heard_of_again_is_found() -> None:
    assert runs(line(1, What.BEGIN, A, "x")) == ["never ended: x epoch 1 by worker a (lines 0 to 4611686018427387904)"]


def test_the_time_from_a_kill_to_the_continuation_is_measured() -> None:
    lines = [
        line(1, What.BEGIN, A, "x"),
        line(1, What.BEGIN, A, "y", object="crane-1"),
        line(2, What.KILLED, A),
        line(3.5, What.LOOK, B, "x", 2),
        line(4.5, What.BEGIN, B, "y", 2, object="crane-1"),
    ]
    assert continuations(lines, What.KILLED) == [1.5, 2.5]
