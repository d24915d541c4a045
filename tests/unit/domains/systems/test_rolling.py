"""Rolling updates: from any instances, with any failures, to the wanted ones."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.domains.systems.backends.port import InstancePhase, ServiceInstance
from stateward.domains.systems.definition import Rollout
from stateward.domains.systems.rollout import is_done, keep_unmovable, next_step, progress_score

ROLLOUTS = st.builds(Rollout, st.integers(0, 3), st.integers(0, 3)).filter(lambda one: one != Rollout(0, 0))


def instances(revision: str, ready: int, ill: int = 0) -> list[ServiceInstance]:
    """Return instances of a revision, some well and some not."""
    return [
        ServiceInstance(
            f"{revision}-{number}",
            revision,
            InstancePhase.UP if number < ready else InstancePhase.STARTING,
            number < ready,
        )
        for number in range(ready + ill)
    ]


def test_the_first_instances_are_started_at_once() -> None:
    assert next_step(3, "a", Rollout(1, 0), []).start == ("a-0", "a-1", "a-2")


def test_one_more_is_started_before_the_first_old_one_ends() -> None:
    deeds = next_step(2, "b", Rollout(1, 0), instances("a", 2))
    assert (deeds.start, deeds.stop) == (("b-0",), ())


def test_without_surge_one_ends_first() -> None:
    deeds = next_step(2, "b", Rollout(0, 1), instances("a", 2))
    assert (deeds.start, deeds.stop) == ((), ("a-0",))


def test_what_serves_nobody_goes_first() -> None:
    deeds = next_step(2, "b", Rollout(1, 0), instances("a", 1, ill=1))
    assert deeds.stop == ("a-1",)


def test_the_surplus_goes_those_that_are_ill_first() -> None:
    assert next_step(1, "a", Rollout(), instances("a", 2, ill=1)).stop == ("a-1", "a-2")


def test_instances_without_room_elsewhere_stay_unless_a_move_is_under_way() -> None:
    stuck = [replace(one, must_move=True, no_room="all full") for one in instances("a", 2)]
    assert is_done(2, "a", keep_unmovable(2, stuck))
    moved = [*stuck, ServiceInstance("a-2", "a", InstancePhase.STARTING)]  # it has taken the last room
    assert next_step(2, "a", Rollout(), keep_unmovable(2, moved)).stop == ()
    ready = [*stuck, ServiceInstance("a-2", "a", InstancePhase.UP, ready=True)]
    assert next_step(2, "a", Rollout(), keep_unmovable(2, ready)).stop == ("a-0",)


def test_a_name_is_not_given_twice() -> None:
    leaving = [replace(one, phase=InstancePhase.STOPPING, ready=False) for one in instances("a", 1)]
    assert next_step(1, "a", Rollout(), leaving).start == ("a-1",)


@given(st.integers(0, 6), st.integers(0, 8), st.integers(0, 3), ROLLOUTS, st.randoms(use_true_random=False))
def test_any_rollout_ends_within_its_limits(
    wanted: int, ready: int, ill: int, rollout: Rollout, chance: Random
) -> None:
    seen = instances("old", ready, ill)
    most = max(len(seen), wanted + rollout.max_surge)
    least = min(ready, max(0, wanted - rollout.max_unavailable))
    for _ in range(200):
        if is_done(wanted, "new", seen):
            break
        deeds = next_step(wanted, "new", rollout, seen)
        seen = [
            replace(one, phase=InstancePhase.STOPPING, ready=False) if one.name in deeds.stop else one for one in seen
        ]
        seen += [ServiceInstance(name, "new", InstancePhase.STARTING) for name in deeds.start]
        present = [one for one in seen if one.is_wanted]
        assert len(present) <= most
        assert sum(one.ready for one in present) >= least
        seen = [_moved(one, chance) for one in seen if one.is_wanted or chance.random() < 0.5]
    assert is_done(wanted, "new", seen)
    assert progress_score("new", seen) == wanted


def _moved(one: ServiceInstance, chance: Random) -> ServiceInstance:
    """Let a new instance get ready, some time."""
    well = one.revision == "new" and one.phase is InstancePhase.STARTING and chance.random() < 0.5
    return replace(one, phase=InstancePhase.UP, ready=True) if well else one


@given(st.integers(0, 6), st.integers(0, 6), ROLLOUTS)
def test_if_nothing_new_gets_ready_the_old_ones_that_must_stay_do(wanted: int, ready: int, rollout: Rollout) -> None:
    seen = instances("old", ready)
    for _ in range(20):
        deeds = next_step(wanted, "new", rollout, seen)
        seen = [one for one in seen if one.name not in deeds.stop]
        seen += [ServiceInstance(name, "new", InstancePhase.STARTING) for name in deeds.start]
    assert sum(one.ready for one in seen) >= min(ready, max(0, wanted - rollout.max_unavailable))
